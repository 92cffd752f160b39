"""Attacks on the driver and the server together: what never ends, what ends too much, and what nobody hears of."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable
from dataclasses import replace as changed
from pathlib import Path

from headwater.clock import RealClock
from headwater.data.patch import replace
from headwater.engine.directory import Directory
from headwater.errors import HeadwaterError
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import Problem
from headwater.replica.replica import Replica
from headwater.replica.session import LinkState, Session
from headwater.runtime.channel.driver import Driver
from headwater.runtime.channel.transport import Connection, Heard, Lost, Transport
from headwater.runtime.channel.websocket import WebSocket
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS
from headwater.server.server import Server
from tests.unit.runtime.kit import QUICK, SPACE, Client, Rig, address, doc, on_loopback, run, serving

SMALL = changed(
    DEFAULT_SERVER_LIMITS, message_bytes=20_000, right=changed(DEFAULT_SERVER_LIMITS.right, message_bytes=200_000)
)


async def ends(work: Awaitable[object], within_s: float = 30.0) -> bool:
    """Whether something ends at all, well or badly."""
    try:
        async with asyncio.timeout(within_s):
            await work
    except TimeoutError:
        return False
    except HeadwaterError:
        return True
    return True


def computes(client: Client, id: str, value: object) -> None:
    transaction = client.replica.begin(derived=True)
    transaction.write(doc(id), replace((), value))
    client.replica.commit(transaction)


def test_a_reader_whose_derived_values_stay_here_is_durable_and_synced(tmp_path: Path) -> None:
    async def play() -> None:
        async with on_loopback(tmp_path) as rig:
            reader = rig.client("r")
            reader.replica.may_write = False
            await reader.driver.loaded(doc())
            computes(reader, "d", 1)
            reader.driver.flush()
            assert await ends(reader.driver.durable())
            assert await ends(reader.driver.synced())

    run(play)


def test_a_commit_that_is_too_long_for_one_message_has_an_end(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, insecure_local=True, limits=SMALL) as server:
            rig = Rig(WebSocket(address(server)), lambda _: None)
            client = rig.client("a")
            ended = await ends(client.create("d", "x" * 30_000))
            await rig.close()
            assert ended, f"sent again on each of {client.link.connects} connections"

    run(play)


def test_a_wave_of_small_commits_lands_however_long_it_is(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, insecure_local=True, limits=SMALL) as server:
            rig = Rig(WebSocket(address(server)), lambda _: None)
            client = rig.client("a")
            await client.driver.loaded(*[doc(f"d{number}") for number in range(40)])
            for number in range(40):
                computes(client, f"d{number}", "x" * 1_000)
            client.driver.flush()
            ended = await ends(client.driver.durable())
            await rig.close()
            assert ended, f"sent again on each of {client.link.connects} connections"

    run(play)


def test_a_session_that_is_taken_over_with_a_commit_on_the_wire_ends_without_an_accident(tmp_path: Path) -> None:
    async def play() -> None:
        async with on_loopback(tmp_path) as rig:
            client = rig.client("a")
            await client.create("d", 1)
            assert client.link.newest is not None
            client.link.newest.deaf = True
            writing = asyncio.get_running_loop().create_task(client.create("d", 2))
            await asyncio.sleep(0)
            client.link.newest.hear(Problem("revoked", "another connection has taken this session up"))
            assert await ends(writing)

    run(play)


class Late:
    """A transport that hears of the end of a connection only when it is told to."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.connects = 0
        self.ears: list[Heard] = []
        self.ends: list[Lost] = []

    async def connect(self, heard: Heard, lost: Lost) -> Connection:
        self.connects += 1
        self.ears.append(heard)
        return await self._transport.connect(heard, lambda _: self.ends.append(lost))


def test_the_late_end_of_an_old_connection_does_not_end_the_new_one(tmp_path: Path) -> None:
    async def play() -> None:
        async with on_loopback(tmp_path) as rig:
            late = Late(rig.transport)
            session = Session(Replica(), space=SPACE, key="a", new_token=RealClock().new_token)
            errors: list[HeadwaterError] = []
            driver = Driver(session, late, backoff=QUICK, on_error=errors.append)
            driver.start()
            await driver.opened()
            late.ears[0](Problem("limit", "too much waits for this space"))
            await driver.until(lambda: late.connects == 2)
            await driver.opened()
            late.ends[0]("gone at last")
            await ends(driver.until(lambda: late.connects > 2 or session.link is LinkState.GONE), 0.5)
            assert (late.connects, session.link) == (2, LinkState.UP), errors
            await driver.close()

    run(play)


def test_a_connection_that_cannot_be_made_for_any_reason_is_heard_of(tmp_path: Path) -> None:
    async def play() -> None:
        rig = Rig(WebSocket("ws://" + "a" * 70 + ".example:9"), lambda _: None)
        client = rig.client("a")
        await ends(client.driver.until(lambda: bool(client.errors)))
        assert client.errors, "a host name that cannot be looked up"

    run(play)


def test_a_server_whose_log_ends_before_what_was_seen_is_heard_of(tmp_path: Path) -> None:
    """As after restoring a backup: nothing that this session shows is true any more."""

    async def play() -> None:
        folder = tmp_path / "data"
        async with serving(folder, insecure_local=True) as server:
            port = server.address[1]
            rig = Rig(WebSocket(address(server)), lambda _: None)
            client = rig.client("a")
            await client.create("d", 1)
            await client.driver.synced()
        shutil.rmtree(folder)
        restored = Server(folder, port=port, insecure_local=True)
        serves = asyncio.get_running_loop().create_task(restored.run_until_stopped())
        ended = await ends(client.driver.loaded(doc("e")))
        texts = [str(error) for error in client.errors if "no connection" not in str(error)]
        await rig.close()
        restored.stop()
        await serves
        assert ended
        assert texts, f"{client.link.connects} connections, and not a word"

    run(play)


def test_a_server_whose_log_was_restored_and_grew_past_what_was_seen_is_heard_of(tmp_path: Path) -> None:
    """Every number looks right then: what was shown would be believed, and what was pending judged by another log."""

    async def play() -> None:
        folder, backup = tmp_path / "data", tmp_path / "backup"
        async with serving(folder, insecure_local=True) as server:
            port = server.address[1]
            rig = Rig(WebSocket(address(server)), lambda _: None)
            await rig.client("first").create("d", {"n": 0})
            await rig.close()
        shutil.copytree(folder, backup)
        rig = Rig(WebSocket(f"ws://127.0.0.1:{port}"), lambda _: None)
        seen = rig.client("seen")
        before = Server(folder, port=port, insecure_local=True)
        serves = asyncio.get_running_loop().create_task(before.run_until_stopped())
        await seen.driver.loaded(doc("d"))
        for number in range(3):
            await seen.write("d", replace(("n",), number))
        await seen.driver.synced()
        before.stop()
        await serves
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
        with Directory(folder) as directory:
            engine = directory.space(SPACE)
            engine.open_session("other")
            for number in range(1, 9):
                engine.submit("other", Commit(number, (Operation(doc("d"), (replace(("n",), -number),)),)))
            engine.close()
        restored = Server(folder, port=port, insecure_local=True)
        serves = asyncio.get_running_loop().create_task(restored.run_until_stopped())
        assert await ends(seen.driver.until(lambda: seen.driver.session.link is LinkState.GONE))
        await rig.close()
        restored.stop()
        await serves
        assert any("it has seen another log up to seq" in str(error) for error in seen.errors), seen.errors

    run(play)
