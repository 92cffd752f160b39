"""Variants of the rules, each with one of them changed.

Most are mistakes: each names the rules of which one must be seen broken, and a small workload that suffices. A
checker that did not find those would show nothing when it finds none. The others are alternatives: they hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from model.rules import Lookup, Naming, Rules
from model.workload import Conditions

_NO_REFUSALS: Final = Conditions(refusals=False)
_GROUPS: Final = Conditions(refusals=False, groups=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    name: str
    says: str
    rules: Rules
    breaks: frozenset[str] = frozenset()  # empty: an alternative, which holds
    workload: str = ""
    conditions: Conditions = _NO_REFUSALS


def _mistake(name: str, says: str, breaks: str, workload: str, rules: Rules) -> Variant:
    return Variant(name=name, says=says, rules=rules, breaks=frozenset(breaks.split()), workload=workload)


MISTAKES: Final = (
    _mistake(
        "top-layer-only",
        "a pending read names only the top layer of the stack: the phantom",
        "C1",
        "r(x)w(x) w(y) r(x)w(y); w(x)",
        Rules(naming=Naming.TOP),
    ),
    _mistake(
        "basis-of-top-layer",
        "the engine counts staleness from the seq of the top layer: the missed write",
        "C1",
        "w(x) r(x)w(y); w(x)",
        Rules(engine_true_basis=False),
    ),
    _mistake(
        "basis-rounded-up",
        "the replica takes the seq of its newest accepted layer for its basis: the missed write again",
        "C1",
        "w(x) r(y)w(x); w(y)",
        Rules(replica_true_basis=False),
    ),
    _mistake(
        "no-cascade",
        "the replica keeps, and sends, what stands on a rejected layer",
        "C4",
        "r(x)w(y) r(y)w(y); w(x)",
        Rules(replica_cascades=False),
    ),
    _mistake(
        "layers-unchecked",
        "the engine accepts a commit over a layer that it rejected",
        "C1 C4",
        "r(x)w(y) r(y)w(y); w(x)",
        Rules(engine_checks_layers=False),
    ),
    _mistake(
        "answer-before-fsync",
        "a verdict leaves before its commit is durable",
        "C6",
        "w(x); w(y)",
        Rules(verdict_after_fsync=False),
    ),
    _mistake(
        "no-lookup-after-reconnect",
        "the engine recognises a commit that is sent twice only within one connection",
        "C6 C10",
        "w(x); w(y)",
        Rules(lookup=Lookup.CONNECTION),
    ),
    _mistake(
        "no-lookup",
        "the engine does not look for a commit that is sent twice at all",
        "C6 C10",
        "r(x)w(x); w(y)",
        Rules(lookup=Lookup.NONE),
    ),
    _mistake(
        "keys-forgotten",
        "a long absence costs a session the keys of its unacknowledged commits",
        "C6 C10",
        "w(x); w(y)",
        Rules(keys_outlive_connection=False),
    ),
    Variant(
        name="replay-reads-again",
        says="a replay carries fresh reads instead of the bytes that were sent first",
        rules=Rules(replay_byte_for_byte=False),
        breaks=frozenset({"C10"}),
        workload="r(x)w(x); w(y)",
        conditions=_GROUPS,
    ),
    Variant(
        name="second-chance",
        says="the replay of a rejected commit is judged again, after later ones were accepted",
        rules=Rules(rejection_is_final=False),
        breaks=frozenset({"C5"}),
        workload="w(x) w(y); w(x)",
        # A stale read stays stale. Only a refusal for another reason can be taken back.
        conditions=Conditions(refusals=True),
    ),
    Variant(
        name="frame-before-verdict",
        says="changes are sent that cover an own commit, without waiting for the answer to its replay",
        rules=Rules(verdict_before_frame=False),
        breaks=frozenset({"C6"}),
        workload="w(x); w(y)",
        conditions=replace(_GROUPS, frames=True),
    ),
    Variant(
        name="connections-outlive-restart",
        says="the engine loses what it had in memory, and connections go on, on which messages may arrive twice",
        rules=Rules(restart_ends_connections=False),
        breaks=frozenset({"C6"}),
        workload="w(x); w(y)",
        conditions=Conditions(copies=1),
    ),
    _mistake(
        "early-acknowledgement",
        "a replica acknowledges a verdict while a commit of its stack still names that layer",
        "C3",
        "w(x) r(x)w(y); w(y)",
        Rules(acknowledges_late=False),
    ),
    _mistake(
        "silent-replay",
        "the engine drops a replay that it recognises instead of repeating the verdict",
        "settles",
        "r(x)w(x); w(x)",
        Rules(replay_is_answered=False),
    ),
)

ALTERNATIVES: Final = (
    Variant(
        name="whole-stack",
        says="a pending read names every layer of the stack, whether or not it wrote what was read",
        rules=Rules(naming=Naming.STACK),
    ),
    Variant(
        name="landed-not-told",
        says="on reconnect, accepted commits are replayed like all others, and changes wait for the answers",
        rules=Rules(landed_is_told=False),
    ),
    Variant(
        name="unsent-kept",
        says="layers that were never sent survive a reconnect and are sent after the replay",
        rules=Rules(unsent_are_reverted=False),
    ),
)
