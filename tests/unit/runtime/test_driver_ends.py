"""How a driver's connections end, what is told of it, and how long the next one is waited for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any, cast

import pytest

from headwater.backoff import Backoff
from headwater.clock import RealClock, VirtualClock
from headwater.errors import AuthoringError, HeadwaterError, SessionExpiredError
from headwater.protocol.messages import FromEngine, FromReplica, Opened, Problem, Sync, Welcome
from headwater.replica.replica import Replica
from headwater.replica.session import LinkState, Session
from headwater.runtime.channel.connection_end import ConnectionEnd
from headwater.runtime.channel.driver import Driver, ReconnectBackoff
from headwater.runtime.channel.loopback import LoopbackConnection
from headwater.runtime.channel.transport import Connection, Heard, Lost
from headwater.runtime.channel.websocket import WebSocket
from headwater.runtime.core.limits import RUNTIME_LIMITS
from tests.unit.runtime.kit import QUICK, refused, run

DOUBLING = Backoff.exponential(base_ms=1, max_ms=1_000)


def session(key: str = "s") -> Session:
    return Session(Replica(), space="shop", key=key, new_token=RealClock().new_token)


class Line:
    """One connection to an engine that a test plays."""

    def __init__(self, heard: Heard, lost: Lost) -> None:
        self.say, self.lose = heard, lost
        self.told: list[FromReplica] = []
        self.is_closed = False

    def send(self, messages: Iterable[FromReplica]) -> None:
        self.told += messages

    def close(self) -> None:
        self.is_closed = True


class Lines:
    """A transport whose every connection says the same as soon as it was greeted."""

    def __init__(self, *says: FromEngine) -> None:
        self.lines: list[Line] = []
        self._says = says

    async def connect(self, heard: Heard, lost: Lost) -> Connection:
        line = Line(heard, lost)
        self.lines.append(line)
        asyncio.get_running_loop().call_soon(lambda: [line.say(message) for message in self._says])
        return line


OPENED = (Welcome(1), Opened("s", 0, resumed=False))


class Asked(Backoff):
    """Remembers which delays were asked for, and waits for none."""

    asked: list[int] = []  # noqa: RUF012 (cleared by whoever uses it)

    def delay_us(self, attempt: int, source: Any) -> int:
        self.asked.append(attempt)
        return 0


@pytest.mark.parametrize(
    "refusal",
    [Problem("limit", "a message is too long"), Welcome(1)],
    ids=["the engine's", "our own"],
)
def test_what_is_refused_on_every_connection_is_said_ever_more_slowly(refusal: FromEngine) -> None:
    async def story() -> None:
        backoff = Asked(kind=RUNTIME_LIMITS.reconnect.kind, base_ms=25)
        backoff.asked.clear()
        lines = Lines(Welcome(1), Opened("s", 1, resumed=False), Sync(1, ()), refusal)
        async with Driver(session(), lines, backoff=backoff):
            while len(backoff.asked) < 6:
                await asyncio.sleep(0)
        assert backoff.asked[:6] == [0, 1, 2, 3, 4, 5]
        assert all(line.is_closed for line in lines.lines[:-1])

    run(story)


def test_a_connection_that_got_something_done_starts_the_count_again_and_one_that_was_refused_soon_does_not() -> None:
    clock = VirtualClock()
    attempts = ReconnectBackoff(DOUBLING, clock, "x")

    def connection(lasts_us: int, *, achieved: bool, is_refused: bool) -> int:
        attempts.began()
        attempts.achieved, attempts.refused = achieved, is_refused
        clock.advance(lasts_us)
        attempts.ended()
        return attempts.delay_us() // 1_000

    assert [attempts.delay_us() // 1_000 for _ in range(3)] == [1, 2, 4]
    assert connection(RUNTIME_LIMITS.long_connection_us * 2, achieved=False, is_refused=False) == 8
    assert connection(RUNTIME_LIMITS.sound_connection_us - 1, achieved=True, is_refused=False) == 16
    assert connection(RUNTIME_LIMITS.long_connection_us - 1, achieved=True, is_refused=True) == 32
    assert connection(RUNTIME_LIMITS.long_connection_us, achieved=True, is_refused=True) == 1
    assert connection(0, achieved=True, is_refused=True) == 2
    assert connection(RUNTIME_LIMITS.sound_connection_us, achieved=True, is_refused=False) == 1


def test_the_engine_s_problem_is_told_once_and_what_we_found_wrong_ourselves_once() -> None:
    async def story() -> None:
        for says, words in ((Problem("limit", "too much"), "too much"), (Welcome(1), "greeted twice")):
            errors: list[HeadwaterError] = []
            lines = Lines(*OPENED, says)
            async with Driver(session(), lines, backoff=Backoff.fixed(base_ms=60_000), on_error=errors.append):
                while not lines.lines or not lines.lines[0].is_closed:
                    await asyncio.sleep(0)
            assert [words in str(error) for error in errors] == [True]

    run(story)


def test_why_a_connection_was_lost_is_told_and_that_it_was_closed_here_is_not() -> None:
    async def story() -> None:
        errors: list[HeadwaterError] = []
        lines = Lines(*OPENED)
        driver = Driver(session(), lines, backoff=QUICK, on_error=errors.append)
        driver.start()
        await driver.opened()
        lines.lines[0].lose("a frame was too long")
        await driver.until(lambda: len(lines.lines) == 2)
        await driver.opened()
        assert ["a frame was too long" in str(error) for error in errors] == [True]
        await driver.close()
        lines.lines[1].lose("it was closed here")
        assert len(errors) == 1

    run(story)


def test_nothing_is_heard_of_a_connection_that_was_given_up() -> None:
    async def story() -> None:
        errors: list[HeadwaterError] = []
        lines = Lines(*OPENED)
        async with Driver(session(), lines, backoff=QUICK, on_error=errors.append) as driver:
            await driver.opened()
            first = lines.lines[0]
            first.say(Problem("limit", "too much"))
            first.say(Problem("revoked", "another connection has taken this session up"))
            await driver.until(lambda: len(lines.lines) == 2)
            await driver.opened()
            first.say(Problem("revoked", "another connection has taken this session up"))
            first.lose("at last")
            await asyncio.sleep(0)
            assert (driver.session.link, len(lines.lines), len(errors)) == (LinkState.UP, 2, 1)

    run(story)


def test_a_program_that_fails_to_hear_of_an_error_is_told_so_and_the_driver_goes_on() -> None:
    async def story() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

        def broken(_: HeadwaterError) -> None:
            raise ZeroDivisionError

        lines = Lines(*OPENED)
        async with Driver(session(), lines, backoff=QUICK, on_error=broken) as driver:
            await driver.opened()
            lines.lines[0].lose("cut")
            await driver.until(lambda: len(lines.lines) == 2)
            await driver.opened()
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]

    run(story)


def test_a_transport_that_fails_in_a_way_that_none_may_ends_the_driver_for_everybody_who_waits() -> None:
    class Broken:
        async def connect(self, heard: Heard, lost: Lost) -> Connection:
            raise ZeroDivisionError("a bug")

    async def story() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        errors: list[HeadwaterError] = []
        driver = Driver(session(), Broken(), on_error=errors.append)
        driver.start()
        expected = driver.expected()
        for waiting in (driver.opened(), driver.synced(), asyncio.wait_for(expected, 30)):
            error = await refused(waiting)
            assert isinstance(error, SessionExpiredError)
            assert isinstance(error.__cause__, ZeroDivisionError)
        assert errors
        assert reported
        await driver.close()

    run(story)


def test_a_log_that_ends_before_what_was_seen_is_the_end_of_the_session() -> None:
    async def story() -> None:
        errors: list[HeadwaterError] = []
        lines = Lines(*OPENED)
        async with Driver(session(), lines, backoff=QUICK, on_error=errors.append) as driver:
            await driver.opened()
            lines.lines[0].say(Sync(7, ()))
            lines.lines[0].lose("cut")
            error = await refused(driver.until(lambda: False))
            assert isinstance(error, SessionExpiredError)
            assert "ends at seq 0, and seq 7 was seen here" in str(error)
            assert error in errors
            assert driver.session.link is LinkState.GONE
            assert len(lines.lines) == 2

    run(story)


@pytest.mark.parametrize("address", ["ws://host:99999", "ws://host:x", "ws://[::1"])
def test_an_address_with_a_port_that_is_none_is_an_error_of_the_program(address: str) -> None:
    with pytest.raises(AuthoringError, match="ws://host:port"):
        WebSocket(address)


def test_a_name_that_cannot_be_looked_up_is_a_connection_error() -> None:
    async def story() -> None:
        transport = WebSocket("ws://" + "a" * 70 + ".example:9")
        error = await refused(transport.connect(lambda _: None, lambda _: None))
        assert isinstance(error, ConnectionError)
        assert "cannot be looked up" in str(error)

    run(story)


def test_a_loop_that_is_closed_with_something_on_its_way_loses_its_connection() -> None:
    class Receiving:
        losses = 0

        def lost(self) -> None:
            self.losses += 1

    loop = asyncio.new_event_loop()
    connection = LoopbackConnection(lambda _: None, lambda _: None, loop)
    connection_end = Receiving()
    connection.connection_end = cast("ConnectionEnd", connection_end)
    connection.deliver(Sync(1, ()))  # on its way, and never heard
    loop.close()
    for seq in range(2, 100):
        connection.deliver(Sync(seq, ()))
    late = Sync(100, ())
    holders = sys.getrefcount(late)
    connection.deliver(late)
    assert connection_end.losses == 1
    assert sys.getrefcount(late) == holders, "it is not kept"
