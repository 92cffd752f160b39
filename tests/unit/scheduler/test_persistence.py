"""What is told of a node's runs: each completed one, once, with its reads; never an attempt that was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater import Cell, Piece, cell, computed, effect, handler
from headwater.data.address import DocKey
from headwater.data.limits import ValueLimits
from headwater.protocol.commit import Commit
from headwater.protocol.messages import Transact
from headwater.protocol.observations import Observation, decode_about, decode_footprint
from headwater.replica.observation_queue import ObservationQueue
from headwater.runtime.api.runtime import Runtime
from headwater.scheduler.node import Node
from headwater.scheduler.run_reporter import RunReporter
from tests.scenario.pieces_kit import run


class Told(ObservationQueue):
    """What a session was told, in order, and kept."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        super().__init__()
        self.is_on = True
        self.runs: list[Observation] = []

    def ran(self, local_seq: int, *args: Any, **kwargs: Any) -> None:
        super().ran(local_seq, *args, **kwargs)
        self.runs.append(self._made[local_seq])

    def noted(self, *args: Any, **kwargs: Any) -> None:
        super().noted(*args, **kwargs)
        self.runs.append(self._noted[-1])

    def of(self, member: str) -> list[Observation]:
        """The runs of one member since the last time."""
        found = [each for each in self.runs if decode_about(each.about).node.member == member]
        self.runs = [each for each in self.runs if each not in found]
        return found

    def has_waiting(self) -> bool:
        return bool(self._made)


class Till(Piece, name="persistence.Till"):
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

    @handler
    def put(self, cents: int) -> None:
        self.cents.set(cents)


async def _till(rt: Runtime) -> tuple[Till, Told]:
    space = rt.space("s", user="ann")
    channel = rt.channel("s")
    assert channel is not None
    told = channel.driver.session.runs = Told()
    till = await space.open(Till, "t")
    await rt.settled()
    return till, told


def _node(rt: Runtime, id: str) -> Node:
    found = rt.core.scheduler.registry.get(id)
    assert found is not None
    return found


def test_each_completed_run_is_told_once_with_what_it_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with Runtime(tmp_path) as rt:
            till, told = await _till(rt)
            (first,) = told.of("sign")
            reads = decode_footprint(first.footprint, ValueLimits()).reads
            assert [read.doc.id for read in reads] == ["t:@", "t:other", "t:half", "t:sign"]
            assert first.local_seq
            (shown,) = told.of("show")
            assert not shown.local_seq
            assert len(shown.layers) == 1, "it stands on what sign wrote, which has no verdict yet"
            await till.put.send(9)
            await rt.settled()
            (again,) = told.of("sign")
            assert again.footprint is first.footprint
            assert again.about is first.about
            assert again.cause == 2
            await rt.durable()
            assert not told.has_waiting()

    run(story)


def test_a_run_that_changed_nothing_is_told_as_of_what_it_saw(tmp_path: Path) -> None:
    async def story() -> None:
        async with Runtime(tmp_path) as rt:
            till, told = await _till(rt)
            await rt.durable()
            told.of("half")
            await till.put.send(4)
            await rt.settled()
            (same,) = told.of("half")
            assert (same.local_seq, same.failed) == (0, "")
            assert same.seq <= rt.space("s").seq

    run(story)


def test_a_failure_is_told_and_is_another_for_another_message(tmp_path: Path) -> None:
    async def story() -> None:
        async with Runtime(tmp_path) as rt:
            till, told = await _till(rt)
            rt.on_error(lambda _: None)
            look = till.odd.sink(lambda _: None)
            await rt.settled()
            (failed,) = told.of("odd")
            assert failed.failed
            assert not failed.local_seq
            await till.put.send(4)
            await rt.settled()
            (well,) = told.of("odd")
            assert not well.failed
            look.close()

    run(story)


def test_what_nobody_can_compare_is_told_without_a_fingerprint(tmp_path: Path) -> None:
    async def story() -> None:
        async with Runtime(tmp_path) as rt:
            _, told = await _till(rt)
            sign, show = _node(rt, "s/t:sign"), told.of("show")[0]
            assert decode_about(show.about).fingerprint
            reporter = sign.reporter
            assert isinstance(reporter, RunReporter)
            told.runs.clear()
            sign.cleanup = lambda: None
            reporter.report_run(sign, None, None, None, 0)
            sign.cleanup = None
            reporter.report_run(sign, None, None, None, 0)
            assert [bool(decode_about(each.about).fingerprint) for each in told.runs] == [False, True]
            assert decode_about(told.runs[0].about).node == decode_about(told.runs[1].about).node

    run(story)


def test_a_rejected_commit_is_not_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with Runtime(tmp_path) as rt:
            _, told = await _till(rt)
            sign = _node(rt, "s/t:sign")
            assert sign.reporter is not None
            told.ran(1_000, b"", b"")
            sign.reporter.rejected(1_000)
            frame = Transact((Commit(1_000),))
            assert told.with_frame(frame, again=True) == frame
            assert sign.outputs[0].key == DocKey("space", "t:sign")

    run(story)
