"""The rules of the tier as switches. `TRUE_RULES` is the design; each variant turns one switch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Elision(Enum):
    """When a result that equals the confirmed value is not sent."""

    COVERED = "at the flush, if no result of the node is under way or accepted beyond the confirmed seq"
    ANSWERED = "at the flush, if no result of the node is without a verdict"
    FLUSH = "at the flush"
    RUN = "when the node has run"
    NEVER = "never"


class Superseded(Enum):
    """How a runtime treats a superseded entry."""

    WAITS = "sent again once the confirmed seq has reached the seq of the judgement, unless its node is invalid"
    AT_ONCE = "sent again at the next flush"
    DIRTIED = "waits until its node is invalid"
    DROPPED = "leaves the tier"


class Outputs(Enum):
    """Which confirmed values of a node's output the node compares with its own result."""

    OTHERS = "those that another session wrote last"
    ANY = "all, unless the node's newest result is still in the tier"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each field at its default is the rule; its comment says what the other value does instead."""

    clean_only: bool = True  # False: entries of invalid nodes are sent
    watched_only: bool = True  # False: an entry is sent although a document that it read is set aside
    upstream_named: bool = True  # False: a read of a result that is not confirmed names the document at the basis
    named_is_last: bool = True  # False: a read of an own result stands if that was accepted, whatever was written since
    waiting_upstream_holds: bool = True  # False: a read of a superseded result names the wave that sent it
    elision: Elision = Elision.COVERED
    verdict_of_version: bool = True  # False: a verdict settles a newer result of its node, too
    superseded: Superseded = Superseded.WAITS
    refused_fails: bool = True  # False: a refused entry is treated as superseded
    dormant_dropped: bool = True  # False: an entry of an invalid node that is not live stays
    drops_announced: bool = True  # False: the entry of a stopped node leaves the tier without a notification
    stop_freezes: bool = True  # False: the entry of a stopped node stays when its inputs change
    sources: bool = True  # False: a handler names the derived document that it read, at its basis
    failed_sources: bool = True  # False: a handler records nothing for a computed that failed
    frozen_sources: bool = True  # False: a handler takes the result of a stopped node for a confirmed document
    waves_most: int = 3  # with authored commits; the product has 16
    waves_alone: int = 1  # without authored commits
    one_message: bool = True  # False: a Sync may end between the commits of a message and its wave
    causes_join: bool = True  # False: the causes of a replaced result are lost
    shown_until_covered: bool = True  # False: an accepted entry leaves the tier at its verdict
    verdict_before_sync: bool = True  # False: a Sync overtakes verdicts
    stands_on_record: bool = True  # False: an entry does not read the record of its piece
    piece_dropped: bool = True  # False: the result of a node whose piece was deleted or made anew stays in the tier
    overwritten_armed: bool = True  # False: a node stays clean when an authored write to its output has ended
    base_accepted: bool = True  # False: a difference is sent against the result that was sent last
    mask_stored: bool = True  # False: after a restart, a known wave is answered as accepted in whole
    replay_in_bytes: bool = True  # False: a wave that is sent again is composed anew under its number
    outputs: Outputs = Outputs.OTHERS
    dormant_compared: bool = True  # False: only live nodes compare their outputs
    covered_compared: bool = True  # False: only a net difference of an output counts as a change of it
    seqs_of_unchanged: bool = True  # False: a catch-up does not say that an unchanged document was written
    installs: bool = True  # False: a peer's result is never taken over; the node is invalid
    hops_counted: bool = True  # False: a result of a run that a peer's result caused counts as new


TRUE_RULES: Final = Rules()
