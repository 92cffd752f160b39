"""What a host's thread says reaches everybody whom it can reach, whatever happens to one of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest

from headwater.engine.limits import DEFAULT_LIMITS
from headwater.protocol.messages import (
    Answer,
    FromEngine,
    Open,
    Opened,
    Problem,
    Query,
    Selector,
    Sync,
    Verdicts,
    Watch,
    Watched,
)
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS
from headwater.server.operation.service import Service
from headwater.server.operation.spaces import SendBuffer
from headwater.server.server import Server
from headwater.server.sync import connection as module
from headwater.server.sync.backpressure import fit_message
from tests.unit.runtime.kit import SPACE, doc
from tests.unit.server.test_connection import HELLO, Raw, opened, raw, served, write


class Listener:
    def __init__(self, *, deaf: bool = False) -> None:
        self.deaf = deaf
        self.told: list[FromEngine] = []
        self.failures: list[Exception] = []

    def send(self, messages: list[FromEngine]) -> None:
        if self.deaf:
            raise RuntimeError("deaf")
        self.told += messages

    def on_send_failed(self, error: Exception) -> None:
        self.failures.append(error)


def test_one_that_cannot_be_told_keeps_nothing_from_the_others() -> None:
    outbox = SendBuffer()
    listeners = [Listener(deaf=number == 1) for number in range(3)]
    for listener in listeners:
        outbox.post(listener, Sync(1, ()))
        outbox.post(listener, Sync(2, ()))
    outbox.flush()
    assert [len(listener.told) for listener in listeners] == [2, 0, 2]
    assert [len(listener.failures) for listener in listeners] == [0, 1, 0]
    outbox.flush()  # and nothing of it is kept
    assert [len(listener.failures) for listener in listeners] == [0, 1, 0]


def test_a_connection_that_cannot_be_told_ends_loudly_and_its_space_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, BaseException]] = []
    monkeypatch.setattr(Service, "connection_failed", lambda self, space, error: heard.append((space, error)))

    def fragile(message: FromEngine, *more: Any) -> Any:
        if isinstance(message, Watched) and message.id == 666:
            raise RuntimeError("a defect")
        return fit_message(message, *more)

    monkeypatch.setattr(module, "fit_message", fragile)

    async def tell(server: Server) -> None:
        good, bad = await opened(server, key="good"), await opened(server, key="bad")
        await good.say(Watch(1, (Selector(doc("d")),)))
        assert isinstance(await good.hear(), Watched)
        await bad.say(Watch(666, (Selector(doc("d")),)))
        with pytest.raises(Exception, match="close frame"):
            await bad.hear()
        assert [(space, str(error)) for space, error in heard] == [(SPACE, "a defect")]
        await good.say(write(1, "d", 1))
        assert isinstance(await good.hear(), Verdicts)
        assert isinstance(await good.hear(), Sync)
        again = await raw(server)
        await again.say(HELLO, Open(SPACE, "bad", "t", "t2"))
        await again.hear()
        assert isinstance(await again.hear(), Opened)

    served(tmp_path, tell)


def test_whoever_asks_for_more_than_it_takes_is_asked_to_wait_and_gets_everything(tmp_path: Path) -> None:
    limits = changed(
        DEFAULT_SERVER_LIMITS, right=changed(DEFAULT_SERVER_LIMITS.right, questions=4), outgoing_bytes=2_000_000
    )

    async def tell(server: Server) -> None:
        busy = await opened(server, key="busy")
        await busy.say(write(1, "big", "x" * 500_000))
        await busy.hear()
        lazy = await opened(server, key="lazy", max_queue=1, max_size=None)
        lazy.socket.transport.pause_reading()
        for number in range(100):
            await lazy.say(Query(number, "space", "big"), Watch(1_000 + number, (Selector(doc("big")),)))
        held = 0
        for number in range(2, 60):
            await busy.say(write(number, "other", number))
            while not isinstance(await busy.hear(), Verdicts):
                pass
            held = max(held, *(connection.queued_bytes for connection in server.acceptor.connections))
        assert 1_000_000 < held < 4_000_000
        assert len(server.acceptor.connections) == 2
        lazy.socket.transport.resume_reading()
        answers: list[Answer | Watched] = []
        while len(answers) < 200:
            message = await lazy.hear()
            if isinstance(message, Answer | Watched):
                answers.append(message)
        assert [type(answer) for answer in answers[:4]] == [Answer, Watched, Answer, Watched]
        assert sorted(answer.id for answer in answers) == [*range(100), *range(1_000, 1_100)]

    served(tmp_path, tell, limits)


def test_whose_news_are_too_long_for_a_message_asks_again_for_what_it_watches(tmp_path: Path) -> None:
    """The engine's bound is on values; what an encoding makes of them is known when they are sent."""
    limits = changed(DEFAULT_SERVER_LIMITS, answer_bytes=9_000, engine=changed(DEFAULT_LIMITS, sync_patches=1))

    async def catch_up(server: Server, token: str, following: str) -> Raw:
        peer = await raw(server, "json")
        await peer.say(HELLO, Open(SPACE, "s", token, following, seen=1))
        await peer.hear()
        return peer

    async def tell(server: Server) -> None:
        busy = await opened(server, key="busy")
        await busy.say(write(1, "d0", 0))
        await busy.hear()
        peer = await raw(server, "json")
        await peer.say(HELLO, Open(SPACE, "s", "", "t1"))
        await peer.hear()
        await peer.hear()
        for number in range(3):
            await peer.say(Watch(number, (Selector(doc(f"d{number}")),)))
        assert isinstance([await peer.hear() for _ in range(4)][-1], Watched)
        await peer.socket.close()
        for number in range(6):
            await busy.say(write(2 + number, f"d{number % 3}", "\x01" * 1_000))  # one byte here, six in JSON
            while not isinstance(await busy.hear(), Verdicts):
                pass
        again = await catch_up(server, "t1", "t2")
        assert isinstance(await again.hear(), Opened)
        problem = await again.problem()
        assert isinstance(problem, Problem)
        assert (problem.code, problem.fatal) == ("limit", True)
        third = await catch_up(server, "t2", "t3")
        reopened = await third.hear()
        assert isinstance(reopened, Opened)
        assert not reopened.resumed
        for number in range(3):
            await third.say(Watch(number, (Selector(doc(f"d{number}")),)))
        heard = [await third.hear() for _ in range(4)]
        assert sum(isinstance(message, Watched) for message in heard) == 3

    async def bounded(server: Server) -> None:
        async with asyncio.timeout(20):
            await tell(server)

    served(tmp_path, bounded, limits)
