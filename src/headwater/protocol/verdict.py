"""The verdict: the engine's answer to one commit. A rejection is a value; one place makes it an exception.

`Conflict` is worth a retry on fresh state. `PreconditionFailed` and `RuleRefused` are not.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from headwater.data.address import Depth, DocKey
from headwater.data.path import Path, path_text
from headwater.errors import CommitRejected, ConflictError, PreconditionFailedError, RuleRefusedError


class Collision(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One address of the rejected commit, and the accepted write that it did not see."""

    doc: DocKey
    path: Path
    depth: Depth
    basis: int
    seq: int
    session: str
    node: str
    reason: str = ""

    def __str__(self) -> str:
        by = f"{self.session} ({self.node})" if self.node else self.session
        what = self.reason or f"was read at seq {self.basis} and written at seq {self.seq} by {by}"
        return f"{self.doc.scope}:{self.doc.id}#{path_text(self.path)} {what}"


class Conflict(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="conflict"):
    """The view was stale. Names every collision, every pending layer that is dead, and lost history."""

    collisions: tuple[Collision, ...] = ()
    dead_layers: tuple[int, ...] = ()
    basis_expired: bool = False


class PreconditionFailed(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="precondition_failed"
):
    """A precondition is false for good."""

    precondition: str
    detail: str


class RuleRefused(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="rule_refused"):
    """A rule of the space or a limit of the engine forbids the commit as it is."""

    rule: str
    detail: str


Rejection = Conflict | PreconditionFailed | RuleRefused


class Accepted(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False, tag="accepted"):
    """The commit is durable at `seq`. `replayed`: it was already, and this is the first answer again.

    Of a wave at least one result is. `superseded` are the places of results that a conflict kept out, and `refused` of
    those that no retry can bring in. A replay answers both as superseded.
    """

    local_seq: int
    seq: int
    replayed: bool = False
    superseded: tuple[int, ...] = ()
    refused: tuple[tuple[int, RuleRefused], ...] = ()


class Rejected(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="rejected"):
    """Nothing of the commit was written.

    The rejection of a wave is that of each of its results. If it is a conflict, `refused` are exceptions by place.
    """

    local_seq: int
    rejection: Rejection
    refused: tuple[tuple[int, RuleRefused], ...] = ()


Verdict = Accepted | Rejected


def as_error(verdict: Rejected) -> CommitRejected:
    """The exception for a rejection, made at the public edge and nowhere else."""
    rejection = verdict.rejection
    match rejection:
        case Conflict():
            return ConflictError(f"commit {verdict.local_seq} was rejected: {conflict_text(rejection)}")
        case PreconditionFailed():
            return PreconditionFailedError(
                f"commit {verdict.local_seq} was rejected for good, because its precondition {rejection.precondition} "
                f"is false: {rejection.detail}. Do not retry it.",
                precondition=rejection.precondition,
            )
        case RuleRefused():
            return RuleRefusedError(f"commit {verdict.local_seq} was refused: {rejection.detail}")
        case _:
            assert_never(rejection)


def conflict_text(conflict: Conflict) -> str:
    parts = [str(collision) for collision in conflict.collisions]
    if conflict.dead_layers:
        layers = ", ".join(map(str, conflict.dead_layers))
        parts.append(f"it depends on commit {layers} of this session, which was not accepted")
    if conflict.basis_expired:
        parts.append("its basis is older than the history that is kept")
    if not parts:
        parts.append("it was rejected before, and the reasons are no longer kept")
    return "; ".join(parts) + ". Read again and retry."
