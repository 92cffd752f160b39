"""I8: what a piece derives says in its commit which code derived it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import headwater
from headwater import Cell, Piece, cell, computed, each, fold
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.pieces.declarations import ComputedMember
from headwater.protocol.commit import parts_of
from headwater.runtime.pieces.classes import described_members, fingerprints, forget_fingerprints
from headwater.runtime.pieces.hot_reload import renew
from tests.scenario.pieces_kit import run


class Sheet(Piece, name="said.Sheet"):
    rows: Cell[Mapping[str, int]] = cell(default={})

    @computed
    def count(self) -> int:
        return len(self.rows.get())

    @each(rows)
    def doubled(self, row: Cell[int]) -> int:
        return row.get() * 2

    total = fold(rows, start=0, add=lambda n, row: n + row, remove=lambda n, row: n - row)


def triple(self: Sheet) -> int:
    return len(self.rows.get()) * 3


def said(file: Path) -> dict[str, list[str]]:
    """Which fingerprints the derived commits of each node have, in the order of the log."""
    engine = Engine(SqliteStore(str(file)))
    found: dict[str, list[str]] = {}
    for entry in engine.changes().items:
        for provenance in [part.provenance for part in parts_of(entry.commit)]:
            if provenance.derived:
                found.setdefault(provenance.node, []).append(provenance.fingerprint)
    engine.close()
    return found


def test_what_is_derived_says_which_code_did_it_before_and_after_that_changed(tmp_path: Path) -> None:
    before = fingerprints((Sheet,))
    (fn,) = [member.fn for member in Sheet.__schema__.of(ComputedMember)]
    code = fn.__code__

    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            sheet = await rt.space("s").open(Sheet, "a", setup=lambda sheet: sheet.rows.set({"x": 1, "y": 2}))
            assert (await sheet.count.pull(), await sheet.total.pull()) == (2, 3)
            await sheet.doubled.pull()
            await rt.durable()  # A result that was never sent would be replaced by the next one.
            fn.__code__ = triple.__code__
            renew(rt.core, rt.pieces.instances(), rt.resume, frozenset({("said.Sheet", "count")}))
            assert await sheet.count.pull() == 6

    try:
        run(work)
        after = fingerprints((Sheet,))
    finally:
        fn.__code__ = code
    found = said(next(tmp_path.glob("s*")))
    at = "said.Sheet"
    assert found["s/a:count"] == [before[at, "count"], after[at, "count"]]
    assert before[at, "count"] != after[at, "count"]
    assert found["s/a:total"] == [before[at, "total"]]
    assert set(found["s/a:doubled/x row"]) == {before[at, "doubled"]}
    assert set(found["s/a:doubled"]) == {before[at, "keys of doubled"]}
    assert None not in before.values()


LOG: list[int] = []


class Logged(Piece, name="said.Logged"):
    n: Cell[int] = cell(default=1)

    @computed
    def logged(self) -> int:
        LOG.append(self.n.get())
        return self.n.get()

    @computed
    def count(self) -> int:
        return self.n.get()


def twice(self: Logged) -> int:
    return self.n.get() * 2


def test_other_members_keep_their_fingerprints_when_the_code_of_a_member_is_replaced() -> None:
    before = described_members(Logged)
    (fn,) = [member.fn for member in Logged.__schema__.of(ComputedMember) if member.name == "count"]
    code = fn.__code__
    try:
        LOG.append(1)
        fn.__code__ = twice.__code__
        forget_fingerprints({("said.Logged", "count")})
        after = described_members(Logged)
    finally:
        fn.__code__ = code
        LOG.clear()
    assert {name for name, found in after.items() if found != before[name]} == {"count"}
