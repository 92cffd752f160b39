"""Checks of a commit that need nothing but the commit: what no honest peer sends, whatever the space holds.

Owns what is outside the protocol about one commit. What may be refused or collide is for others to say.
"""

from __future__ import annotations

from headwater.data.address import NAME_LENGTH
from headwater.data.value import MAX_INT
from headwater.engine.limits import Limits
from headwater.errors import ProtocolError
from headwater.protocol.commit import MAIN, Commit, LeaseHeld, OriginCommitted, Precondition
from headwater.protocol.reactions import lease_name


def check_commit(commit: Commit, last_seq: int, limits: Limits) -> None:
    """ProtocolError: it is no commit of a session that has seen a log which ends there."""
    operations, reads = commit.operations, commit.reads
    if len(operations) > 1 and len({op.doc for op in operations}) < len(operations):
        raise ProtocolError(f"commit {commit.local_seq} names a document in two operations. Put its patches into one.")
    for read in reads:
        if not 0 <= read.seq <= last_seq:
            raise ProtocolError(
                f"commit {commit.local_seq} read {read.doc.scope}:{read.doc.id} at seq {read.seq}, but the log "
                f"ends at {last_seq}"
            )
        if len(read.doc.id) > NAME_LENGTH or len(read.doc.scope) > 2 * NAME_LENGTH:
            raise ProtocolError(f"commit {commit.local_seq} read a document whose name is over {NAME_LENGTH} long")
        if read.layers:
            _check_layers(commit, read.layers, limits)
    if commit.after:
        _check_layers(commit, commit.after, limits)
    for doc, _ in commit.provenance.causes:
        if len(doc.id) > NAME_LENGTH or len(doc.scope) > 2 * NAME_LENGTH:
            raise ProtocolError(f"commit {commit.local_seq} names a cause that is over {NAME_LENGTH} long")
    for condition in commit.preconditions:
        _check_precondition(commit, condition)
    for event in commit.events:
        if not 0 <= event.due_us <= MAX_INT:
            raise ProtocolError(
                f"event {event.id!r} of commit {commit.local_seq} is due at {event.due_us}: write microseconds "
                f"from 0 to {MAX_INT}"
            )
    if commit.delivered:
        _check_delivered(commit)
    if commit.declared:
        _check_declared(commit)


def _check_precondition(commit: Commit, condition: Precondition) -> None:
    if isinstance(condition, OriginCommitted) and not 0 < condition.local_seq < commit.local_seq:
        raise ProtocolError(
            f"commit {commit.local_seq} names {condition.local_seq} as its origin: an origin is an earlier commit"
        )
    if isinstance(condition, LeaseHeld) and not 0 <= condition.token <= MAX_INT:
        raise ProtocolError(f"commit {commit.local_seq} names a lease with token {condition.token}, which none has")


def _check_layers(commit: Commit, layers: tuple[tuple[int, int], ...], limits: Limits) -> None:
    named = 0
    for first, last in layers:
        named += last - first + 1
        if not 0 < first <= last < commit.local_seq or named > limits.read_layers:
            raise ProtocolError(
                f"commit {commit.local_seq} names the layers {first} to {last}: layers are earlier commits "
                f"of its own session, at most {limits.read_layers} of them"
            )


def _check_delivered(commit: Commit) -> None:
    """A position moves only for whoever holds its target, on the one branch whose records are delivered, and once."""
    held = {each.name for each in commit.preconditions if isinstance(each, LeaseHeld)}
    named = [lease_name(each.reaction, each.key) for each in commit.delivered]
    if commit.branch != MAIN:
        raise ProtocolError(f"commit {commit.local_seq} delivers records on a branch: only those of {MAIN!r} are")
    if len(set(named)) < len(named) or not held.issuperset(named):
        raise ProtocolError(
            f"commit {commit.local_seq} delivers to a target twice, or without lease_held. Name the lease of each once."
        )


def _check_declared(commit: Commit) -> None:
    """On the one branch whose records anybody hears of, each once."""
    if commit.branch != MAIN:
        raise ProtocolError(f"commit {commit.local_seq} declares reactions on a branch: only {MAIN!r} is delivered")
    if len({each.reaction for each in commit.declared}) < len(commit.declared):
        raise ProtocolError(f"commit {commit.local_seq} declares a reaction twice. Declare each once.")
