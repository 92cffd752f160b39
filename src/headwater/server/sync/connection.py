"""One WebSocket connection of the server: messages in, messages out, and every way in which a peer can misbehave.

Takes in one message at a time and no faster than the limits allow, so that a fast sender is slowed by its own socket:
so many a second, so many commits without a verdict, so many questions without an answer, and none while much waits to
be taken. What the peer does not take is held up to a bound; beyond it the connection is closed, and its session comes
back later.
A peer outside the protocol gets one `Problem` that says what was wrong, and then the end of the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from headwater.engine.sync.error_codes import ending_code
from headwater.engine.sync.host import ThreadHost
from headwater.errors import AccessError, HeadwaterError, LimitError, ProtocolError
from headwater.protocol.framing import framed
from headwater.protocol.messages import (
    Encoding,
    FromEngine,
    FromReplica,
    Open,
    Problem,
    Renew,
    Sync,
    Transact,
    Verdicts,
    decode_from_replica,
)
from headwater.runtime.reception import Reception
from headwater.server.operation.limits import Rate
from headwater.server.operation.service import Service
from headwater.server.operation.spaces import Outbox
from headwater.server.sync.backpressure import Flow, Question, fitting, refusals
from headwater.server.sync.wire import FLUSHED, Wire

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendEvent = Callable[[MutableMapping[str, Any]], Awaitable[None]]

GOING_AWAY: Final = 1001
REFUSED: Final = 1008
FAILED: Final = 1011
TOGETHER: Final = 64  # frames of commits that are handed over at once
RENEWAL: Final = 200  # messages that a token costs which has to be checked: everybody waits for the arithmetic
BUSY_S: Final = 0.005  # how long nobody is listened to whose space has much to do


class Connection:
    """One peer, from its acceptance to its end. Belongs to the event loop's thread, except for what says otherwise."""

    __slots__ = (
        "_arrived",
        "_closing",
        "_commits",
        "_encoding",
        "_entering",
        "_flow",
        "_hello_timer",
        "_host",
        "_is_held",
        "_is_late",
        "_is_stopped",
        "_is_text",
        "_loop",
        "_outbox",
        "_over",
        "_overlong",
        "_question",
        "_rate",
        "_reception",
        "_service",
        "_space",
        "_token_timer",
        "_waits_for_room",
        "_wire",
    )

    def __init__(self, service: Service, encoding: Encoding, wire: Wire) -> None:
        limits = service.limits
        self._service = service
        self._encoding: Encoding = encoding
        self._is_text = encoding == "json"
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._reception = Reception(
            self._said, self._authenticate, service.spaces.host_of, limits.engine, answer=lambda said: self.tell([said])
        )
        self._flow = Flow(limits)
        self._rate = Rate(limits.rate, limits.burst, service.clock)
        self._arrived: deque[tuple[bytes, bool]] = deque()  # what was read before reading was stopped: one read's worth
        self._commits: list[Transact] = []  # taken in, and not handed over yet
        self._is_held = False  # nothing is taken in, for one of the reasons that follow:
        self._is_late = False  # the rate that it has, or a busy space; a message waits for its time
        self._waits_for_room = False  # for verdicts
        self._entering: asyncio.Task[None] | None = None  # its space, or a long message, is not ready
        self._is_stopped = False  # no more will be taken in
        self._question: Question | None = None  # waits until some of those before it are answered
        self._overlong: Verdicts | None = None  # about commits that were not taken in, after all others have theirs
        self._closing: int | None = None  # the code to close with, after what was said
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._space = ""
        self._host: ThreadHost | None = None  # of its space, once there is one, and where that puts what it says
        self._outbox: Outbox | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._token_timer: asyncio.TimerHandle | None = None

    async def run(self, receive: Receive, send: SendEvent) -> None:
        """Serve the peer until it goes or has to."""
        self._hello_timer = self._loop.call_later(self._service.limits.hello_s, self._silent)
        self._wire.attach(self._take, self._hand_over, self._room, self._too_long)
        try:
            event = await receive()
            if event["type"] == FLUSHED:
                await send({"type": "websocket.close", "code": self._closing, "reason": ""})
        except OSError:
            pass  # It went in this very moment.
        finally:
            self._closing = self._closing or GOING_AWAY
            for timer in (self._hello_timer, self._token_timer):
                if timer is not None:
                    timer.cancel()
            if self._entering is not None:
                await asyncio.wait([self._entering])
            if self._space:
                self._reception.lost()
                self._service.spaces.leave(self._space)
            if not self._over.done():
                self._over.set_result(None)

    # ---- from the peer -----------------------------------------------------------------------------

    def _take(self, data: bytes, is_text: bool) -> None:
        if self._is_held:
            self._arrived.append((data, is_text))
        elif self._closing is None:
            try:
                self._check(data, is_text)
                wait_s = max(self._rate.take(), self._busy_s())
                if wait_s:
                    self._is_late = True
                    self._hold()
                    self._loop.call_later(wait_s, self._take_late, data)
                else:
                    self._receive(data)
            except HeadwaterError as error:
                self.refuse(error)

    def _check(self, data: bytes, is_text: bool) -> None:
        if is_text is not self._is_text:
            kind = "text" if self._is_text else "binary"
            raise ProtocolError(f"this sub-protocol puts its messages into {kind} frames")
        metrics = self._service.metrics
        metrics.messages_in += 1
        metrics.bytes_in += len(data)

    def _busy_s(self) -> float:
        """How long to wait for the space: while much waits for it, everybody is slowed, so that nobody is refused."""
        host = self._host
        return BUSY_S if host is not None and 2 * host.depth >= self._service.limits.engine.backlog_frames else 0.0

    def _take_late(self, data: bytes) -> None:
        """Its turn has come, by the rate that the connection has, or the space may have time for it."""
        self._is_late = False
        try:
            if self._closing is None and not self._is_stopped:
                self._receive(data)
        except HeadwaterError as error:
            self.refuse(error)
        self._go_on()

    def _receive(self, data: bytes) -> None:
        if len(data) > self._service.limits.aside_bytes:
            self._hand_over()
            self._hold()
            self._entering = self._loop.create_task(self._decode_aside(data))
        else:
            self._received(self._decode(data), len(data))

    def _decode(self, data: bytes) -> FromReplica | Verdicts:
        """Any thread. A message, or the verdicts on the commits of one that is too long."""
        limits = self._service.limits
        if len(data) > limits.message_bytes:
            return refusals(data, self._encoding, limits.message_bytes, limits.engine.frame_commits)
        return decode_from_replica(data, self._encoding, limits.engine.values)

    async def _decode_aside(self, data: bytes) -> None:
        """Take in a long message without keeping everybody else waiting for its decoding. What follows it waits."""
        try:
            message = await asyncio.to_thread(self._decode, data)
            self._entering = None
            if self._closing is None and not self._is_stopped:
                self._received(message, len(data))
        except HeadwaterError as error:
            self._entering = None
            self.refuse(error)
        self._go_on()

    def _received(self, message: FromReplica | Verdicts, size: int) -> None:
        if isinstance(message, Verdicts):
            self._refuse_commits(message)
            return
        if isinstance(message, Open) and not self._space and self._reception.is_greeted:
            self._hold()
            self._entering = self._loop.create_task(self._enter(message))
            return
        if isinstance(message, Transact):
            self._flow.sent(size)
            self._commits.append(message)
            if len(self._commits) >= TOGETHER or not self._has_room():
                self._hand_over()
            return
        self._hand_over()
        if isinstance(message, Question):
            self._ask(message)
        else:
            if isinstance(message, Renew):
                self._rate.spend(RENEWAL)
            self._reception.receive(message)

    def _ask(self, question: Question) -> None:
        """Ask for documents, unless so many answers are still to come, or wait to be taken, that this one can wait."""
        if self._flow.may_ask(self._wire.queued_bytes):
            self._question = None
            self._flow.asked(question.id)
            self._reception.receive(question)
        else:
            self._question = question
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        self._hold()
        self._waits_for_room = True
        # What came in between found nobody who waits. Not now: what is being taken in goes first.
        self._loop.call_soon(self._room)

    def _hand_over(self) -> None:
        """Give the host all commits of one read in one moment, so that they share a group, and an fsync."""
        commits, self._commits = self._commits, []
        try:
            for message in commits:
                self._reception.receive(message)
        except HeadwaterError as error:
            self.refuse(error)
        if commits and not self._has_room():
            self._wait_for_room()

    def _has_room(self) -> bool:
        """Whether the commits without a verdict are few enough, and short enough, for more to be taken in."""
        return self._reception.has_room and self._flow.has_room()

    def _refuse_commits(self, verdicts: Verdicts) -> None:
        """Nothing else is taken in until every commit before them has its verdict: they come in order (C5)."""
        if not self._reception.is_open:
            raise ProtocolError("Transact before a session is open. Send Hello, then Open.")
        self._hand_over()
        self._overlong = verdicts
        self._hold()
        self._waits_for_room = True
        self._room()

    async def _enter(self, message: Open) -> None:
        """Open the space, off the event loop if it is not open yet. Nothing is taken in before it is."""
        try:
            await self._service.spaces.enter(message.space)
            self._space, self._outbox = message.space, self._service.spaces.outbox_of(message.space)
            self._host = self._service.spaces.host_of(message.space)
            self._host.lend_thread(self._loop.call_soon)
            self._reception.receive(message)
        except HeadwaterError as error:
            self.refuse(error)
        self._entering = None
        self._go_on()

    def _hold(self) -> None:
        self._is_held = True
        self._wire.hold()

    def take_no_more(self) -> None:
        """Leave what the peer says from now on to whoever serves it next. What was taken in before is answered."""
        self._is_stopped = True
        self._hold()

    def _go_on(self) -> None:
        """Take in what had arrived already, and read again, unless there is another reason to wait."""
        self._is_held = self._is_stopped or self._is_late or self._waits_for_room or self._entering is not None
        while self._arrived and not self._is_held:
            self._take(*self._arrived.popleft())
        self._hand_over()
        if not self._is_held:
            self._wire.release()

    def _room(self) -> None:
        """A session has so many commits in flight: no more are taken in until some have their verdict. And so many
        questions: no more until some are answered, and the answers taken."""
        if not self._waits_for_room:
            return
        if self._overlong is not None and self._flow.is_idle():
            verdicts, self._overlong = self._overlong, None
            self.tell([verdicts])
        if self._overlong is not None or not self._has_room():
            return
        if self._question is not None and not self._flow.may_ask(self._wire.queued_bytes):
            return
        self._waits_for_room = False
        if self._question is not None and self._closing is None and not self._is_stopped:
            try:
                self._ask(self._question)
            except HeadwaterError as error:
                self.refuse(error)
        self._go_on()

    def _authenticate(self, token: str) -> str:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        user, lasts_s = self._service.authenticate(token)
        self._wire.allow(self._service.limits.refused_bytes)
        if self._token_timer is not None:
            self._token_timer.cancel()  # of the token that this one renews
            self._token_timer = None
        if lasts_s is not None:
            self._token_timer = self._loop.call_later(min(lasts_s, 86_400 * 365), self._outlived)
        return user

    def _too_long(self) -> None:
        """A message is not read. Who has said hello is only closed: it hears why from the closing itself."""
        if not self._reception.is_greeted:
            most = self._service.limits.hello_bytes
            self.refuse(LimitError(f"a message before Hello is over the limit of {most} bytes. Send Hello first."))

    def _silent(self) -> None:
        self.refuse(ProtocolError(f"no Hello came within {self._service.limits.hello_s:g} s"))

    def _outlived(self) -> None:
        self.refuse(AccessError("the token is over. Renew it before that, or connect again with a new one."))

    @property
    def queued_bytes(self) -> int:
        return self._wire.queued_bytes

    # ---- to the peer -------------------------------------------------------------------------------

    def refuse(self, error: HeadwaterError) -> None:
        """Say what was wrong and end the connection."""
        code = ending_code(error)
        self._service.log.info("refused", code=code, problem=str(error), space=self._space)
        self.tell([Problem(code, str(error))])

    def _said(self, message: FromEngine) -> None:
        """The hub says something, on its host's thread, where an outbox gathers it."""
        assert self._outbox is not None
        self._outbox.post(self, message)

    def tell(self, messages: list[FromEngine]) -> None:
        """Any thread. Give the peer some messages at once. After a fatal problem nothing more is said."""
        if self._closing is not None:
            return
        service = self._service
        frames: list[bytes] = []
        is_fatal = False
        said: list[FromEngine] = []
        for message in messages:
            fits, encoded = fitting(message, self._encoding, service.limits.answer_bytes)
            said.append(fits)
            frames.append(framed(encoded, text=self._is_text))
            if isinstance(fits, Problem) and fits.fatal:
                if isinstance(message, Sync):
                    # It would be told as much on its next connection: it has to ask again for what it watches.
                    self._reception.peer.leaves_nothing = True
                is_fatal = True
                self._closing = REFUSED
                break
        data = b"".join(frames) if len(frames) > 1 else frames[0]
        service.metrics.told(said, len(data))
        queued = self._wire.put(data, last=is_fatal)
        if self._flow.told(said, frames, queued - len(data)) and self._closing is None:
            self._closing = REFUSED  # At once: whatever else is said in this moment must not wait behind it.
            self._loop.call_soon_threadsafe(self._too_slow, queued)
        if self._waits_for_room or is_fatal:
            self._loop.call_soon_threadsafe(self._room)

    def _too_slow(self, queued_bytes: int) -> None:
        """A peer that does not read: what it misses it is told when it comes back."""
        self._service.metrics.slow.inc()
        self._service.log.info("too slow", queued_bytes=queued_bytes, space=self._space)
        self._wire.drop()

    def failed(self, error: Exception) -> None:
        """Any thread. A defect of ours kept the peer from being told something. Its session comes back and hears it."""
        self._closing = FAILED
        self._service.connection_failed(self._space, error)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wire.drop)

    def close(self, code: int) -> None:
        """End the connection after what was said."""
        if self._closing is None:
            self._closing = code
            self._wire.end()

    async def closed(self) -> None:
        """What was said has been given to the socket, and the end of it, too; or that cannot be any more."""
        await asyncio.wait([self._over])
