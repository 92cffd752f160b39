"""Attacks on those who share a space: by a program that ends in the middle, and by answers that are too long."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headwater.clock import RealClock
from headwater.data.address import Link
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.sync.host import Host, ThreadHost
from headwater.replica.replica import Replica
from headwater.replica.session import Session
from headwater.runtime.channel.driver import Driver
from headwater.runtime.channel.loopback import Loopback
from headwater.runtime.channel.websocket import WebSocket, WebSocketLimits
from headwater.runtime.writing.retry import Writer
from tests.unit.runtime.kit import QUICK, SPACE, Rig, address, doc, run, serving


def test_a_program_that_ends_without_saying_so_does_not_stop_the_space_for_the_others(tmp_path: Path) -> None:
    host = ThreadHost(Engine(SqliteStore(tmp_path / "x.space", synchronous="OFF")))

    def host_of(_: str) -> Host:
        return host

    def driver(key: str) -> Driver:
        session = Session(Replica(), space=SPACE, key=key, new_token=RealClock().new_token)
        started = Driver(session, Loopback(host_of), backoff=QUICK)
        started.start()
        return started

    async def ends_in_the_middle() -> None:
        await driver("a").loaded(doc())

    async def goes_on() -> None:
        other = driver("b")
        writer = Writer(other)
        for number in range(3):
            await writer.transact(lambda t, number=number: t.write(doc(), replace((), number)))  # type: ignore[misc]
        await other.close()

    run(ends_in_the_middle)
    try:
        run(goes_on, 3)
    finally:
        assert host.failed is None
        host.close()


def test_documents_that_are_too_much_for_one_message_arrive_or_are_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            rig = Rig(WebSocket(address(server), limits=WebSocketLimits(message_bytes=100_000)), lambda _: None)
            writer, reader = rig.client("a"), rig.client("b")
            for number in range(20):
                await writer.create(f"d{number}", "x" * 10_000)
            await writer.create("root", {"links": tuple(Link(id=f"d{number}") for number in range(20))})
            loaded = asyncio.ensure_future(reader.driver.loaded(doc("root"), follow=True))
            told = asyncio.ensure_future(reader.driver.until(lambda: bool(reader.errors)))
            done, _ = await asyncio.wait((loaded, told), timeout=30, return_when=asyncio.FIRST_COMPLETED)
            loaded.cancel()
            told.cancel()
            await asyncio.gather(loaded, told, return_exceptions=True)
            await rig.close()
            assert done, f"{reader.link.connects} connections, and not a word"

    run(play)
