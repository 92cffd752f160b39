"""`@reaction(otherwise=handler)`: the handler that hears that a reaction gave up gets the record and the reason."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import headwater
from headwater import AuthoringError, Backoff, Cell, Piece, Refused, Topic, cell, handler, reaction, topic
from tests.scenario.pieces_kit import run

WITHIN_S = 20
CALLS: list[str] = []


class Orders(Piece, name="promises.Orders"):
    paid: Cell[tuple[str, ...]] = cell(default=())
    failed: Cell[tuple[tuple[str, str], ...]] = cell(default=())
    placed: Topic[str] = topic()
    told: Topic[str] = topic()

    @handler
    def place(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.placed.emit(name)

    @handler
    def tell(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.told.emit(name)

    @handler
    def on_paid(self, name: str) -> None:
        self.paid.push(name)

    @handler
    def on_failed(self, name: str, reason: str) -> None:
        if name == "no":
            raise Refused("that one is not noted")
        self.failed.push((name, reason))

    @reaction(on=placed, then=on_paid, otherwise=on_failed, max_retries=1, backoff=Backoff.none())
    async def pay(self, name: str) -> str:
        CALLS.append(name)
        if name in ("bad", "no"):
            raise ConnectionError("no bank")
        return name

    @reaction(on=told, otherwise=on_failed, max_retries=1, backoff=Backoff.none())
    async def mail(self, name: str) -> None:
        CALLS.append(name)
        if name == "bad":
            raise Refused("no address")


async def _drained(rt: headwater.Runtime) -> None:
    async with asyncio.timeout(WITHIN_S):
        await rt.reactions.drained()
        await rt.settled()


def test_a_record_that_is_given_up_is_handed_to_the_handler_and_the_next_one_follows(tmp_path: Path) -> None:
    async def work() -> None:
        CALLS.clear()
        async with headwater.open(tmp_path) as rt:
            errors: list[BaseException] = []
            rt.on_error(errors.append)
            orders = await rt.space("s").open(Orders, "o")
            await orders.place.send(("one", "bad", "two"))
            await _drained(rt)
            assert orders.paid.get() == ("one", "two")
            assert orders.failed.get() == (("bad", "ConnectionError: no bank"),)
            assert CALLS == ["one", "bad", "bad", "two"]
            await orders.tell.send(("bad", "three"))
            await _drained(rt)
            assert orders.failed.get()[1:] == (("bad", "Refused: no address"),)
            assert CALLS[4:] == ["bad", "three"]
            assert errors == []
        async with headwater.open(tmp_path) as rt:  # Nothing is delivered again.
            orders = await rt.space("s").open(Orders, "o")
            await _drained(rt)
            assert len(CALLS) == 6
            assert len(await orders.failed.pull()) == 2

    run(work)


def test_a_record_that_is_given_up_frees_its_target_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            attempts: list[tuple[str, int]] = []
            rt.reactions.on_attempt(lambda attempt: attempts.append((attempt.how, attempt.attempt)))
            orders = await rt.space("s").open(Orders, "o")
            for name in ("bad", "good", "bad"):
                await orders.tell.send((name,))
                await _drained(rt)
            await orders.tell.send(("good", "bad"))
            await _drained(rt)
            assert attempts == [
                ("failed", 0),
                ("delivered", 0),
                ("failed", 0),
                ("delivered", 0),
                ("failed", 0),
            ]

    run(work)


def test_a_record_whose_handler_fails_as_well_is_left_to_an_operator_with_both_reasons(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            told: asyncio.Queue[BaseException] = asyncio.Queue()
            rt.on_error(told.put_nowait)
            orders = await rt.space("s").open(Orders, "o")
            await orders.place.send(("no",))
            async with asyncio.timeout(WITHIN_S):
                error = await told.get()
            assert "is blocked" in str(error)
            assert "`headwater reactions DIR SPACE failures promises.Orders.pay` lists its attempts" in str(error)
            assert "no bank (its otherwise handler: that one is not noted)" in str(error)

    run(work)


def test_a_wrong_handler_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(AuthoringError, match="takes the record and the reason"):

        class Narrow(Piece, name="promises.NarrowOtherwise"):
            placed: Topic[str] = topic()

            @handler
            def one(self, name: str) -> None: ...

            @reaction(on=placed, otherwise=one)  # type: ignore[arg-type]
            async def pay(self, name: str) -> None: ...

    with pytest.raises(AuthoringError, match="does not give up"):

        class Never(Piece, name="promises.NeverOtherwise"):
            placed: Topic[str] = topic()

            @handler
            def two(self, name: str, reason: str) -> None: ...

            @reaction(on=placed, otherwise=two, on_exhausted="never")
            async def pay(self, name: str) -> None: ...


def test_handler_that_does_not_take_the_result_is_refused_when_the_class_is_made() -> None:
    """It would fail after each attempt, and the reaction would be repeated for that."""
    with pytest.raises(AuthoringError, match=r"name a handler of this class that takes the result, as in def paid"):

        class Nothing(Piece, name="promises.NothingThen"):
            placed: Topic[str] = topic()

            @handler
            def paid(self) -> None: ...

            @reaction(on=placed, then=paid)  # type: ignore[arg-type]
            async def pay(self, name: str) -> str:
                return name

    with pytest.raises(AuthoringError, match=r"pay: its result is int, and 'paid', which gets it, takes str"):

        class Other(Piece, name="promises.OtherThen"):
            placed: Topic[str] = topic()

            @handler
            def paid(self, receipt: str) -> None: ...

            @reaction(on=placed, then=paid)  # type: ignore[arg-type]
            async def pay(self, name: str) -> int:
                return 1

    class Wider(Piece, name="promises.WiderThen"):
        placed: Topic[str] = topic()

        @handler
        def paid(self, price: float | None, note: str = "") -> None: ...

        @handler
        def counted(self, number: float) -> None: ...

        @reaction(on=placed, then=paid)
        async def pay(self, name: str) -> float:
            return 1.5

        @reaction(on=placed, then=counted)
        async def count(self, name: str) -> int:
            return 1
