"""Single properties of a restart that other scenarios show only in passing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headwater import Cell, Piece, cell, computed, effect, materializer
from headwater.data.address import DocKey
from headwater.engine import Directory
from headwater.protocol.observations import QueryReaders, QueryWrittenDocuments, Readers, WrittenDocuments
from tests.scenario.pieces_kit import run
from tests.scenario.resume_kit import SPACE, process


class Meter(Piece, name="sentences.Meter"):
    """Nothing demands anything by itself."""

    units: Cell[int] = cell(default=2)
    other: Cell[int] = cell(default=1)

    @computed
    def cost(self) -> int:
        return 3 * self.units.get()

    @computed
    def more(self) -> int:
        return self.cost.get() + self.other.get()

    @computed
    def aside(self) -> int:
        return self.other.get()


async def _looked(folder: Path) -> None:
    async with process(folder) as one:
        meter: Any = await one.open("m", Meter)
        assert await meter.more.pull() == 7
        assert await meter.aside.pull() == 1
        await one.settled()


async def _written(folder: Path, **cells: int) -> None:
    async with process(folder) as other:
        meter: Any = other.space.piece(Meter, "m")
        await other.space.transact(lambda: [getattr(meter, name).set(n) for name, n in cells.items()])


def test_sinks_and_pulls_are_fresh_although_nothing_runs(tmp_path: Path) -> None:
    """Whoever looks anew is told what is there; that is no reason for a node to run."""

    async def story() -> None:
        await _looked(tmp_path)
        async with process(tmp_path) as one:
            meter: Any = await one.open("m", Meter)
            told: list[int] = []
            meter.more.sink(told.append)
            await one.settled()
            assert (told, await meter.aside.pull()) == ([7], 1)
            assert one.taken() == set()
            await one.rt.space(SPACE).transact(lambda: meter.units.set(5))
            await one.settled()
            assert (told, one.taken()) == ([7, 16], {"m:cost", "m:more"})

    run(story)


def test_what_is_stale_runs_for_nobody_until_somebody_looks(tmp_path: Path) -> None:
    """Stale is a hint for finding work. Only demand makes a node run, and only what it stands on."""

    async def story() -> None:
        await _looked(tmp_path)
        await _written(tmp_path, units=5, other=9)
        async with process(tmp_path) as one:
            meter: Any = await one.open("m", Meter)
            await one.settled()
            assert one.taken() == set()
            assert await meter.cost.pull() == 15
            assert one.taken() == {"m:cost"}
            assert await meter.more.pull() == 24
            assert one.taken() == {"m:more"}

    run(story)


def test_idle_waits_for_a_piece_that_is_on_its_way_back(tmp_path: Path) -> None:
    """Nobody awaited anything of it: what is known of its nodes is there afterwards."""

    async def story() -> None:
        await _looked(tmp_path)
        await _written(tmp_path, units=4)
        async with process(tmp_path) as one:
            await one.rt.cell(SPACE, "anything", int, default=0).pull()  # The connection stands.
            meter: Any = one.space.piece(Meter, "m")
            told: list[int] = []
            meter.more.sink(told.append)
            assert not one.counts, "nothing is known of it yet"
            await one.rt.idle()
            assert one.counts.total() == 2, "what is known of both nodes is there"
            await one.rt.settled()  # Also for what the runs have to fetch.
            assert (told, one.taken()) == ([13], {"m:cost", "m:more"})

    run(story)


def _paced(throttle_ms: int) -> type[Piece]:
    class Paced(Piece, name="sentences.Paced"):
        n: Cell[int] = cell(default=2)

        @computed(throttle_ms=throttle_ms)
        def twice(self) -> int:
            return 2 * self.n.get()

    return Paced


def test_other_times_of_a_node_make_it_run_once(tmp_path: Path) -> None:
    """How its time is configured is stored with it: nobody knows what it would have left out."""

    async def story() -> None:
        for throttle_ms, ran in ((0, {"m:twice"}), (0, set()), (1, {"m:twice"}), (1, set())):
            async with process(tmp_path) as one:
                paced: Any = await one.open("m", _paced(throttle_ms))
                assert await paced.twice.pull() == 4
                assert one.taken() == ran
                assert one.counts["its debounce or throttle has changed"] == (throttle_ms == 1 and bool(ran))

    run(story)


def _posting(*, writes_both: bool) -> type[Piece]:
    """A materializer, and a computed that says what it writes besides its value."""

    class Posting(Piece, name="sentences.Posting"):
        units: Cell[int] = cell(default=2)
        board: Cell[Mapping[str, int]] = cell(default={})
        wall: Cell[int] = cell(default=0)
        one: Cell[int] = cell(default=0)
        two: Cell[int] = cell(default=0)

        @materializer(envelope=(board, wall))
        def posted(self) -> int:
            self.board.key("units").set(self.units.get())
            return 1

        @computed(writes=(one, two) if writes_both else (one,))
        def noted(self) -> int:
            return self.units.get()

        @effect
        def show(self) -> None:
            self.posted.get()

    return Posting


def test_another_declared_write_makes_a_member_run_once(tmp_path: Path) -> None:
    async def story() -> None:
        for both, ran in (
            (False, {"p:noted", "p:posted", "p:show"}),
            (False, set()),
            (True, {"p:noted"}),
            (True, set()),
        ):
            async with process(tmp_path) as one:
                posting: Any = await one.open("p", _posting(writes_both=both))
                await posting.noted.pull()
                await one.settled()
                assert one.taken() == ran

    run(story)


def test_what_a_materializer_may_write_is_nothing_that_it_reads(tmp_path: Path) -> None:
    """It is marked by what it reads. Its envelope marks nobody: a write there by others is no reason to run."""

    async def story() -> None:
        posting = _posting(writes_both=False)
        async with process(tmp_path) as one:
            await one.open("p", posting)
            assert "p:posted" in one.taken()
        with Directory(tmp_path) as directory:
            seq = directory.space(SPACE).last_seq
        for name, value, is_marked in (("wall", 9, False), ("units", 3, True)):
            async with process(tmp_path) as other:
                handle: Any = getattr(other.space.piece(posting, "p"), name)
                await other.space.transact(partial(handle.set, value))
            with Directory(tmp_path) as directory:
                engine = directory.space(SPACE)
                marks, readers = (
                    engine.query_observations(QueryWrittenDocuments(0, seq)),
                    engine.query_observations(QueryReaders(0, _doc(name))),
                )
                assert isinstance(marks, WrittenDocuments)
                assert isinstance(readers, Readers)
                assert ("p" in [each for mark in marks.marks for each in mark.pieces]) is is_marked
                assert readers.pieces == (("p",) if is_marked else ())
                seq = engine.last_seq
            async with process(tmp_path) as one:
                await one.open("p", posting)
                assert ("p:posted" in one.taken()) is is_marked
            with Directory(tmp_path) as directory:
                seq = directory.space(SPACE).last_seq

    run(story)


def _doc(name: str) -> DocKey:
    return DocKey("space", f"p:{name}")
