"""Mirrors: a space knows which pieces of other spaces read its documents, also after a kill and for any history."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.engine import Directory, Engine
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.mirrors import Mirror, Mirrored, QueryElsewhere, QueryMirrors, ReadElsewhere
from headwater.protocol.verdict import Accepted
from headwater.runtime import LocalDirectory, Runtime
from tests.counts import scaled
from tests.invariants import test_i07_crashes as crashes
from tests.invariants import test_i07_elsewhere as elsewhere
from tests.invariants.i07_kit import Site, asked, embedded, killed, site, stories, written
from tests.scenario.pieces_kit import run
from tests.scenario.test_resume_elsewhere import (
    HERE,
    RATES,
    STOCK,
    Goods,
    Rates,
    first_start,
    impatient,
    open_view,
    sets,
    total_of,
)
from tests.scenario.wire_kit import Wire, refusing

pytestmark = pytest.mark.thorough

READ = {STOCK: ("s:n", "s:twice"), RATES: ("r:rate",)}
"""The documents of other spaces that the view of `first_start` reads."""


def _mirrors(folder: Path, space: str) -> dict[str, set[str]]:
    """The documents of a space that pieces of the first one are known to read.

    They are found by writing the documents in a copy of the space and asking which pieces that concerns.
    """
    with tempfile.TemporaryDirectory() as copies, Directory(killed(folder, Path(copies) / "data")) as directory:
        engine = directory.space(space)
        engine.open_session("probe")
        written = tuple(Operation(DocKey("space", id), (replace((), 9),)) for id in READ[space])
        (verdict,) = engine.submit("probe", Commit(1, written))
        assert isinstance(verdict, Accepted)
        answer = engine.query_observations(QueryMirrors(0, HERE, "", 1_000))
        assert isinstance(answer, Mirrored)
        found: dict[str, set[str]] = {}
        for piece, doc, _ in answer.marked:
            found.setdefault(piece, set()).add(doc.id)
        return found


class TestSaying:
    def test_each_space_that_is_read_is_told_once(self, tmp_path: Path) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            async with embedded(tmp_path) as data:
                wire = Wire(data)
                async with site(wire) as again:
                    await total_of(await open_view(again), again)
            assert sorted(space for space, message in wire.sent if isinstance(message, Mirror)) == [RATES, STOCK]

        run(story)

    def test_who_may_not_say_it_runs_each_time(self, tmp_path: Path) -> None:
        """Who may read there and not write: nobody would find the piece by what is written."""

        async def story() -> None:
            await first_start(tmp_path)
            for _ in range(2):
                async with impatient(tmp_path, refusing(Mirror)) as (again, _):
                    assert await total_of(await open_view(again), again) == 8
                    assert again.taken() == {f"{HERE}/v:plain", f"{HERE}/v:derived", f"{HERE}/v:priced"}

        run(story)


class TestMirrors:
    def test_a_mirror_points_back_at_the_piece_that_reads(self, tmp_path: Path) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            async with embedded(tmp_path) as data:
                assert _mirrors(tmp_path, STOCK).keys() == _mirrors(tmp_path, RATES).keys() == {"v"}
                assert set(_mirrors(tmp_path, STOCK)["v"]) >= {"s:n", "s:twice"}
                assert await _marked(data) == {}
                await written(data, sets(STOCK, Goods, "s", "n", 5))
                assert await _marked(data) == {"v": {STOCK}}
                await written(data, sets(RATES, Rates, "r", "rate", 5))
                assert await _marked(data) == {"v": {STOCK, RATES}}, "each cause for itself"
                async with site(data) as again:
                    await total_of(await open_view(again), again)
                assert await _marked(data) == {}

        run(story)

    def test_one_that_is_missing_is_written_when_the_piece_is_next_here(self, tmp_path: Path) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            async with embedded(tmp_path) as data:
                await asked(data, lambda engine: engine.query_observations(Mirror(0, HERE, "v", ())), STOCK)
                assert _mirrors(tmp_path, STOCK) == {}
                async with site(data) as again:
                    await total_of(await open_view(again), again)
                    assert again.taken() == set()
                assert set(_mirrors(tmp_path, STOCK)["v"]) >= {"s:n", "s:twice"}

        run(story)

    def test_a_space_that_is_read_no_more_loses_its_mirror(self, tmp_path: Path) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            async with embedded(tmp_path) as data:
                assert "r:rate" in _mirrors(tmp_path, RATES)["v"]
                async with site(data) as again:
                    view = await open_view(again)
                    await total_of(view, again)
                    await again.space(HERE).transact(view.own.set, 0)
                    await total_of(view, again)
                assert _mirrors(tmp_path, RATES) == {}
                assert _mirrors(tmp_path, STOCK).keys() == {"v"}

        run(story)

    def test_switched_off_nothing_is_said_elsewhere(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with embedded(tmp_path) as data:
                async with Runtime(data, observe=False) as rt:
                    one = Site(rt)
                    assert await total_of(await open_view(one), one) == 8
                assert _mirrors(tmp_path, STOCK) == {}

        run(story)


async def _marked(data: LocalDirectory) -> dict[str, set[str]]:
    """The pieces of the first space that read a document which was written since, and the spaces in which it was."""
    found: dict[str, set[str]] = {}
    for space in (STOCK, RATES):
        answer = await asked(data, lambda engine: engine.query_observations(QueryMirrors(0, HERE)), space)
        for piece, _, _ in answer.marked:
            found.setdefault(piece, set()).add(space)
    return found


# ---- random histories ------------------------------------------------------------------------------


async def _found_by_a_write(seed: int, folder: Path, rounds: int = 3) -> int:
    """Raises if a write in another space lets the view run and does not find it. Returns how often it did."""
    rng, found = Random(seed), 0
    async with embedded(folder) as data:
        async with site(data) as first:
            await elsewhere.open_view(first)
        for _ in range(rounds):
            change = elsewhere.random_change(rng)
            await written(data, change)
            marked = await _marked(data)
            assert marked.keys() <= {"v"}
            async with site(data) as again:
                await elsewhere.open_view(again, is_named=rng.random() < 0.5)
                ran = {name for name in again.taken() if name.startswith(f"{HERE}/v")}
            if change.space != HERE and ran:
                found += 1
                assert marked, "nobody would have found it by what was written"
    return found


@pytest.mark.random
def test_piece_is_found_by_every_write_elsewhere_that_lets_it_run(tmp_path: Path) -> None:
    seeds = scaled(100, least=3)
    assert stories(_found_by_a_write, tmp_path, range(seeds)) >= seeds


async def _check_mirrors(at: Path) -> None:
    """A write to any document that the piece reads in another space finds the piece there."""
    async with embedded(at) as data:
        answer = await asked(data, lambda engine: engine.query_observations(QueryElsewhere(0, "v")), HERE)
        assert isinstance(answer, ReadElsewhere)
        for name in (STOCK, RATES):
            read = {each.doc: each.seq for each in answer.docs if each.space == name}
            assert read, "it reads both"
            late, found = await asked(data, partial(_late, read=read), name), await asked(data, _found, name)
            assert late <= found, f"{name} does not find the piece by {sorted(late - found)}"
            found = await asked(data, partial(_written, docs=read), name)
            assert found >= read.keys(), f"{name} does not find the piece by {sorted(read.keys() - found)}"


def _late(engine: Engine, read: dict[DocKey, int]) -> set[DocKey]:
    return {doc for doc, seq in read.items() if engine.read(doc).seq > seq}


def _found(engine: Engine) -> set[DocKey]:
    """By which documents that were written since the piece is found."""
    answer = engine.query_observations(QueryMirrors(0, HERE))
    assert isinstance(answer, Mirrored)
    return {doc for piece, doc, _ in answer.marked if piece == "v"}


def _written(engine: Engine, docs: Iterable[DocKey]) -> set[DocKey]:
    engine.open_session("somebody")
    for number, doc in enumerate(docs, 1):
        (verdict,) = engine.submit("somebody", Commit(number, (Operation(doc, (replace((), None),)),)))
        assert isinstance(verdict, Accepted)
    return _found(engine)


@pytest.mark.random
def test_mirrors_are_whole_after_a_kill_at_any_statement(tmp_path: Path) -> None:
    seeds = scaled(20, least=3)
    history = partial(crashes.history, check=_check_mirrors)
    assert stories(history, tmp_path, range(seeds)) >= 4 * seeds
