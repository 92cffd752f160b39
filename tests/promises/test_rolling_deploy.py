"""A rolling deploy: which of two versions of a class runs a piece, and that a restart of the other one changes nothing.

The author says which version is newer. Without a word of the author, the first one runs the piece until no process of
it is connected.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import (
    AuthoringError,
    Cell,
    HeadwaterError,
    Piece,
    Runtime,
    UpstreamFailedError,
    cell,
    computed,
    handler,
)
from headwater.testing import Simulation, simulated


class First(Piece, name="deploy.Cart", version=1):
    numbers: Cell[tuple[int, ...]] = cell(default=())

    @computed
    def total(self) -> int:
        return sum(self.numbers.get())

    @handler
    def add(self, n: int) -> None:
        self.numbers.push(n)


class Second(Piece, name="deploy.Cart", version=2):
    numbers: Cell[tuple[int, ...]] = cell(default=())

    @computed
    def total(self) -> int:
        return sum(self.numbers.get()) * 100

    @handler
    def add(self, n: int) -> None:
        self.numbers.push(n)


class Unsaid(Piece, name="deploy.Cart"):
    numbers: Cell[tuple[int, ...]] = cell(default=())

    @computed
    def total(self) -> int:
        return sum(self.numbers.get())


class SameCode(Piece, name="deploy.Cart", version=3):
    """The derived member of `Second`, in a later version."""

    numbers: Cell[tuple[int, ...]] = cell(default=())

    @computed
    def total(self) -> int:
        return sum(self.numbers.get()) * 100


async def _open(rt: Runtime, cls: type[Piece], name: str = "c") -> Any:
    return await rt.space("s").open(cls, name)


# ---- the author says which version is newer ----------------------------------------------------------------


@simulated(seeds=5, faults=("delay", "drop"))
async def test_older_version_that_restarts_does_not_lock_the_newer_one_out(sim: Simulation) -> None:
    old = await _open(sim.runtime("old"), First)
    await old.add.send(1)
    new = await _open(sim.runtime("new"), Second)
    assert await new.total.pull() == 100
    for _ in range(3):
        await sim.crash("old")
        with pytest.raises(AuthoringError, match="run by version 2 of its class, and this program has version 1"):
            await _open(sim.runtime("old"), First)
        await new.add.send(1)
    assert await new.total.pull() == 400
    await sim.settle()
    assert [str(failure.error) for failure in sim.failures() if "'new'" in str(failure.error)] == []
    assert await sim.runtime("reader").cell("s", "c:total", int).pull() == 400


@simulated(seeds=5, faults=("delay", "drop"))
async def test_older_version_that_runs_stops_and_goes_on_handling_events(sim: Simulation) -> None:
    old = await _open(sim.runtime("old"), First)
    await old.add.send(1)
    assert await old.total.pull() == 1
    new = await _open(sim.runtime("new"), Second)
    await sim.settle()
    await old.add.send(2)
    await sim.settle()
    assert await new.total.pull() == 300
    with pytest.raises(UpstreamFailedError, match="newer version"):
        await old.total.pull()


@simulated(seeds=3)
async def test_older_version_never_takes_over_when_the_newer_one_is_gone(sim: Simulation) -> None:
    new = await _open(sim.runtime("new"), Second)
    await new.add.send(1)
    await sim.crash("new")
    await sim.advance(seconds=3_600)
    with pytest.raises(AuthoringError, match="version 2"):
        await _open(sim.runtime("old"), First)
    again = await _open(sim.runtime("new"), Second)
    assert await again.total.pull() == 100


@simulated(seeds=3)
async def test_newer_version_takes_over_while_the_older_one_runs_other_pieces(sim: Simulation) -> None:
    olds = [await _open(sim.runtime("old"), First, name) for name in ("a", "b")]
    for old in olds:
        await old.add.send(1)
    new = await _open(sim.runtime("new"), Second, "a")
    await sim.settle()
    assert await new.total.pull() == 100
    await olds[1].add.send(1)
    assert await olds[1].total.pull() == 2  # No newer version has opened it yet.
    await sim.crash("old")
    assert await (await _open(sim.runtime("old"), First, "b")).total.pull() == 2
    with pytest.raises(AuthoringError, match="version 2"):
        await _open(sim.runtime("old"), First, "a")


def test_version_counts_over_restarts_of_one_program(tmp_path: Path) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            await (await _open(rt, First)).add.send(1)
        async with headwater.open(tmp_path) as rt:
            assert await (await _open(rt, Second)).total.pull() == 100
        for older in (First, Unsaid):
            async with headwater.open(tmp_path) as rt:
                with pytest.raises(AuthoringError, match=r"write class \w+\(Piece, version=3\)"):
                    await _open(rt, older)
        async with headwater.open(tmp_path) as rt:
            assert await (await _open(rt, Second)).total.pull() == 100

    headwater.run(main)


def test_higher_version_of_equal_code_is_stored_and_runs_nothing_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            cart = await _open(rt, Second)
            await cart.add.send(1)
            assert await cart.total.pull() == 100
        async with headwater.open(tmp_path) as rt:  # The piece sleeps, and its record is read all the same.
            assert await (await _open(rt, SameCode)).total.pull() == 100
            assert [node.runs for node in rt.graph().nodes if node.id == "s/c:total"] == [0]
        async with headwater.open(tmp_path) as rt:
            with pytest.raises(AuthoringError, match="version 3"):
                await _open(rt, Second)

    headwater.run(main)


def test_class_without_a_version_gives_way_to_any_version(tmp_path: Path) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            await _open(rt, Unsaid)
        async with headwater.open(tmp_path) as rt:
            await _open(rt, First)
        async with headwater.open(tmp_path) as rt:
            with pytest.raises(AuthoringError, match="version 1 of its class, and this program has a class without"):
                await _open(rt, Unsaid)

    headwater.run(main)


def _tally(version: int, factor: int) -> Any:
    class Tally(Piece, name="deploy.Tally", **({"version": version} if version else {})):
        n: Cell[int] = cell(default=1)
        kept: Cell[int] = cell(default=0)
        out: Cell[int] = cell(default=0)

        @computed
        def total(self) -> int:
            return self.n.get() * factor

        @computed(writes=(out,))
        def writer(self) -> int:
            self.out.set(self.n.get() * factor)
            return 0

        @handler
        def keep(self) -> None:
            self.kept.set(self.total.get())

        @handler
        def raise_n(self) -> None:
            self.n.increment(1)

    return Tally


@pytest.mark.parametrize("version", [0, 1])
def test_older_version_that_only_names_a_piece_derives_nothing(version: int) -> None:
    @simulated(seeds=3, faults=("delay",))
    async def story(sim: Simulation) -> None:
        old_class, new_class = _tally(version, 1), _tally(2, 100)
        new = await _open(sim.runtime("new"), new_class)
        assert (await new.out.pull(), await new.total.pull()) == (100, 100)
        await sim.settle()
        old = sim.runtime("old").space("s").piece(old_class, "c")
        for wrong in (old.total.pull, old.out.pull, old.keep.send):
            with pytest.raises(HeadwaterError, match=r"newer version of its class \(version 2, this is"):
                await wrong()
        shown: list[int] = []
        sink = old.total.sink(shown.append)
        await old.raise_n.send()  # It reads nothing that is computed.
        await sim.settle()
        sink.close()
        assert shown == []
        assert (await new.out.pull(), await new.total.pull()) == (200, 200)
        await sim.settle()
        reader = sim.runtime("reader")
        named = ("n", "out", "total", "kept")
        found = [await reader.cell("s", f"c:{name}", int, default=0).pull() for name in named]
        assert found == [2, 200, 200, 0]

    story()


@simulated(seeds=5, faults=("delay",))
async def test_version_that_is_only_named_stops_deriving_when_a_newer_one_opens_the_piece(sim: Simulation) -> None:
    old = sim.runtime("old").space("s").piece(_tally(1, 1), "c")
    shown: list[int] = []
    old.total.sink(shown.append)
    assert (await old.out.pull(), await old.total.pull()) == (1, 1)
    new = await _open(sim.runtime("new"), _tally(2, 100))
    await sim.settle()
    await old.raise_n.send()
    await sim.settle()
    assert (await new.out.pull(), await new.total.pull()) == (200, 200)
    reader = sim.runtime("reader")
    assert [await reader.cell("s", f"c:{name}", int).pull() for name in ("out", "total")] == [200, 200]
    assert 2 not in shown
    with pytest.raises(UpstreamFailedError, match="newer version"):
        await old.total.pull()


@pytest.mark.parametrize("version", ["2", 0, -1, 1.5, True, 2**63, (1, 2)])
def test_version_is_a_positive_integer(version: Any) -> None:
    with pytest.raises(AuthoringError, match="write version=1"):

        class Wrong(Piece, version=version):
            pass


# ---- the author says nothing -------------------------------------------------------------------------------


class Other(Piece, name="deploy.Cart"):
    """Other code than that of `Unsaid`."""

    numbers: Cell[tuple[int, ...]] = cell(default=())

    @computed
    def total(self) -> int:
        return sum(self.numbers.get()) * 100

    @handler
    def add(self, n: int) -> None:
        self.numbers.push(n)


REFUSED = "connected run other code of its class"


@simulated(seeds=5, faults=("delay",))
async def test_other_code_that_restarts_does_not_lock_the_first_one_out(sim: Simulation) -> None:
    first = await _open(sim.runtime("first"), Other)
    await first.add.send(1)
    await sim.settle()
    for _ in range(3):
        with pytest.raises(AuthoringError, match=REFUSED):
            await _open(sim.runtime("second"), Unsaid)
        await first.add.send(1)
        await sim.crash("second")
    assert await first.total.pull() == 400
    assert [each.error for each in sim.failures() if isinstance(each.error, AuthoringError)] == []


@simulated(seeds=5, faults=("delay",))
async def test_other_code_takes_over_when_the_last_process_of_the_first_was_killed(sim: Simulation) -> None:
    for user in ("one", "two"):
        await (await _open(sim.runtime(user), Other)).add.send(1)
    with pytest.raises(AuthoringError, match=r"write class Unsaid\(Piece, version=1\), which takes over"):
        await _open(sim.runtime("new"), Unsaid)
    await sim.crash("one")
    await sim.settle()
    with pytest.raises(AuthoringError, match=REFUSED):
        await _open(sim.runtime("new"), Unsaid)
    await sim.crash("two")
    await sim.settle()
    new = await _open(sim.runtime("new"), Unsaid)
    assert await new.total.pull() == 2
    with pytest.raises(AuthoringError, match=REFUSED):
        await _open(sim.runtime("one"), Other)


@simulated(seeds=5, faults=("delay",))
async def test_other_code_takes_over_when_the_first_has_closed(sim: Simulation) -> None:
    await (await _open(sim.runtime("old"), Other)).add.send(1)
    with pytest.raises(AuthoringError, match=REFUSED):
        await _open(sim.runtime("new"), Unsaid)
    await sim.runtime("old").close()
    await sim.advance(seconds=1)
    assert await (await _open(sim.runtime("new"), Unsaid)).total.pull() == 1


@simulated(seeds=5, faults=("delay",))
async def test_version_takes_over_from_code_without_one(sim: Simulation) -> None:
    old = await _open(sim.runtime("old"), Other)
    await old.add.send(1)
    new = await _open(sim.runtime("new"), First)
    await sim.settle()
    assert await new.total.pull() == 1
    await sim.crash("old")
    with pytest.raises(AuthoringError, match="version 1"):
        await _open(sim.runtime("old"), Other)


@simulated(seeds=5, faults=("delay",))
async def test_process_that_connects_again_keeps_other_code_away(sim: Simulation) -> None:
    first = await _open(sim.runtime("first"), Other)
    await first.add.send(1)
    with sim.offline("first"):
        await sim.advance(seconds=5)
    await sim.settle()
    await sim.crash("server")
    await sim.settle()
    with pytest.raises(AuthoringError, match=REFUSED):
        await _open(sim.runtime("second"), Unsaid)
    assert await first.total.pull() == 100


@simulated(seeds=5, faults=("delay",))
async def test_process_that_was_replaced_while_it_was_offline_stops(sim: Simulation) -> None:
    first = await _open(sim.runtime("first"), Other)
    await first.add.send(1)
    await sim.settle()
    with sim.offline("first"):
        await sim.crash("server")
        await sim.advance(seconds=5)
        second = await _open(sim.runtime("second"), Unsaid)
        assert await second.total.pull() == 1
    await sim.settle()
    with pytest.raises(UpstreamFailedError, match=REFUSED):
        await first.total.pull()
    with pytest.raises(AuthoringError, match=REFUSED):
        await _open(sim.runtime("first"), Other, "another")
    assert await second.total.pull() == 1


@simulated(seeds=3, faults=("delay",))
async def test_program_alone_replaces_its_own_code(sim: Simulation) -> None:
    rt = sim.runtime("ann")
    (await _open(rt, Unsaid)).numbers.push(1)
    assert await (await _open(rt, Other)).total.pull() == 100


@simulated(seeds=3, faults=("delay",))
async def test_pieces_of_many_programs_with_equal_code_open_together(sim: Simulation) -> None:
    carts = await asyncio.gather(
        *[_open(sim.runtime(user), Other, str(n)) for user in ("a", "b", "c") for n in range(5)]
    )
    await carts[0].add.send(1)
    await sim.settle()
    assert [await carts[n].total.pull() for n in (0, 5, 10)] == [100, 100, 100]
    assert sim.failures() == []


@simulated(seeds=3, faults=("delay",))
async def test_other_code_of_an_equal_version_that_only_names_a_piece_derives_nothing(sim: Simulation) -> None:
    first_class, second_class = _tally(0, 1), _tally(0, 100)
    first = await _open(sim.runtime("first"), first_class)
    assert (await first.out.pull(), await first.total.pull()) == (1, 1)
    second = sim.runtime("second").space("s").piece(second_class, "c")
    for wrong in (second.total.pull, second.out.pull, second.keep.send):
        with pytest.raises(HeadwaterError, match=REFUSED):
            await wrong()
    shown: list[int] = []
    second.total.sink(shown.append)
    await second.raise_n.send()  # It reads nothing that is computed.
    await sim.settle()
    assert (await first.out.pull(), await first.total.pull(), shown) == (2, 2, [])
    await sim.crash("first")
    await sim.advance(seconds=15)
    assert (await second.out.pull(), await second.total.pull(), shown) == (200, 200, [200])
    with pytest.raises(AuthoringError, match=REFUSED):
        await _open(sim.runtime("first"), first_class)


@simulated(seeds=3, faults=("delay",))
async def test_other_code_that_was_refused_computes_the_piece_when_it_may_open_it(sim: Simulation) -> None:
    await _open(sim.runtime("first"), Other)
    second = sim.runtime("second").space("s").piece(Unsaid, "c")
    with pytest.raises(HeadwaterError, match=REFUSED):
        await second.total.pull()
    await sim.crash("first")
    await sim.settle()
    await _open(sim.runtime("second"), Unsaid)
    assert await second.total.pull() == 0


@simulated(seeds=3, faults=("delay",))
async def test_program_that_only_names_a_piece_keeps_other_code_away(sim: Simulation) -> None:
    await (await _open(sim.runtime("maker"), Other)).add.send(1)
    await sim.crash("maker")
    named = sim.runtime("first").space("s").piece(Other, "c")
    assert await named.total.pull() == 100
    with pytest.raises(AuthoringError, match=REFUSED):
        await _open(sim.runtime("second"), Unsaid)
    assert await named.total.pull() == 100


@simulated(seeds=3, faults=("delay",))
async def test_higher_version_that_only_names_a_piece_takes_it_over(sim: Simulation) -> None:
    old = await _open(sim.runtime("old"), _tally(1, 1))
    assert (await old.out.pull(), await old.total.pull()) == (1, 1)
    shown: list[int] = []
    old.total.sink(shown.append)
    await sim.settle()
    new = sim.runtime("new").space("s").piece(_tally(2, 100), "c")
    assert (await new.out.pull(), await new.total.pull()) == (100, 100)
    await sim.settle()
    await old.raise_n.send()
    await sim.settle()
    assert (await new.out.pull(), await new.total.pull()) == (200, 200)
    assert 2 not in shown
    with pytest.raises(HeadwaterError, match="newer version"):
        await old.total.pull()
    with pytest.raises(AuthoringError, match="run by version 2 of its class"):
        await _open(sim.runtime("another"), _tally(1, 1))
