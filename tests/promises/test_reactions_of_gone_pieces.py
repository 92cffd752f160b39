"""A reaction of a piece that is gone brings nothing back, in any process. Its record is passed over, visibly."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headwater import Backoff, Cell, Piece, Runtime, Topic, cell, each, given, handler, reaction, topic
from headwater.testing import Simulation, simulated


class Line(Piece, name="gone.Line"):
    number: Cell[int] = given()
    packed: Cell[int] = cell(default=0)
    wanted: Topic[int] = topic()

    @handler
    def want(self) -> None:
        self.wanted.emit(self.number.get())

    @handler
    def done(self, number: int) -> None:
        self.packed.set(number)

    @reaction(on=wanted, then=done)
    async def pack(self, number: int) -> int:
        return await act(number)


class Order(Piece, name="gone.Order"):
    numbers: Cell[Mapping[str, int]] = cell(default={})
    paid: Cell[int] = cell(default=0)
    placed: Topic[int] = topic()

    @each(numbers)
    def lines(self, number: Cell[int]) -> Line:
        return Line(number=number)

    @handler
    def put(self, key: str, number: int) -> None:
        self.numbers.key(key).set(number)

    @handler
    def place(self, number: int) -> None:
        self.placed.emit(number)

    @handler
    def done(self, number: int) -> None:
        self.paid.set(number)

    @reaction(on=placed, then=done, max_retries=100, backoff=Backoff.fixed(base_ms=1_000), on_exhausted="block")
    async def charge(self, number: int) -> int:
        return await act(number)


class Outside:
    """The system outside that both reactions call."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.is_down = False
        self.calls = 0
        self.on_call: asyncio.Future[None] | None = None
        self.goes_on: asyncio.Future[None] | None = None


outside = Outside()


async def act(number: int) -> int:
    outside.calls += 1
    if outside.is_down:
        raise ConnectionError("the provider is down")
    if outside.on_call is not None and outside.goes_on is not None:
        outside.on_call.set_result(None)
        await outside.goes_on
    return number


async def outcomes(rt: Runtime) -> list[tuple[str, str, str]]:
    """The records that were passed over, as an operator lists them, and the last error of each."""
    found: list[tuple[str, str, str]] = []
    for name in [state.name for state in await rt.reactions.list(space="s")]:
        failures = await rt.reactions.failures(name)
        last = {(each.key, each.seq): each.message for each in failures.attempts}
        found += [(name, each.how, last[each.key, each.seq]) for each in failures.parked]
    return found


async def blocked(rt: Runtime) -> int:
    return sum(each.blocked for each in await rt.reactions.list(space="s"))


@simulated(seeds=10, faults=("delay",))
async def test_record_of_a_deleted_piece_is_passed_over(sim: Simulation) -> None:
    """With an even seed another process delivers, which never had the piece."""
    outside.reset()
    outside.is_down = True
    ann = sim.runtime("ann")
    space = ann.space("s")
    order = await space.open(Order, "o")
    await order.place.send(5)
    await sim.advance(seconds=3)
    assert outside.calls > 1
    if sim.seed % 2 == 0:
        ann.reactions.abandon()
        sim.runtime("bob").space("s")
        await sim.settle()
    await space.delete(order)
    outside.is_down = False
    before = outside.calls
    await sim.advance(seconds=40)
    await sim.settle()
    assert outside.calls == before
    assert (await space.find(Order)).items == ()
    [(name, how, message)] = await outcomes(ann)
    assert (name, how) == ("gone.Order.charge", "skipped")
    assert "the piece is gone" in message
    assert await blocked(ann) == 0
    again = await space.open(Order, "o")  # Its reactions work as before.
    await again.place.send(6)
    await sim.advance(seconds=40)
    await sim.settle()
    assert again.paid.get() == 6


@simulated(seeds=10, faults=("delay",))
async def test_record_of_a_piece_that_was_deleted_and_made_again_is_passed_over(sim: Simulation) -> None:
    """With an even seed another process delivers, which never had the piece. With seeds 2, 3, 6, 7 and so on the new
    piece is opened, with the others an event makes it.
    """
    outside.reset()
    outside.is_down = True
    ann = sim.runtime("ann")
    space = ann.space("s")
    order = await space.open(Order, "o")
    await order.place.send(5)
    await sim.advance(seconds=3)
    is_elsewhere = sim.seed % 2 == 0
    if is_elsewhere:
        ann.reactions.abandon()
    await space.delete(order)
    again = await space.open(Order, "o") if sim.seed % 4 > 1 else space.piece(Order, "o")
    await again.place.send(6)
    before = outside.calls
    outside.is_down = False
    if is_elsewhere:
        sim.runtime("bob").space("s")
    await sim.advance(seconds=60)
    await sim.settle()
    assert outside.calls == before + 1
    assert await again.paid.pull() == 6
    [(name, how, message)] = await outcomes(ann)
    assert (name, how) == ("gone.Order.charge", "skipped")
    assert "the piece is gone" in message
    assert await blocked(ann) == 0


@simulated(seeds=10, faults=("delay",))
async def test_result_for_a_piece_that_is_deleted_and_made_again_meanwhile_reaches_none(sim: Simulation) -> None:
    outside.reset()
    loop = asyncio.get_running_loop()
    outside.on_call, outside.goes_on = loop.create_future(), loop.create_future()
    ann = sim.runtime("ann")
    space = ann.space("s")
    order = await space.open(Order, "o")
    await order.place.send(5)
    await outside.on_call
    bob = sim.runtime("bob").space("s")
    if sim.seed % 2 == 0:
        await bob.delete(bob.piece(Order, "o"))
        again = await bob.open(Order, "o")
        outside.goes_on.set_result(None)
    else:  # The result is committed here before this runtime learns of the deletion.
        with sim.offline("ann"):
            outside.goes_on.set_result(None)
            await sim.advance(seconds=1)
            assert order.paid.get() == 5
            await bob.delete(bob.piece(Order, "o"))
            again = await bob.open(Order, "o")
    await sim.advance(seconds=40)
    await sim.settle()
    assert await again.paid.pull() == 0
    assert [name for name, _, _ in await outcomes(ann)] == ["gone.Order.charge"]
    assert await blocked(ann) == 0


@simulated(seeds=10, faults=("delay",))
async def test_records_of_a_piece_that_two_programs_make_at_once_are_delivered(sim: Simulation) -> None:
    """One of the two makes it. The records of the other follow from its handler, which ran again."""
    outside.reset()
    runtimes = [sim.runtime("ann"), sim.runtime("bob")]
    orders = [rt.space("s").piece(Order, "o") for rt in runtimes]
    await asyncio.gather(*[order.place.send(number) for number, order in enumerate(orders, 1)])
    await sim.advance(seconds=40)
    await sim.settle()
    assert outside.calls == 2
    assert await outcomes(runtimes[0]) == []
    assert await orders[0].paid.pull() in (1, 2)


@simulated(seeds=10, faults=("delay",))
async def test_record_of_a_row_of_a_piece_that_was_made_again_is_passed_over(sim: Simulation) -> None:
    outside.reset()
    ann = sim.runtime("ann")
    space = ann.space("s")
    order = await space.open(Order, "o")
    await order.put.send("a", 7)
    await sim.settle()
    ann.reactions.abandon()
    await (await order.lines.pull())["a"].want.send()
    await space.delete(order)
    again = await space.open(Order, "o")
    await again.put.send("a", 9)
    await (await again.lines.pull())["a"].want.send()
    sim.runtime("bob").space("s")
    await sim.advance(seconds=60)
    await sim.settle()
    assert await (await again.lines.pull())["a"].packed.pull() == 9
    assert outside.calls == 1
    assert [name for name, _, _ in await outcomes(ann)] == ["gone.Line.pack"]
    assert await blocked(ann) == 0


@simulated(seeds=10, faults=("delay",))
async def test_result_for_a_piece_that_is_deleted_meanwhile_makes_none(sim: Simulation) -> None:
    outside.reset()
    loop = asyncio.get_running_loop()
    outside.on_call, outside.goes_on = loop.create_future(), loop.create_future()
    ann = sim.runtime("ann")
    space = ann.space("s")
    order = await space.open(Order, "o")
    await order.place.send(5)
    await outside.on_call
    deleting = sim.runtime("bob").space("s")
    await deleting.delete(deleting.piece(Order, "o"))
    outside.goes_on.set_result(None)
    await sim.advance(seconds=40)
    await sim.settle()
    assert (await space.find(Order)).items == ()
    assert [name for name, _, _ in await outcomes(ann)] == ["gone.Order.charge"]
    assert await blocked(ann) == 0


@simulated(seeds=10, faults=("delay",))
async def test_record_of_a_row_that_left_is_passed_over(sim: Simulation) -> None:
    outside.reset()
    ann = sim.runtime("ann")
    space = ann.space("s")
    order = await space.open(Order, "o")
    await order.put.send("a", 7)
    await order.put.send("b", 8)
    await sim.settle()
    ann.reactions.abandon()
    lines = await order.lines.pull()
    for line in lines.values():
        await line.want.send()
    order.numbers.key("a").delete()
    await sim.settle()
    sim.runtime("bob").space("s")
    await sim.advance(seconds=60)
    await sim.settle()
    assert await lines["b"].packed.pull() == 8
    [(name, how, message)] = await outcomes(ann)
    assert (name, how) == ("gone.Line.pack", "skipped")
    assert "the piece is gone" in message
    assert await blocked(ann) == 0
