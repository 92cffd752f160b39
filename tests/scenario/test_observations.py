"""The engine's record of a node's last completed run: its reads, its outcome, and whether its code can be compared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from headwater import Cell, Piece, Runtime, cell, computed, effect, handler
from headwater.protocol.observations import Observations, Observed, QueryObservations
from headwater.runtime import LocalDirectory
from tests.scenario.pieces_kit import run

Steps = Callable[[Runtime, "Till"], Awaitable[object]]


class Till(Piece, name="observed.Till"):
    cents: Cell[int] = cell(default=5)
    other: Cell[int] = cell(default=0)

    @computed
    def half(self) -> int:
        return self.cents.get() // 2

    @computed
    def sign(self) -> str:
        return f"{self.half.get()}" if self.other.get() >= 0 else f"-{self.half.get()}"

    @computed
    def odd(self) -> int:
        if self.cents.get() % 2:
            raise ValueError("odd")
        return 0

    @effect
    def show(self) -> None:
        self.sign.get()

    @effect
    def tidy(self) -> Callable[[], object]:
        self.other.get()
        return lambda: None

    @handler
    def put(self, cents: int) -> None:
        self.cents.set(cents)


async def nothing(rt: Runtime, till: Till) -> None:
    """Only open it."""


async def observed(data: LocalDirectory, steps: Steps = nothing, id: str = "t") -> dict[str, Observed]:
    """Play some steps in a process; what the engine knows of each node when that process has ended."""
    async with Runtime(data, identity="one") as rt:
        rt.on_error(lambda _: None)
        till = await rt.space("s", user="ann").open(Till, id)
        await rt.settled()
        await steps(rt, till)
        await rt.settled()
    host = await data.host("s")
    answer = await asyncio.to_thread(host.call, lambda engine, hub: engine.query_observations(QueryObservations(1, id)))
    assert isinstance(answer, Observations)
    assert len({each.node for each in answer.observed}) == len(answer.observed), "one entry for each node"
    return {each.node.member: each for each in answer.observed}


def docs(node: Observed) -> set[str]:
    return {read.doc.id for read in node.reads}


def test_completed_run_is_stored_with_its_reads(tmp_path: Path) -> None:
    """The first attempt of `sign` stops because `half` has not run: it is not what is stored."""

    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            found = await observed(data)
            assert {"half", "sign", "show", "tidy"} <= found.keys()
            assert "odd" not in found, "nothing demanded it"
            assert docs(found["half"]) >= {"t:cents"}
            assert docs(found["sign"]) >= {"t:other", "t:half"}
            assert docs(found["show"]) >= {"t:sign"}
            for node in found.values():
                assert node.stale == ()
                assert node.failed == ""

    run(work)


def test_run_that_changed_nothing_is_stored_as_of_the_state_it_saw(tmp_path: Path) -> None:
    async def put_four(rt: Runtime, till: Till) -> None:
        await till.put.send(4)

    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            before = await observed(data)
            after = await observed(data, put_four)
            assert after["half"].changed_at == before["half"].changed_at
            assert after["half"].verified_at > before["half"].verified_at
            assert after["half"].stale == ()
            assert after["sign"].changed_at == before["sign"].changed_at

    run(work)


def test_run_that_changed_its_result_is_stored_with_the_seq_of_that_result(tmp_path: Path) -> None:
    async def put_nine(rt: Runtime, till: Till) -> None:
        await till.put.send(9)

    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            before = await observed(data)
            after = await observed(data, put_nine)
            for member in ("half", "sign"):
                assert after[member].changed_at > before[member].changed_at
                assert after[member].stale == ()
                assert docs(after[member]) == docs(before[member])

    run(work)


def test_nodes_of_all_pieces_of_a_class_have_the_same_fingerprints(tmp_path: Path) -> None:
    """A fingerprint is stored once, however many pieces there are."""

    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            one, other = await observed(data), await observed(data, id="another")
            assert one.keys() == other.keys()
            assert {name: each.fingerprint for name, each in one.items()} == {
                name: each.fingerprint for name, each in other.items()
            }
            assert one["half"].fingerprint != one["sign"].fingerprint

    run(work)


def test_failed_run_is_stored_as_failed_until_one_succeeds(tmp_path: Path) -> None:
    async def look(rt: Runtime, till: Till) -> None:
        till.odd.sink(lambda _: None)
        await rt.settled()

    async def put_four(rt: Runtime, till: Till) -> None:
        till.odd.sink(lambda _: None)
        await till.put.send(4)

    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            failed = (await observed(data, look))["odd"]
            assert failed.failed
            assert failed.changed_at == 0
            assert docs(failed) >= {"t:cents"}
            assert (await observed(data, put_four))["odd"].failed == ""

    run(work)


def test_node_that_left_something_to_clean_up_is_stored_without_a_fingerprint(tmp_path: Path) -> None:
    """Its cleanup is gone with the process, so that it has to run again."""

    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            found = await observed(data)
            assert found["show"].fingerprint
            assert not found["tidy"].fingerprint

    run(work)


def test_write_of_another_session_makes_exactly_its_readers_stale(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            await observed(data)
            async with Runtime(data, observe=False) as rt:
                rt.cell("s", "t:other", int).set(1)
            host = await data.host("s")
            answer = await asyncio.to_thread(
                host.call, lambda engine, hub: engine.query_observations(QueryObservations(1, "t"))
            )
            assert isinstance(answer, Observations)
            assert {each.node.member for each in answer.observed if each.stale} == {"sign", "tidy"}

    run(work)
