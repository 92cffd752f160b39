"""The contract of a directory that a process owns: connections to a space, frames in order, refusals, and closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import Patch, append
from headwater.engine import Limits
from headwater.errors import AuthoringError, StorageError
from headwater.protocol.commit import Commit, Operation, OriginCommitted, SentEvent
from headwater.protocol.messages import VERSION, FromEngine, FromReplica, Hello, Open, Problem, Transact, Verdicts
from headwater.protocol.verdict import Accepted
from headwater.runtime import LocalDirectory

DOC = DocKey("space", "d")
TOO_LONG_S = 30


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TOO_LONG_S):
            await work()

    asyncio.run(bounded())


def commit(number: int) -> Commit:
    return Commit(number, (Operation(DOC, (append((), [number]),)),))


class Line:
    """A connection without a replica: sends messages, and keeps those that it hears."""

    def __init__(self) -> None:
        self.heard: list[FromEngine] = []
        self.lost: list[str] = []
        self._news = asyncio.Event()
        self._send: Callable[[tuple[FromReplica, ...]], None]

    async def open(self, data: LocalDirectory, session: str) -> Line:
        transport = data.transport("s")
        assert transport is not None
        self._send = (await transport.connect(self._hear, self._lose)).send
        self.say(Hello((VERSION,)), Open("s", session, "", f"token of {session}"))
        await self.until(lambda: len(self.heard) >= 2)
        return self

    def say(self, *messages: FromReplica) -> None:
        self._send(messages)

    def _hear(self, message: FromEngine) -> None:
        self.heard.append(message)
        self._news.set()

    def _lose(self, reason: str) -> None:
        self.lost.append(reason)
        self._news.set()

    def send(self, *commits: Commit) -> None:
        self.say(Transact(commits))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    def accepted(self) -> list[tuple[int, int]]:
        """Numbers and seqs of accepted commits, in the order in which they were heard."""
        verdicts = [each for message in self.heard if isinstance(message, Verdicts) for each in message.verdicts]
        return [(each.local_seq, each.seq) for each in verdicts if isinstance(each, Accepted)]


async def value(data: LocalDirectory) -> Any:
    host = await data.host("s")
    return await asyncio.to_thread(host.call, lambda engine, hub: engine.read(DOC).value)


def test_frames_are_answered_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            line = await Line().open(data, "a")
            for number in range(1, 101):
                line.send(commit(number))
            await line.until(lambda: len(line.accepted()) == 100)
            assert line.accepted() == [(number, number) for number in range(1, 101)]
            assert await value(data) == tuple(range(1, 101))

    run(work)


def test_groups_are_bounded_and_nothing_is_lost(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF", limits=Limits(group_commits=10)) as data:
            lines = [await Line().open(data, name) for name in "abcd"]
            for number in range(1, 26):
                for line in lines:
                    line.send(commit(number))
            for line in lines:
                await line.until(lambda line=line: len(line.accepted()) == 25)  # type: ignore[misc]
                numbers = [local_seq for local_seq, _ in line.accepted()]
                assert numbers == list(range(1, 26))
            assert sorted(seq for line in lines for _, seq in line.accepted()) == list(range(1, 101))
            assert len(await value(data)) == 100

    run(work)


def test_call_comes_after_what_was_sent_before_it_and_fails_at_its_caller_alone(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            line = await Line().open(data, "a")
            host = await data.host("s")
            for number in range(1, 51):
                line.send(commit(number))
            assert await asyncio.to_thread(host.call, lambda engine, hub: engine.last_seq) == 50
            with pytest.raises(AuthoringError, match="is not a branch name"):
                await asyncio.to_thread(host.call, lambda engine, hub: engine.fork("NO"))
            line.send(commit(51))
            await line.until(lambda: len(line.accepted()) == 51)

    run(work)


REFUSED = {
    "a number that is too large": Transact((Commit(1, preconditions=(OriginCommitted(2**64 - 1),)),)),
    "a value that no document can hold": Transact((Commit(1, events=(SentEvent("e", "s", float("nan")),)),)),
    "a name that cannot be encoded": Transact((Commit(1, events=(SentEvent("\ud800", "s", 1),)),)),
    "a patch of an unknown kind": Transact((Commit(1, (Operation(DOC, (Patch("no such", (), 1),)),)),)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_frame_harms_its_own_connection_only(tmp_path: Path, what: str) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            bad, good = await Line().open(data, "bad"), await Line().open(data, "good")
            bad.say(REFUSED[what])
            good.send(commit(1))
            await good.until(lambda: len(good.accepted()) == 1)
            await bad.until(lambda: any(isinstance(each, Problem) for each in bad.heard) or bool(bad.lost))
            assert bad.accepted() == []
            assert good.lost == []
            again = await Line().open(data, "another")
            again.send(commit(1))
            await again.until(lambda: again.accepted() == [(1, 2)])

    run(work)


def test_closing_answers_what_was_sent_and_a_closed_directory_refuses(tmp_path: Path) -> None:
    async def work() -> None:
        data = LocalDirectory(tmp_path, synchronous="OFF")
        line = await Line().open(data, "a")
        for number in range(1, 201):
            line.send(commit(number))
        await data.close()
        await data.close()
        await line.until(lambda: len(line.accepted()) == 200)
        assert line.accepted() == [(number, number) for number in range(1, 201)]
        with pytest.raises(StorageError, match="was closed here"):
            await data.host("s")
        async with LocalDirectory(tmp_path, synchronous="OFF") as again:
            assert await value(again) == tuple(range(1, 201))

    run(work)
