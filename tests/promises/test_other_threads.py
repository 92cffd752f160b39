"""Spaces, pieces and handles can be obtained on every thread; a handle is used on the runtime's thread only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import AuthoringError, Cell, Input, Piece, Runtime, cell, computed, each, given, handler


class Row(Piece):
    n: Input[int] = given()


class Cart(Piece):
    n: Cell[int] = cell(default=1)
    prices: Cell[Mapping[str, int]] = cell(default={})

    @computed
    def twice(self) -> int:
        return self.n.get() * 2

    @each(prices)
    def rows(self, n: Input[int]) -> Row:
        return Row(n=n)

    @handler
    def add(self, n: int) -> int:
        self.n.increment(n)
        return n


def _beside(tmp_path: Path, work: Callable[[Runtime], object]) -> None:
    """Call a function on another thread while a runtime is open."""

    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            await asyncio.to_thread(work, rt)

    headwater.run(main)


def test_space_and_piece_work_on_another_thread(tmp_path: Path) -> None:
    def work(rt: Runtime) -> None:
        cart = rt.space("shop", user="ann").piece(Cart, "ann")
        assert rt.call(cart.twice.pull) == 2
        assert rt.call(cart.add.send, 3) == 3
        assert rt.call(cart.twice.pull) == 8
        assert rt.space("shop", user="ann").piece(Cart, "ann") is cart

    _beside(tmp_path, work)


def test_use_of_a_handle_on_another_thread_is_refused_and_names_call(tmp_path: Path) -> None:
    def work(rt: Runtime) -> None:
        cart = rt.space("shop").piece(Cart, "ann")

        def watches() -> None:
            async def first() -> None:
                async for _ in cart.twice.watch():
                    break

            asyncio.run(first())

        def awaits(make: Callable[[], Coroutine[Any, Any, object]]) -> Callable[[], object]:
            async def wait() -> None:
                await make()

            return lambda: asyncio.run(wait())

        uses: list[Callable[[], object]] = [
            cart.n.get,
            lambda: cart.n.set(2),
            lambda: cart.n.increment(1),
            cart.n.exists,
            cart.prices.view,
            cart.twice.get,
            cart.rows.get,
            lambda: cart.twice.sink(print),
            lambda: cart.add.post(1),
            awaits(cart.twice.pull),
            awaits(lambda: cart.add.send(1)),
            awaits(lambda: rt.space("shop").open(Cart, "bob")),
            awaits(lambda: rt.space("shop").create(Cart, "bob")),
            awaits(lambda: rt.space("shop").find(Cart)),
            awaits(lambda: rt.space("shop").delete(cart)),
            awaits(lambda: rt.space("shop").transact(cart.n.get)),
            watches,
        ]
        for use in uses:
            with pytest.raises(AuthoringError, match=r"rt\.call\(fn\)"):
                use()
        assert rt.call(cart.n.pull) == 1

    _beside(tmp_path, work)


def test_waits_and_diagnostics_on_another_thread_are_refused_and_name_call(tmp_path: Path) -> None:
    def work(rt: Runtime) -> None:
        rt.call(rt.space("shop").piece(Cart, "ann").twice.pull)
        introspection = rt.introspection
        uses: list[Callable[[], object]] = [
            lambda: asyncio.run(rt.idle()),
            lambda: asyncio.run(rt.settled()),
            lambda: asyncio.run(rt.durable()),
            lambda: asyncio.run(rt.written()),
            lambda: asyncio.run(rt.until(lambda: True)),
            lambda: asyncio.run(rt.reactions.drained()),
            introspection.snapshot,
            introspection.dot,
            introspection.stats,
        ]
        for use in uses:
            with pytest.raises(AuthoringError, match=r"rt\.call\(fn\)"):
                use()
        rt.call(rt.idle)
        assert rt.call(introspection.snapshot).nodes

    _beside(tmp_path, work)


def test_close_on_another_thread_is_refused_before_anything_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            cart = await rt.space("shop").open(Cart, "ann")

            def closes() -> None:
                with pytest.raises(AuthoringError, match=r"rt\.call\(fn\)"):
                    asyncio.run(rt.close())

            await asyncio.to_thread(closes)
            assert await cart.add.send(3) == 3
            assert await cart.twice.pull() == 8
            assert rt.space("other").name == "other"

    headwater.run(main)


def test_threads_that_obtain_the_same_members_share_their_handles(tmp_path: Path) -> None:
    def work(rt: Runtime) -> None:
        begin = threading.Barrier(8)
        found: list[tuple[int, ...]] = []

        def look() -> None:
            begin.wait()
            cart = rt.space("shop").piece(Cart, "ann")
            found.append((id(cart), id(cart.twice), id(cart.rows), id(cart.n)))

        threads = [threading.Thread(target=look) for _ in range(8)]
        kept = rt.space("shop").piece(Cart, "ann")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [(id(kept), id(kept.twice), id(kept.rows), id(kept.n))] * 8

    _beside(tmp_path, work)


def test_space_of_a_closed_runtime_is_refused_on_another_thread(tmp_path: Path) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            pass
        with pytest.raises(AuthoringError, match="open another one"):
            await asyncio.to_thread(rt.space, "shop")

    headwater.run(main)
