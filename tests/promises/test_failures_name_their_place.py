"""A failure names the exception, the line and the cell; its traceback shows the author's frames only."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import (
    Cell,
    DirectoryInUseError,
    HandlerFailed,
    InvalidValueError,
    Model,
    Piece,
    Topic,
    UpstreamFailedError,
    cell,
    computed,
    handler,
    topic,
)
from headwater.testing import Simulation, simulated


class Line(Model):
    sku: str
    cents: int = 0


def divide(by: int) -> int:
    return 1 // by  # the line that fails


DIVIDES = divide.__code__.co_firstlineno + 1


class Wrong(Piece):
    n: Cell[int] = cell(default=0)
    own: Cell[int] = cell(default=0, scope="user")
    line: Cell[Line] = cell(default=Line(sku="tea"))
    prices: Cell[Mapping[str, int]] = cell(default={})
    seen: Cell[tuple[str, ...]] = cell(default=())
    placed: Topic[Line] = topic()

    @computed
    def inverse(self) -> int:
        return divide(self.n.get())

    @computed
    def above(self) -> int:
        return self.inverse.get() + 1

    @computed
    def text(self) -> int:
        return "one"  # type: ignore[return-value]

    @handler
    def sells(self, cents: int) -> None:
        self.n.set(cents)

    @handler
    def divides(self) -> int:
        return divide(0)

    @handler
    def reads(self) -> int:
        return self.above.get()

    @handler
    def returns(self) -> int:
        return "one"  # type: ignore[return-value]

    @handler
    def sets(self) -> None:
        self.n.set("one")  # type: ignore[arg-type]

    @handler
    def sets_own(self) -> None:
        self.own.set("one")  # type: ignore[arg-type]

    @handler
    def sets_field(self) -> None:
        self.line.at(lambda line: line.cents).set("one")  # type: ignore[arg-type]

    @handler
    def sets_key(self) -> None:
        self.prices.key("tea").set("one")  # type: ignore[arg-type]

    @handler
    def pushes(self) -> None:
        self.seen.push(1)  # type: ignore[arg-type]

    @handler
    def increments(self) -> None:
        self.n.increment("one")  # type: ignore[arg-type]

    @handler
    def emits(self) -> None:
        self.placed.emit("one")  # type: ignore[arg-type]


WHERE = rf"ZeroDivisionError: .* \({Path(__file__).name}, line {DIVIDES}, in divide\)"


async def _raised(kind: type[Exception], make: Callable[[], Awaitable[object]]) -> Any:
    with pytest.raises(kind) as raised:
        await make()
    return raised.value


@simulated(seeds=1, faults=())
async def test_failed_computed_names_the_exceptions_type_and_line(sim: Simulation) -> None:
    wrong = await sim.runtime("ann").space("s").open(Wrong, "p")
    for look in (wrong.inverse, wrong.above):
        with pytest.raises(UpstreamFailedError, match=WHERE) as raised:
            await look.pull()
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        with pytest.raises(UpstreamFailedError, match=WHERE):
            look.get()


@simulated(seeds=1, faults=())
async def test_failed_handler_names_the_exceptions_type_and_line(sim: Simulation) -> None:
    wrong = await sim.runtime("ann").space("s").open(Wrong, "p")
    for handle in (wrong.divides, wrong.reads):
        with pytest.raises(HandlerFailed, match=WHERE):
            await handle.send()


@simulated(seeds=1, faults=())
async def test_mismatch_names_the_cell(sim: Simulation) -> None:
    wrong = await sim.runtime("ann").space("s", user="ann").open(Wrong, "p")
    named: dict[str, tuple[Any, ...]] = {
        "p:n, at the root": (wrong.sets, wrong.increments),
        "p:own of user:ann, at the root": (wrong.sets_own,),
        "p:line, at /cents": (wrong.sets_field,),
        "p:prices, at /tea": (wrong.sets_key,),
        "p:seen, at the root": (wrong.pushes,),
        "p:placed, at the root": (wrong.emits,),
        "Wrong.returns, result: at the root": (wrong.returns,),
    }
    for where, handles in named.items():
        for handle in handles:
            error = await _raised(HandlerFailed, handle.send)
            assert isinstance(error.__cause__, InvalidValueError)
            assert f"{where}: expected" in str(error)
    assert "s/p:text, result: at the root: expected int" in str(await _raised(UpstreamFailedError, wrong.text.pull))
    with pytest.raises(InvalidValueError, match=r"^p:n, at the root: expected int"):
        wrong.n.set("one")  # type: ignore[arg-type]


def test_stored_value_of_another_type_names_the_cell(tmp_path: Path) -> None:
    class Text(Piece, name="promises.Retyped"):
        n: Cell[str] = cell(default="")

        @handler
        def write(self) -> None:
            self.n.set("one")

    class Number(Piece, name="promises.Retyped"):
        n: Cell[int] = cell(default=0)

    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            await rt.space("s").piece(Text, "p").write.send()
        async with headwater.open(tmp_path) as rt:
            number = await rt.space("s").open(Number, "p")
            with pytest.raises(InvalidValueError, match=r"^p:n, stored at the root: expected int"):
                number.n.get()

    headwater.run(main)


def _frames(error: BaseException | None) -> list[str]:
    """The modules of the frames that Python shows for an error and its causes."""
    found = []
    while error is not None:
        found += [str(frame.f_globals["__name__"]) for frame, _ in traceback.walk_tb(error.__traceback__)]
        error = error.__cause__
    return found


@simulated(seeds=1, faults=())
async def test_traceback_of_a_failure_shows_the_authors_frames_only(sim: Simulation) -> None:
    rt = sim.runtime("ann")
    told: list[BaseException] = []
    rt.on_error(told.append)
    space = rt.space("s")
    wrong = await space.open(Wrong, "p")

    async def transacts() -> None:
        await space.transact(divide, 0)

    async def opens() -> None:
        await space.open(Wrong, "")

    async def gets() -> None:
        wrong.above.get()

    looks = (wrong.inverse.pull, wrong.above.pull, wrong.text.pull, gets)
    sends = (wrong.divides.send, wrong.reads.send, wrong.returns.send, wrong.sets.send)
    for make in (*looks, *sends, transacts, opens):
        error = await _raised(Exception, make)
        assert set(_frames(error)) == {__name__}, make
        assert "<spot" not in "".join(traceback.format_exception(error))
    assert told
    assert {module for error in told for module in _frames(error)} == {__name__}


@simulated(seeds=1, faults=())
async def test_failure_after_a_change_names_the_address_that_changed(sim: Simulation) -> None:
    rt = sim.runtime("ann")
    told: list[BaseException] = []
    rt.on_error(told.append)
    wrong = await rt.space("s").open(Wrong, "p")
    wrong.n.set(1)
    sink = wrong.inverse.sink(lambda _: None)
    await sim.settle()
    told.clear()
    wrong.n.set(0)
    await sim.settle()
    sink.close()
    notes = [note for error in told for note in getattr(error, "__notes__", ())]
    assert [note for note in notes if note.startswith("because of")] == ["because of space:p:n"]
    raised = await _raised(UpstreamFailedError, wrong.inverse.pull)
    assert "<spot" not in "".join(traceback.format_exception(raised))


def test_refused_open_shows_the_authors_frames_only_under_plain_asyncio(tmp_path: Path) -> None:
    async def enter() -> None:
        async with headwater.open(tmp_path):
            pass

    async def main() -> None:
        async with headwater.open(tmp_path):
            for make in (enter, lambda: headwater.open(tmp_path)):
                error = await _raised(DirectoryInUseError, make)
                assert set(_frames(error)) == {__name__}

    asyncio.run(main())


def test_refused_calls_show_the_authors_frames_only_under_plain_asyncio() -> None:
    async def main() -> None:
        async with headwater.Runtime() as rt:
            space = rt.space("s")
            wrong: Any = await space.open(Wrong, "p")
            n, line, prices = wrong.n, wrong.line, wrong.prices

            def sets_attribute() -> None:
                wrong.n = 3

            calls: dict[str, Callable[[], Any]] = {
                "set": lambda: n.set("one"),
                "update": lambda: n.update(lambda by: divide(0)),
                "push": lambda: n.push(1),
                "add": lambda: n.add(1),
                "discard": lambda: n.discard(1),
                "increment": lambda: n.increment("one"),
                "key": lambda: prices.key(3),
                "at": lambda: line.at(lambda each: each.none),
                "at of a function that raises": lambda: line.at(lambda each: divide(0)),
                "until": lambda: rt.until(lambda: divide(0) == 1),
                "rt.call": lambda: rt.call(divide, 0),
                "rt.pull": lambda: rt.pull(3),  # type: ignore[arg-type]
                "send": lambda: wrong.sells.send("one"),
                "send without arguments": lambda: wrong.sells.send(),
                "post": lambda: wrong.sells.post("one"),
                "post_at": lambda: wrong.sells.post_at(0, "one"),
                "options": lambda: wrong.divides.options(retries=-1),
                "call of a handler": lambda: wrong.divides(),
                "emit": lambda: wrong.placed.emit(Line(sku="tea")),
                "truth": lambda: bool(n),
                "iteration": lambda: list(n),
                "comparison": lambda: n == 1,
                "attribute": sets_attribute,
                "rt.space": lambda: rt.space("Not A Name"),
                "space.cell": lambda: space.cell("x", list),
                "space.find": lambda: space.find(int),
                "space.delete": lambda: space.delete(3),  # type: ignore[arg-type]
                "space.piece": lambda: space.piece(int, "x"),  # type: ignore[type-var]
            }
            for what, call in calls.items():
                error: Exception | None = None
                try:
                    made = call()
                    if hasattr(made, "__await__"):
                        await made
                except Exception as raised:
                    error = raised
                assert error is not None, what
                assert set(_frames(error)) == {__name__}, what

    asyncio.run(main())


def test_defect_of_a_program_shows_the_authors_frames_only() -> None:
    async def main() -> None:
        async with headwater.Runtime() as rt:
            rt.space("s").cell("n", int, default="one")

    with pytest.raises(InvalidValueError) as raised:
        headwater.run(main)
    assert not [module for module in _frames(raised.value) if module.partition(".")[0] == "headwater"]
