"""The spaces of a server: opened and closed in the same moment, and an end that none of them can spoil for others."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace as changed
from pathlib import Path

import pytest

from headwater.clock import RealClock
from headwater.data.patch import replace
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.sync.host import ThreadHost
from headwater.engine.sync.hub import Hub
from headwater.engine.sync.peer import Peer
from headwater.errors import LimitError, StorageError
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import Ack
from headwater.runtime.channel.websocket import WebSocket
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS
from headwater.server.operation.spaces import Spaces
from tests.unit.runtime.kit import Rig, address, doc, refused, run, serving

Failures = list[tuple[str, BaseException]]


def spaces_in(folder: Path, count: int, failures: Failures | None = None) -> Spaces:
    limits = changed(DEFAULT_SERVER_LIMITS, spaces=count, unwritten_spaces=count)
    noted: Failures = failures if failures is not None else []
    return Spaces(folder, clock=RealClock(), limits=limits, on_failed=lambda space, error: noted.append((space, error)))


def write(spaces: Spaces, space: str) -> None:
    """Makes its file, so that two hosts could be in each other's way."""

    def work(engine: Engine, hub: Hub) -> None:
        engine.open_session("s", "x")
        engine.submit_group([("s", (Commit(1, (Operation(doc(), (replace((), 1),)),)),))], founds=True)
        assert engine.last_seq

    spaces.host_of(space).call(work)


def made(folder: Path, *names: str) -> None:
    """Make the files of spaces."""
    with Directory(folder) as directory:
        for name in names:
            engine = directory.space(name)
            engine.open_session("s", "x")
            engine.submit("s", Commit(1, (Operation(doc(), (replace((), 1),)),)))


class Slow:
    """Closing a host takes until the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began = threading.Event()
        self.may_go_on = threading.Event()
        close = ThreadHost.close

        def slow(host: ThreadHost) -> None:
            self.began.set()
            self.may_go_on.wait(10)
            close(host)

        monkeypatch.setattr(ThreadHost, "close", slow)


@pytest.mark.parametrize("count", [1, 2])
def test_a_space_that_makes_room_can_be_entered_again_while_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    made(tmp_path, "one", "other", "two")

    async def play() -> None:
        spaces = spaces_in(tmp_path, count)
        for name in ["one", "other"][:count]:
            await spaces.enter(name)
            spaces.leave(name)
        slow = Slow(monkeypatch)
        loop = asyncio.get_running_loop()
        two = loop.create_task(spaces.enter("two"))
        await asyncio.to_thread(slow.began.wait, 10)
        one = loop.create_task(spaces.enter("one"))
        await asyncio.sleep(0)
        assert not one.done()
        slow.may_go_on.set()
        results = await asyncio.gather(two, one, return_exceptions=True)
        assert results[0] is None
        if count == 1:  # The other was first.
            assert isinstance(results[1], LimitError)
            assert "1 spaces are in use" in str(results[1])
        else:
            assert results[1] is None
        assert sorted(spaces.hosts()) == ["one", "two"][-count:]
        await spaces.settle()
        await asyncio.to_thread(spaces.close)

    run(play)


def test_a_space_whose_host_failed_is_opened_again_when_that_host_has_let_its_file_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        failures: Failures = []
        spaces = spaces_in(tmp_path, 2, failures)
        await spaces.enter("one")
        write(spaces, "one")
        failed = spaces.host_of("one")
        with monkeypatch.context() as patched:
            patched.setattr(Hub, "process", broken)
            failed.post(Peer(lambda message: None, DEFAULT_LIMITS), Ack(0))
            while failed.failed is None:
                await asyncio.sleep(0)
        slow = Slow(monkeypatch)
        again = asyncio.get_running_loop().create_task(spaces.enter("one"))
        await asyncio.to_thread(slow.began.wait, 10)
        await asyncio.sleep(0.05)
        assert not again.done()
        slow.may_go_on.set()
        await again
        assert spaces.host_of("one") is not failed
        assert spaces.host_of("one").call(lambda engine, hub: engine.last_seq)
        await spaces.settle()
        await asyncio.to_thread(spaces.close)

    run(play)


def test_those_who_enter_a_space_together_share_one_host(tmp_path: Path) -> None:
    async def play() -> None:
        spaces = spaces_in(tmp_path, 1)
        await asyncio.gather(*(spaces.enter("one") for _ in range(5)))
        host = spaces.host_of("one")
        opening = asyncio.get_running_loop().create_task(spaces.enter("one"))
        for _ in range(5):
            await asyncio.sleep(0)
            await spaces.enter("one")
        await opening
        assert spaces.host_of("one") is host
        await asyncio.to_thread(spaces.close)

    run(play)


def test_one_that_enters_in_the_moment_a_space_is_opened_shares_its_host(tmp_path: Path) -> None:
    async def play() -> None:
        spaces = spaces_in(tmp_path, 2)
        loop = asyncio.get_running_loop()
        first = loop.create_task(spaces.enter("one"))
        entered: list[asyncio.Task[None]] = []
        while not first.done():
            await asyncio.sleep(0)
            if len(entered) < 5_000:
                entered.append(loop.create_task(spaces.enter("one")))
        entered.append(loop.create_task(spaces.enter("one")))
        assert await asyncio.gather(*entered) == [None] * len(entered)
        assert len(spaces.hosts()) == 1
        await asyncio.to_thread(spaces.close)

    run(play)


def test_no_space_is_opened_once_they_settle(tmp_path: Path) -> None:
    async def play() -> None:
        spaces = spaces_in(tmp_path, 1)
        await spaces.settle()
        assert isinstance(await refused(spaces.enter("one")), StorageError)
        await asyncio.to_thread(spaces.close)

    run(play)


def broken(*_: object) -> None:
    raise ZeroDivisionError("a bug")


def test_a_host_that_fails_to_close_is_told_of_and_its_space_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        failures: Failures = []
        spaces = spaces_in(tmp_path, 1, failures)
        await spaces.enter("one")
        spaces.leave("one")
        close = ThreadHost.close

        def closes_and_fails(host: ThreadHost) -> None:
            close(host)
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(ThreadHost, "close", closes_and_fails)
        await spaces.enter("two")
        monkeypatch.setattr(ThreadHost, "close", close)
        assert [(space, type(error)) for space, error in failures] == [("one", ZeroDivisionError)]
        await asyncio.to_thread(spaces.close)

    run(play)


def test_every_space_is_closed_and_the_directory_let_go_although_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        spaces = spaces_in(tmp_path, 3)
        for name in ("one", "two", "three"):
            await spaces.enter(name)
        first, close = spaces.host_of("one"), ThreadHost.close

        def closes(host: ThreadHost) -> None:
            close(host)
            if host is first:
                raise ZeroDivisionError("a bug")

        monkeypatch.setattr(ThreadHost, "close", closes)
        assert isinstance(await refused(asyncio.to_thread(spaces.close)), ZeroDivisionError)
        monkeypatch.setattr(ThreadHost, "close", close)
        await asyncio.to_thread(spaces_in(tmp_path, 1).close)

    run(play)


def test_a_space_that_fails_while_a_server_shuts_down_does_not_keep_others_from_their_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            rig = Rig(WebSocket(address(server)), lambda _: None)
            fine, bad = rig.client("a", space="fine"), rig.client("b", space="bad")
            await fine.create("d", 1)
            await bad.create("d", 1)
            fails, call = server.service.spaces.host_of("bad"), ThreadHost.call

            def calls(host: ThreadHost, work: object) -> object:
                if host is fails:
                    raise ZeroDivisionError("a bug")
                return call(host, work)  # type: ignore[arg-type]

            monkeypatch.setattr(ThreadHost, "call", calls)
            server.stop()
            await fine.driver.until(lambda: any("1001" in str(error) for error in fine.errors))
            await bad.driver.until(lambda: any("1001" in str(error) for error in bad.errors))
            await rig.close()
        monkeypatch.setattr(ThreadHost, "call", call)

    run(play)


def test_what_comes_while_a_server_shuts_down_is_not_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        drain, is_drained, may_end = Spaces.drain, threading.Event(), threading.Event()

        def slow(spaces: Spaces) -> list[tuple[str, Exception]]:
            errors = drain(spaces)
            is_drained.set()
            may_end.wait(10)
            return errors

        monkeypatch.setattr(Spaces, "drain", slow)
        async with serving(tmp_path, insecure_local=True) as server:
            rig = Rig(WebSocket(address(server)), lambda _: None)
            client = rig.client("a")
            await client.create("d", 1)
            host = server.service.spaces.host_of("shop")
            server.stop()
            await asyncio.to_thread(is_drained.wait, 10)
            before = host.messages
            writing = asyncio.get_running_loop().create_task(client.create("d", 2))
            for _ in range(20):
                await asyncio.sleep(0.005)
            assert host.messages == before
            may_end.set()
            await client.driver.until(lambda: any("1001" in str(error) for error in client.errors))
            writing.cancel()
            await rig.close()

    run(play)
