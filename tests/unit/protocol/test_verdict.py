"""Verdicts are values; at the edge a rejection becomes the error that says what to do."""

from __future__ import annotations

import msgspec
import pytest

from headwater.data.address import Depth, DocKey
from headwater.errors import CommitRejected, ConflictError, PreconditionFailedError, RuleRefusedError
from headwater.protocol.verdict import (
    Accepted,
    Collision,
    Conflict,
    PreconditionFailed,
    Rejected,
    RuleRefused,
    Verdict,
    as_error,
    conflict_text,
)

D = DocKey("space", "d")
COLLISION = Collision(D, ("a", 0), Depth.DEEP, 3, 5, "bob", "Board.rename")


@pytest.mark.parametrize(
    "verdict",
    [
        Accepted(1, 2),
        Accepted(1, 2, replayed=True),
        Rejected(3, Conflict((COLLISION,), (1, 2), True)),
        Rejected(3, PreconditionFailed("entity_absent", "it is there")),
        Rejected(3, RuleRefused("commit_bytes", "too long")),
    ],
)
def test_a_verdict_survives_the_way_to_bytes_and_back(verdict: Verdict) -> None:
    decoder = msgspec.msgpack.Decoder(Accepted | Rejected)
    assert decoder.decode(msgspec.msgpack.encode(verdict)) == verdict


def test_a_collision_reads_as_where_when_and_who() -> None:
    assert str(COLLISION) == "space:d#/a/0 was read at seq 3 and written at seq 5 by bob (Board.rename)"
    assert str(msgspec.structs.replace(COLLISION, node="")).endswith("by bob")
    assert str(msgspec.structs.replace(COLLISION, reason="cannot take it")) == "space:d#/a/0 cannot take it"


def test_everything_wrong_with_a_view_is_in_one_text() -> None:
    conflict = Conflict((COLLISION, msgspec.structs.replace(COLLISION, path=())), (4, 9), True)
    assert conflict_text(conflict) == (
        f"{COLLISION}; space:d# was read at seq 3 and written at seq 5 by bob (Board.rename); it depends on commit "
        "4, 9 of this session, which was not accepted; its basis is older than the history that is kept. "
        "Read again and retry."
    )


@pytest.mark.parametrize(
    ("rejected", "kind", "says"),
    [
        (Rejected(7, Conflict((COLLISION,))), ConflictError, "commit 7 was rejected: space:d#/a/0 was read"),
        (
            Rejected(7, PreconditionFailed("lease_held", "the lease moved on")),
            PreconditionFailedError,
            "its precondition lease_held is false: the lease moved on. Do not retry it.",
        ),
        (
            Rejected(7, RuleRefused("size", "it is too long. Split it.")),
            RuleRefusedError,
            "commit 7 was refused: it is",
        ),
    ],
)
def test_each_rejection_is_its_own_error(rejected: Rejected, kind: type[CommitRejected], says: str) -> None:
    error = as_error(rejected)
    assert type(error) is kind
    assert says in str(error)
