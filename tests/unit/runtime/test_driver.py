"""The driver connects, waits as long as it should, and connects again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headwater.backoff import Backoff
from headwater.clock import RealClock
from headwater.data.patch import replace
from headwater.data.value import ABSENT
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.errors import AuthoringError, HeadwaterError
from headwater.protocol.messages import (
    Ack,
    FromReplica,
    Opened,
    Sync,
    Verdicts,
    Watch,
    Watched,
    Welcome,
    state_of,
)
from headwater.protocol.verdict import Accepted
from headwater.replica.replica import Replica
from headwater.replica.session import LinkState, Session
from headwater.runtime.channel.driver import Driver
from headwater.runtime.channel.transport import Connection, Heard, Lost
from headwater.runtime.channel.websocket import WebSocket, WebSocketLimits
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.policy import RetryPolicy
from tests.unit.runtime.kit import doc, on_loopback, refused, run


class Nowhere:
    """A transport without another end."""

    def __init__(self) -> None:
        self.tries = 0

    async def connect(self, heard: Heard, lost: Lost) -> Connection:
        self.tries += 1
        raise ConnectionRefusedError("nobody listens")


class Patient(Backoff):
    """Remembers which delays were asked for, and waits for none."""

    asked: list[int] = []  # noqa: RUF012 (one test uses it)

    def delay_us(self, attempt: int, source: Any) -> int:
        self.asked.append(attempt)
        return 0


def session(key: str = "s") -> Session:
    return Session(Replica(), space="shop", key=key, new_token=RealClock().new_token)


def test_a_server_that_is_not_there_is_tried_again_ever_more_slowly() -> None:
    async def story() -> None:
        errors: list[HeadwaterError] = []
        nowhere = Nowhere()
        backoff = Patient(kind=RUNTIME_LIMITS.reconnect.kind, base_ms=25, max_ms=30_000, jitter=0.2)
        async with Driver(session(), nowhere, backoff=backoff, on_error=errors.append) as driver:
            while nowhere.tries < 5:
                await asyncio.sleep(0)
            assert driver.session.link is LinkState.DOWN
        assert backoff.asked[:4] == [0, 1, 2, 3]
        assert "nobody listens" in str(errors[0])

    run(story)


def test_the_delays_are_those_that_were_agreed() -> None:
    source = RealClock().randomness("x")
    first = [RUNTIME_LIMITS.reconnect.delay_us(0, source) for _ in range(200)]
    assert 20_000 <= min(first) <= max(first) <= 30_000
    assert 24_000_000 <= RUNTIME_LIMITS.reconnect.delay_us(20, source) <= 30_000_000
    policy = RetryPolicy()
    near = [policy.backoff.delay_us(0, source) for _ in range(200)]
    assert 0 <= min(near) <= max(near) <= 1_563
    assert 0 <= max(policy.backoff.delay_us(30, source) for _ in range(20)) <= 1_000_000
    assert policy.window_ms == 30_000


def test_a_program_s_failing_listener_is_reported_and_the_session_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        async with on_loopback(tmp_path, DEFAULT_LIMITS) as rig:
            ann, bob = rig.client("ann"), rig.client("bob")
            await ann.create("d", {"n": 0})
            await bob.driver.loaded(doc())

            def broken(_: object) -> None:
                raise ZeroDivisionError

            cancel = bob.replica.feed.subscribe(broken)
            await ann.add_up("d")
            await bob.driver.until(lambda: bob.shown("d")["n"] == 1)
            cancel()
            await ann.add_up("d")
            await bob.driver.until(lambda: bob.shown("d")["n"] == 2)
            assert bob.link.connects == 1
        assert reported

    run(story)


def test_durable_waits_for_what_was_committed_before(tmp_path: Path) -> None:
    async def story() -> None:
        async with on_loopback(tmp_path, DEFAULT_LIMITS) as rig:
            ann = rig.client("ann")
            await ann.driver.loaded(doc())
            for n in range(20):
                transaction = ann.replica.begin()
                transaction.write(doc(), replace((), n))
                ann.replica.commit(transaction)
            ann.driver.flush()
            await ann.driver.durable()
            assert rig.call(lambda engine: engine.read(doc()).value) == 19
            await ann.driver.synced()
            assert not len(ann.replica.pending)

    run(story)


@pytest.mark.parametrize("address", ["", "nonsense", "http://x", "ws:/x", "://"])
def test_an_address_that_is_none_is_an_error_of_the_program(address: str) -> None:
    with pytest.raises(AuthoringError, match="ws://host:port"):
        WebSocket(address)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "did not accept"),
        (b"nonsense\r\n\r\n", "did not accept"),
        (b"", "closed"),
    ],
)
def test_something_that_is_no_server_is_a_connection_error(answer: bytes, words: str) -> None:
    async def story() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        error = await refused(WebSocket(f"ws://127.0.0.1:{port}").connect(lambda _: None, lambda _: None))
        assert isinstance(error, OSError)
        assert words in str(error)
        server.close()
        await server.wait_closed()

    run(story)


def test_a_server_that_never_answers_is_given_up() -> None:
    async def story() -> None:
        accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

        async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.put_nowait(writer)

        server = await asyncio.start_server(mute, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = WebSocket(f"ws://127.0.0.1:{port}", limits=WebSocketLimits(connect_s=0.05))
        assert isinstance(await refused(transport.connect(lambda _: None, lambda _: None)), TimeoutError)
        writer = await accepted.get()  # The server may accept the connection after the client has given up.
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        server.close()
        await server.wait_closed()

    run(story)


class Scripted:
    """A transport whose other end says what the test makes it say, and remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[FromReplica] = []
        self.say: Heard = lambda message: None

    async def connect(self, heard: Heard, lost: Lost) -> Connection:
        self.say = heard
        return self

    def send(self, messages: Iterable[FromReplica]) -> None:
        self.heard += messages

    def close(self) -> None: ...


def test_whoever_waits_for_a_verdict_goes_on_before_what_came_behind_it_is_taken_in() -> None:
    async def story() -> None:
        order: list[str] = []
        wire = Scripted()
        async with Driver(session(), wire) as driver:
            await opened_by(wire, driver)
            driver.watch([doc()])
            (watch,) = [message for message in wire.heard if isinstance(message, Watch)]
            wire.say(Watched(watch.id, 0, (state_of(doc(), 0, ABSENT),)))
            transaction = driver.session.replica.begin()
            transaction.write(doc(), replace((), 1))
            future = driver.expected()
            driver.session.replica.commit(transaction, lambda layer, rejection: future.set_result(None))

            async def waiting() -> None:
                await future
                order.append(f"verdict, at {driver.session.replica.confirmed.seq}")

            task = asyncio.ensure_future(waiting())
            await asyncio.sleep(0)
            wire.say(Verdicts((Accepted(1, 1),)))
            wire.say(Sync(1, ()))
            await task
            await driver.until(lambda: driver.session.replica.confirmed.seq == 1)
        assert order == ["verdict, at 0"]

    run(story)


def test_call_after_a_message_is_made_before_the_next_one_is_taken_in() -> None:
    order: list[object] = []

    async def story() -> None:
        wire = Scripted()
        async with Driver(session(), wire) as driver:
            await opened_by(wire, driver)
            replica = driver.session.replica

            def fail() -> None:
                order.append("fails")
                raise ValueError("a bug")

            def heard(*_: object) -> None:
                driver.soon(lambda: order.append(f"soon, at {replica.confirmed.seq}"))
                driver.after_message(fail)
                driver.after_message(lambda: order.append(f"after, at {replica.confirmed.seq}"))

            raised: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context["exception"]))
            transaction = replica.begin()
            transaction.create(doc(), 1)
            replica.commit(transaction, heard)
            driver.flush()
            wire.say(Verdicts((Accepted(1, 1),)))
            wire.say(Sync(1, ()))
            await driver.until(lambda: replica.confirmed.seq == 1)
            driver.after_message(lambda: order.append("later"))
            await asyncio.sleep(0)
            assert order == ["fails", "after, at 0", "soon, at 0", "later"]
            assert [str(each) for each in raised] == ["a bug"]

    run(story)


def test_acknowledgements_are_few_and_the_last_one_stands_for_all() -> None:
    async def story() -> None:
        wire = Scripted()
        async with Driver(session(), wire) as driver:
            await opened_by(wire, driver)
            for seq in range(1, RUNTIME_LIMITS.acks_together):
                wire.say(Sync(seq, ()))
                await asyncio.sleep(0)
            assert not [message for message in wire.heard if isinstance(message, Ack)]
            wire.say(Sync(RUNTIME_LIMITS.acks_together, ()))
            while not isinstance(wire.heard[-1], Ack):
                await asyncio.sleep(0)
            assert wire.heard[-1] == Ack(RUNTIME_LIMITS.acks_together)
            wire.say(Sync(RUNTIME_LIMITS.acks_together + 1, ()))
            while wire.heard[-1] != Ack(RUNTIME_LIMITS.acks_together + 1):  # not for ever
                await asyncio.sleep(0)
            assert sum(isinstance(message, Ack) for message in wire.heard) == 2

    run(story)


async def opened_by(wire: Scripted, driver: Driver) -> None:
    while not wire.heard:
        await asyncio.sleep(0)
    wire.say(Welcome(1))
    await driver.until(lambda: driver.session.link is LinkState.OPENING)
    wire.say(Opened("s", 0, resumed=False))
    await driver.opened()
