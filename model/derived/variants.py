"""The rules of the tier with one switch turned: mistakes, which a search has to find, and alternatives, which hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from model.derived.rules import Elision, Outputs, Rules, Superseded


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of the rules. `seed` is the first random schedule that shows a mistake."""

    name: str
    says: str
    rules: Rules
    breaks: frozenset[str] = frozenset()
    seed: int = -1


def _mistake(name: str, says: str, breaks: str, seed: int, rules: Rules) -> Variant:
    return Variant(name, says, rules, frozenset(breaks.split()), seed)


MISTAKES: Final = (
    _mistake(
        "invalid-sent",
        "entries of invalid nodes are sent",
        "C1",
        1,
        Rules(clean_only=False),
    ),
    _mistake(
        "set-aside-sent",
        "an entry is sent although a document that it read is set aside",
        "C1",
        195,
        Rules(watched_only=False),
    ),
    _mistake(
        "reader-first",
        "a reader names the document at the basis of a result that is not confirmed",
        "C1",
        3,
        Rules(upstream_named=False),
    ),
    _mistake(
        "named-overwritten",
        "a read of an own result stands if that was accepted, whatever was written since",
        "C1",
        2,
        Rules(named_is_last=False),
    ),
    _mistake(
        "elided-at-run",
        "a result that equals the confirmed value never enters the tier",
        "I1",
        50,
        Rules(elision=Elision.RUN),
    ),
    _mistake(
        "elided-under-way",
        "a result is elided while an older one of its node is under way",
        "I1",
        67,
        Rules(elision=Elision.FLUSH),
    ),
    _mistake(
        "elided-uncovered",
        "a result is elided when an older one is accepted, but not yet confirmed here",
        "I1",
        71,
        Rules(elision=Elision.ANSWERED),
    ),
    _mistake(
        "verdict-of-newer",
        "a verdict settles a newer result, too",
        "I1 I8",
        7,
        Rules(verdict_of_version=False),
    ),
    _mistake(
        "superseded-waits",
        "a superseded result waits until its node is invalid",
        "settles",
        0,
        Rules(superseded=Superseded.DIRTIED),
    ),
    _mistake(
        "superseded-dropped",
        "a superseded result leaves the tier",
        "I1",
        0,
        Rules(superseded=Superseded.DROPPED),
    ),
    _mistake(
        "refused-again",
        "a refused result is treated as superseded",
        "settles",
        0,
        Rules(refused_fails=False),
    ),
    _mistake(
        "dormant-kept",
        "the result of an invalid node that is not live stays",
        "I1 settles",
        8,
        Rules(dormant_dropped=False),
    ),
    _mistake(
        "stopped-silently",
        "the result of a stopped node leaves the tier without a notification",
        "I1",
        7,
        Rules(drops_announced=False),
    ),
    _mistake(
        "frozen-for-ever",
        "the result of a stopped node stays when its inputs change",
        "C1 I4",
        1,
        Rules(stop_freezes=False),
    ),
    _mistake(
        "no-sources",
        "a handler names the derived document that it read",
        "I4",
        2,
        Rules(sources=False),
    ),
    _mistake(
        "no-failed-sources",
        "a handler records nothing for a failed computed",
        "I4",
        156,
        Rules(failed_sources=False),
    ),
    _mistake(
        "no-frozen-sources",
        "a handler names the document of a stopped node whose result is under way",
        "I4",
        1855,
        Rules(frozen_sources=False),
    ),
    _mistake(
        "split-message",
        "a Sync ends between the commits of a message and its wave",
        "cut",
        0,
        Rules(one_message=False),
    ),
    _mistake(
        "causes-lost",
        "the causes of a replaced result are lost",
        "I8",
        0,
        Rules(causes_join=False),
    ),
    _mistake(
        "dropped-at-verdict",
        "an accepted result leaves the tier at its verdict",
        "I1",
        0,
        Rules(shown_until_covered=False),
    ),
    _mistake(
        "sync-first",
        "a Sync overtakes a verdict",
        "C6",
        0,
        Rules(verdict_before_sync=False),
    ),
    _mistake(
        "piece-resurrected",
        "an entry does not read the record of its piece",
        "C1",
        10,
        Rules(stands_on_record=False),
    ),
    _mistake(
        "piece-kept",
        "the result of a deleted or remade piece stays in the tier",
        "I4 settles",
        10,
        Rules(piece_dropped=False),
    ),
    _mistake(
        "overwritten-clean",
        "a node stays clean when an authored write to its output has ended",
        "I1",
        0,
        Rules(overwritten_armed=False),
    ),
    _mistake(
        "unaccepted-base",
        "a difference is sent against a result without a verdict",
        "C1",
        18,
        Rules(base_accepted=False),
    ),
    _mistake(
        "mask-lost",
        "after a restart, a known wave is answered as accepted in whole",
        "C6",
        10,
        Rules(mask_stored=False),
    ),
    _mistake(
        "replay-composed",
        "a wave that is sent again is composed anew",
        "C1 C10",
        4,
        Rules(replay_in_bytes=False),
    ),
    _mistake(
        "outputs-unread",
        "a foreign value of a node's output is no change for the node",
        "I1",
        0,
        Rules(outputs=Outputs.NONE),
    ),
    _mistake(
        "dormant-unread",
        "only live nodes compare foreign values of their outputs",
        "I1",
        11,
        Rules(dormant_compared=False),
    ),
    _mistake(
        "net-outputs",
        "only a net difference of the confirmed output is compared",
        "I1",
        69,
        Rules(covered_compared=False),
    ),
    _mistake(
        "net-seqs",
        "a catch-up does not say that an unchanged document was written",
        "I1",
        94,
        Rules(seqs_of_unchanged=False),
    ),
    _mistake(
        "hops-forgotten",
        "a run that a peer's result caused counts as new",
        "settles",
        15,
        Rules(hops_counted=False),
    ),
)

ALTERNATIVES: Final = (
    Variant("never-elided", "every result is sent", Rules(elision=Elision.NEVER)),
    Variant(
        "sent-at-once", "a superseded result is sent again at the next flush", Rules(superseded=Superseded.AT_ONCE)
    ),
    Variant("waiting-named", "a reader names the wave of a superseded result", Rules(waiting_upstream_holds=False)),
    Variant("never-installed", "a peer's result makes its node invalid, whatever it read", Rules(installs=False)),
    Variant("outputs-any", "own values of an output are compared, too", Rules(outputs=Outputs.ANY)),
    Variant("many-waves", "several waves are under way without authored commits", Rules(waves_alone=3)),
    Variant(
        "elided-anyhow",
        "own values of an output are compared, too, and a result is elided when it is made",
        Rules(elision=Elision.RUN, outputs=Outputs.ANY),
    ),
    Variant("one-wave", "at most one wave is under way", Rules(waves_most=1)),
)
