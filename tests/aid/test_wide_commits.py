"""The cost of a document does not grow with the number of documents in its commit.

Counted in statements and rows of the store, and in bytes that the engine holds, never in seconds: `./dev bench engine`
measures time. Commits of 10 documents are compared with commits of 1,000.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import headwater
from headwater import Cell, Piece, cell
from headwater.clock import VirtualClock
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.engine import DEFAULT_LIMITS, Engine, Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.verdict import Accepted

FEW, MANY = 10, 1_000
COMMITS = DEFAULT_LIMITS.snapshot_patches - 3  # as in the report: 13, before the documents have snapshots
FLAT = 1.5


class WideSpace:
    """A space in memory, with one session whose commits each write the same documents."""

    def __init__(self, documents: int, limits: Limits = DEFAULT_LIMITS) -> None:
        self.documents = documents
        self.store = SqliteStore(":memory:")
        self.engine = Engine(self.store, clock=VirtualClock(), limits=limits)
        self.engine.open_session("s")
        self.sent = 0

    def commit(self) -> None:
        self.sent += 1
        value = {"n": self.sent, "text": "x" * 10}
        operations = [Operation(DocKey("space", f"d{n}"), (replace((), value),)) for n in range(self.documents)]
        (verdict,) = self.engine.submit("s", Commit(self.sent, tuple(operations)))
        assert isinstance(verdict, Accepted)

    def count_statements(self, commits: int) -> float:
        """Statements for each document of the next commits."""
        before = self.store.visited.statements
        for _ in range(commits):
            self.commit()
        return (self.store.visited.statements - before) / (commits * self.documents)


def test_statements_per_document_do_not_grow_with_the_documents_of_a_commit() -> None:
    few, many = WideSpace(FEW), WideSpace(MANY)
    few.commit()
    many.commit()
    statements = {space.documents: space.count_statements(COMMITS) for space in (few, many)}
    assert statements[MANY] <= FLAT * statements[FEW]


def test_document_of_a_wide_commit_is_charged_its_own_patches() -> None:
    few, many = WideSpace(FEW), WideSpace(MANY)
    for _ in range(COMMITS):
        few.commit()
        many.commit()
    assert many.engine.bytes_held / MANY <= FLAT * few.engine.bytes_held / FEW


def test_documents_of_wide_commits_are_rebuilt_together() -> None:
    rows = {}
    for documents in (FEW, MANY):
        space = WideSpace(documents, Limits(outline_bytes=1))  # too few to remember more than one commit of the log
        for _ in range(COMMITS):
            space.commit()
        space.engine.drop_caches()
        before = space.store.visited.bytes
        space.commit()  # reads each earlier commit of the log once, however many documents it rebuilds
        rows[documents] = (space.store.visited.bytes - before) / documents
    assert rows[MANY] <= FLAT * rows[FEW]


class Page(Piece, name="aid.Page"):
    visits: Cell[int] = cell(default=0)


@pytest.mark.parametrize("reads", [False, True], ids=["writes", "reads and writes"])
def test_calls_of_a_transaction_over_many_pieces_grow_with_the_pieces(tmp_path: Path, reads: bool) -> None:
    """In all threads, from the call of `transact` until it is durable, on pieces of which the program has handles."""

    async def spent(pieces: int) -> float:
        async with headwater.open(tmp_path / f"{pieces}") as runtime:
            space = runtime.space("s", user="ann")
            pages = [space.piece(Page, f"p{number}") for number in range(pieces)]

            def visit() -> None:
                for page in pages:
                    page.visits.set(page.visits.get() + 1 if reads else 1)

            calls = 0

            def count(frame: FrameType, event: str, argument: object) -> None:
                nonlocal calls
                calls += event == "call"

            threading.setprofile(count)
            sys.setprofile(count)
            try:
                await space.transact(visit)
                await runtime.durable()
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
            assert await pages[-1].visits.pull() == 1
            return calls / pieces

    assert asyncio.run(spent(600)) <= FLAT * asyncio.run(spent(150))
