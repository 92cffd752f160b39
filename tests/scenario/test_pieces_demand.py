"""Demand, order and materializers, told with pieces: what runs, what does not, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from headwater import (
    Cell,
    Input,
    Json,
    Piece,
    cell,
    computed,
    each,
    effect,
    given,
    handler,
    link,
    materializer,
)
from headwater.clock import VirtualClock
from headwater.runtime import Runtime
from tests.scenario.pieces_kit import Ranned, alone, run

RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


class Step(Piece):
    """One link of a chain: it adds one to what it is given."""

    before: Input[int] = given()

    @computed
    def after(self) -> int:
        RAN.append("step")
        return self.before.get() + 1


class Chain(Piece):
    start: Cell[int] = cell(default=0)
    steps: Cell[Mapping[str, int]] = cell(default={})

    @each(steps)
    def links(self, step: Input[int]) -> Step:
        return Step(before=self.start)


def test_three_thousand_children_that_nobody_looks_at_never_run() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            chain = await rt.space("s").open(Chain, "c")
            chain.steps.set({f"k{n}": n for n in range(3_000)})
            await rt.idle()
            for n in range(5):
                chain.start.set(n)
                await rt.idle()
            assert RAN == []
            assert await chain.links.get()["k7"].after.pull() == 5
            assert RAN == ["step"]

    run(work)


class Levels(Piece):
    n: Cell[int] = cell(default=1)

    @computed
    def low(self) -> int:
        RAN.append("low")
        return self.n.get() // 10

    @computed
    def middle(self) -> int:
        RAN.append("middle")
        return self.low.get() + 1

    @computed
    def high(self) -> int:
        RAN.append("high")
        return self.middle.get() + 1


def test_looking_at_what_is_clean_runs_what_is_dirty_two_levels_above_it() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            levels = rt.space("s").piece(Levels, "l")
            assert await levels.high.pull() == 2
            RAN.clear()
            levels.n.set(25)  # Nobody looks: it is only marked.
            await rt.idle()
            assert RAN == []
            assert await levels.high.pull() == 4
            assert RAN == ["low", "middle", "high"]

    run(work)


def test_what_comes_out_as_it_was_runs_nothing_below_it() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            levels = rt.space("s").piece(Levels, "l")
            look = levels.high.sink(lambda _: None)
            await rt.idle()
            RAN.clear()
            levels.n.set(7)
            await rt.idle()
            assert RAN == ["low"]
            look.close()

    run(work)


class Clamp(Piece):
    wish: Cell[int] = cell(default=3)
    top: Cell[int] = cell(default=0)

    @computed(writes=(top,))
    def held(self) -> int:
        self.top.set(max(self.top.get(), self.wish.get()))
        return self.wish.get()


def test_who_writes_what_it_reads_does_not_loop_and_runs_for_another_s_write() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            runs = Ranned(rt)
            clamp = rt.space("s").piece(Clamp, "c")
            look = clamp.held.sink(lambda _: None)
            await rt.idle()
            assert (runs.taken().of("c:held"), clamp.top.get()) == (1, 3)
            clamp.top.set(1)
            await rt.idle()
            assert (runs.taken().of("c:held"), clamp.top.get()) == (1, 3)
            look.close()

    run(work)


class Shown(Piece):
    n: Cell[int] = cell(default=0)

    @effect
    def zulu(self) -> None:
        self.n.get()
        RAN.append("zulu")

    @effect
    def alpha(self) -> None:
        self.n.get()
        RAN.append("alpha")

    @effect
    def mike(self) -> None:
        self.n.get()
        RAN.append("mike")


def test_effects_run_as_they_were_declared_every_time() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            shown = await rt.space("s").open(Shown, "s")
            for n in range(1, 6):
                RAN.clear()
                shown.n.set(n)
                await rt.idle()
                assert RAN == ["zulu", "alpha", "mike"]

    run(work)


class Index(Piece):
    notes: Cell[Mapping[str, str]] = cell(default={})
    words: Cell[Mapping[str, int]] = cell(default={})

    @materializer(envelope=(words,))
    def counted(self) -> int:
        RAN.append("counted")
        found: dict[str, int] = {}
        for text in self.notes.get().values():
            for word in text.split():
                found[word] = found.get(word, 0) + 1
        for word in self.words.get():
            if word not in found:
                self.words.key(word).delete()
        for word, count in found.items():
            self.words.key(word).set(count)
        return len(found)

    @computed
    def common(self) -> str:
        RAN.append("common")
        words = self.words.get()
        return max(sorted(words), key=lambda word: words[word]) if words else ""

    @handler
    def write(self, key: str, text: str) -> str:
        before = self.common.get()
        self.notes.key(key).set(text)
        return before


def test_a_materializer_runs_though_nobody_looks_and_once_for_many_writes() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            index = await rt.space("s").open(Index, "i")
            await rt.idle()
            RAN.clear()
            for key in "abc":
                index.notes.key(key).set("tea milk tea")
            await rt.idle()
            assert RAN == ["counted"]
            assert dict(index.words.get()) == {"tea": 6, "milk": 3}

    run(work)


def test_whoever_reads_inside_an_envelope_comes_after_the_materializer() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            index = await rt.space("s").open(Index, "i")
            look = index.common.sink(lambda _: None)
            index.notes.key("a").set("tea")
            await rt.idle()
            RAN.clear()
            index.notes.key("b").set("milk milk")
            assert await index.common.pull() == "milk"
            assert RAN == ["counted", "common"]
            look.close()
            # So does a handler: what it acts on was written from what is there now.
            assert await index.write.send("c", "rice rice rice") == "milk"
            assert await index.write.send("d", "") == "rice"

    run(work)


class Ring(Piece):
    on: Cell[bool] = cell(default=False)
    n: Cell[int] = cell(default=0)

    @computed
    def one(self) -> int:
        return self.two.get() + 1 if self.on.get() else self.n.get()

    @computed
    def two(self) -> int:
        return self.one.get() + 1


async def passed(rt: Runtime, clock: VirtualClock, ms: int) -> None:
    """Let time pass, and what is due happen."""
    for _ in range(ms // 10):
        clock.advance(10_000)
        rt.wake()
        for _ in range(10):
            await asyncio.sleep(0)


def test_a_ring_lets_idle_go_at_its_third_exhaustion_and_holds_nobody_else_up() -> None:
    async def work() -> None:
        clock = VirtualClock(seed=3)
        async with alone(clock) as (rt, _):
            ring, levels = rt.space("s").piece(Ring, "r"), rt.space("s").piece(Levels, "l")
            looks = [ring.two.sink(lambda _: None), levels.high.sink(lambda _: None)]
            await rt.idle()
            runs = Ranned(rt)
            ring.on.set(True)
            idle = asyncio.create_task(rt.idle())
            await passed(rt, clock, 700)
            assert not idle.done()
            levels.n.set(95)
            await passed(rt, clock, 10)
            assert levels.high.get() == 11  # at once, while the ring is held back
            await passed(rt, clock, 190)
            assert idle.done()
            runs.taken()
            # From here on it is tried every two seconds at most, and comes to its end when it can.
            await passed(rt, clock, 8_000)
            assert 0 < runs.taken().of("r:one") <= 10 * 6
            ring.on.set(False)
            await passed(rt, clock, 2_500)
            assert (ring.one.get(), ring.two.get()) == (0, 1)
            # What came to its end is not held back: the next change is there at once.
            ring.n.set(7)
            await rt.idle()
            assert (ring.one.get(), ring.two.get()) == (7, 8)
            for look in looks:
                look.close()

    run(work)


class Pointing(Piece):
    at: Cell[Json] = cell(default=None)

    @computed
    def seen(self) -> str:
        RAN.append("seen")
        return str(self.at.get())


class Target(Piece):
    word: Cell[str | None] = cell(default=None)


def test_who_reads_through_a_link_is_woken_when_its_target_appears() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            space = rt.space("s")
            pointing, target = await space.open(Pointing, "p"), space.piece(Target, "t")
            got: list[str] = []
            pointing.at.set(link(target.word))  # type: ignore[arg-type]
            look = pointing.seen.sink(got.append)
            await rt.idle()
            before = len(RAN)
            target.word.set("here")
            await rt.idle()
            assert got[-1] == "here"
            assert len(RAN) == before + 1
            look.close()

    run(work)
