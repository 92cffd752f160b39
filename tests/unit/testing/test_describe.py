"""A failing schedule is printed so that a person can read each commit."""

from __future__ import annotations

import pytest

from headwater.data.address import Depth, DocKey
from headwater.protocol.commit import Commit, EntityAbsent, LeaseHeld, OriginCommitted, Read
from headwater.testing.differential.describe import describe_commit

DOC = DocKey("space", "a")


@pytest.mark.parametrize(
    ("commit", "text"),
    [
        (Commit(1, branch="b1"), "on b1"),
        (Commit(2, reads=(Read(DOC, ("x",), Depth.DEEP, 7),)), "read space:a#/x deep at 7"),
        (Commit(2, reads=(Read(DOC, ("x",), Depth.SHAPE, 7, ((1, 1), (3, 5))),)), "read space:a#/x shape at 7+1+3..5"),
        (Commit(3, preconditions=(OriginCommitted(2),)), "if origin 2 was committed"),
        (Commit(3, preconditions=(EntityAbsent(DOC),)), "if space:a is absent"),
        (Commit(3, preconditions=(LeaseHeld("l", 4),)), "if lease l is held with 4"),
    ],
)
def test_commit_is_described_with_its_parts(commit: Commit, text: str) -> None:
    assert text in describe_commit(commit)
