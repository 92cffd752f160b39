"""One WebSocket connection of a replica.

A connection processes one message at a time. It stops reading when the peer exceeds its rate, its commits without a
verdict, its questions without an answer, or the bytes that wait for it, so that TCP slows a fast sender. A peer that
takes no messages is disconnected at a bound, and resumes its session later. A peer that violates the protocol gets one
`Problem`, and the connection ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from headwater.engine.sync.error_codes import ending_code
from headwater.engine.sync.host import ThreadHost
from headwater.errors import AccessError, HeadwaterError, LimitError, ProtocolError
from headwater.protocol.framing import make_frame
from headwater.protocol.messages import (
    Encoding,
    FromEngine,
    FromReplica,
    Open,
    Opened,
    Problem,
    Renew,
    Sync,
    Transact,
    Verdicts,
    decode_from_replica,
)
from headwater.runtime.channel.connection_end import ConnectionEnd
from headwater.server.operation.limits import RateLimit
from headwater.server.operation.service import Service
from headwater.server.operation.spaces import SendBuffer
from headwater.server.sync.backpressure import Backpressure, EngineQuestion, fit_message, reject_oversize_commits
from headwater.server.sync.wire import FLUSHED, Wire

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendEvent = Callable[[MutableMapping[str, Any]], Awaitable[None]]

GOING_AWAY: Final = 1001
REFUSED: Final = 1008
FAILED: Final = 1011


class ServerConnection:
    """One peer from acceptance to end. Used by the event loop's thread, except where a method says otherwise."""

    __slots__ = (
        "_arrived",
        "_backpressure",
        "_closing",
        "_commits",
        "_connection_end",
        "_encoding",
        "_ended",
        "_hello_timer",
        "_host",
        "_is_delayed",
        "_is_paused",
        "_is_stopped",
        "_is_text",
        "_loop",
        "_oversize_verdicts",
        "_pending",
        "_question",
        "_rate",
        "_send_buffer",
        "_service",
        "_space",
        "_token_timer",
        "_user",
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
        self._connection_end = ConnectionEnd(
            self._on_engine_message,
            self._authenticate,
            service.spaces.host_of,
            limits.engine,
            answer=lambda message: self.send([message]),
        )
        self._backpressure = Backpressure(limits)
        self._rate = RateLimit(limits.rate, limits.burst, service.clock)
        self._arrived: deque[tuple[bytes, bool]] = deque()  # read before reading stopped: the rest of one read
        self._commits: list[Transact] = []  # received, and not submitted yet
        self._is_paused = False  # no message is processed, for one of the next four reasons:
        self._is_delayed = False  # the rate, or a busy space
        self._waits_for_room = False  # for verdicts, answers, or the peer to take bytes
        self._pending: asyncio.Task[None] | None = None  # opens the space, or decodes a long message
        self._is_stopped = False  # for ever
        self._question: EngineQuestion | None = None  # waits for answers to earlier questions
        self._oversize_verdicts: Verdicts | None = None  # sent after the verdicts on all earlier commits
        self._closing: int | None = None  # the code to close with, after the messages sent before
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._space = ""
        self._user = ""  # once Hello was accepted
        self._host: ThreadHost | None = None  # of the space, with its send buffer, once that is open
        self._send_buffer: SendBuffer | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._token_timer: asyncio.TimerHandle | None = None

    async def run(self, receive: Receive, send: SendEvent) -> None:
        """Serve the peer until the connection ends."""
        self._hello_timer = self._loop.call_later(self._service.limits.nothing.seconds, self._on_hello_timeout)
        self._wire.attach(self._on_message, self._submit_commits, self._resume_if_room, self._on_oversize_message)
        try:
            event = await receive()
            if event["type"] == FLUSHED:
                await send({"type": "websocket.close", "code": self._closing, "reason": ""})
        except OSError:
            pass  # The peer disconnected at the same moment.
        finally:
            self._closing = self._closing or GOING_AWAY
            for timer in (self._hello_timer, self._token_timer):
                if timer is not None:
                    timer.cancel()
            if self._pending is not None:
                await asyncio.wait([self._pending])
            if self._space:
                self._connection_end.lost()
                self._service.spaces.leave(self._space)
                self._service.accounts.leave_space(self._user, self._space)
            if self._user:
                self._service.accounts.disconnect(self._user)
            if not self._ended.done():
                self._ended.set_result(None)

    # ---- from the peer -----------------------------------------------------------------------------

    def _on_message(self, data: bytes, is_text: bool) -> None:
        """Check the size and the rate of a frame, and decode it: now, or after the delay of the rate limit."""
        if self._is_paused:
            self._arrived.append((data, is_text))
        elif self._closing is None:
            try:
                self._check_frame(data, is_text)
                wait_s = max(self._rate.admit(), self._busy_wait_s())
                if wait_s:
                    self._is_delayed = True
                    self._pause_reading()
                    self._loop.call_later(wait_s, self._on_delayed_message, data)
                else:
                    self._decode_message(data)
            except HeadwaterError as error:
                self.refuse(error)

    def _check_frame(self, data: bytes, is_text: bool) -> None:
        if is_text is not self._is_text:
            kind = "text" if self._is_text else "binary"
            raise ProtocolError(f"this sub-protocol puts its messages into {kind} frames")
        metrics = self._service.metrics
        metrics.messages_in += 1
        metrics.bytes_in += len(data)

    def _busy_wait_s(self) -> float:
        """Return how long a message has to wait because its space has many messages; that slows every peer and refuses
        none.
        """
        host, limits = self._host, self._service.limits
        return limits.busy_s if host is not None and 2 * host.depth >= limits.engine.backlog_frames else 0.0

    def _on_delayed_message(self, data: bytes) -> None:
        """Process a message that had to wait for the rate, or for a busy space."""
        self._is_delayed = False
        try:
            if self._closing is None and not self._is_stopped:
                self._decode_message(data)
        except HeadwaterError as error:
            self.refuse(error)
        self._resume_reading()

    def _decode_message(self, data: bytes) -> None:
        if len(data) > self._service.limits.aside_bytes:
            self._submit_commits()
            self._pause_reading()
            self._pending = self._loop.create_task(self._decode_aside(data))
        else:
            self._process(self._decode(data), len(data))

    def _decode(self, data: bytes) -> FromReplica | Verdicts:
        """Decode a message; return rejections of its commits if it is too long. Any thread."""
        limits = self._service.limits
        if len(data) > limits.message_bytes:
            return reject_oversize_commits(data, self._encoding, limits.message_bytes, limits.engine.frame_commits)
        return decode_from_replica(data, self._encoding, limits.engine.values)

    async def _decode_aside(self, data: bytes) -> None:
        """Decode a long message on another thread. Later messages wait for it."""
        try:
            message = await asyncio.to_thread(self._decode, data)
            self._pending = None
            if self._closing is None and not self._is_stopped:
                self._process(message, len(data))
        except HeadwaterError as error:
            self._pending = None
            self.refuse(error)
        self._resume_reading()

    def _process(self, message: FromReplica | Verdicts, size: int) -> None:
        if isinstance(message, Verdicts):
            self._refuse_commits(message)
            return
        if isinstance(message, Open) and not self._space and self._connection_end.is_greeted:
            if self._hello_timer is not None:
                self._hello_timer.cancel()
            self._pause_reading()
            self._pending = self._loop.create_task(self._open_space(message))
            return
        if isinstance(message, Transact):
            self._backpressure.count_frame(size)
            self._commits.append(message)
            if len(self._commits) >= self._service.limits.frames_at_once or not self._has_room():
                self._submit_commits()
            return
        self._submit_commits()
        if isinstance(message, EngineQuestion):
            self._ask_engine(message)
        else:
            if isinstance(message, Renew):
                self._rate.charge(self._service.limits.renewal_cost)
            self._connection_end.receive(message)

    def _ask_engine(self, question: EngineQuestion) -> None:
        """Ask the engine, or stop reading until few enough answers are missing or waiting to be taken."""
        if self._backpressure.may_ask(self._wire.queued_bytes):
            self._question = None
            self._backpressure.count_question(question.id)
            self._connection_end.receive(question)
        else:
            self._question = question
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        self._pause_reading()
        self._waits_for_room = True
        # An answer that came before the flag was set resumed nothing. Called later, after the current message.
        self._loop.call_soon(self._resume_if_room)

    def _submit_commits(self) -> None:
        """Submit all commits of one read at once, so that they share a group and an fsync."""
        commits, self._commits = self._commits, []
        try:
            for message in commits:
                self._connection_end.receive(message)
        except HeadwaterError as error:
            self.refuse(error)
        if commits and not self._has_room():
            self._wait_for_room()

    def _has_room(self) -> bool:
        """Return whether the commits without a verdict are few and short enough to read more."""
        return self._connection_end.has_room and self._backpressure.has_room()

    def _refuse_commits(self, verdicts: Verdicts) -> None:
        """Send rejections after the verdicts on all earlier commits, since verdicts come in order (C5). Until then
        nothing is read.
        """
        if not self._connection_end.is_open:
            raise ProtocolError("Transact before a session is open. Send Hello, then Open.")
        self._submit_commits()
        self._oversize_verdicts = verdicts
        self._pause_reading()
        self._waits_for_room = True
        self._resume_if_room()

    async def _open_space(self, message: Open) -> None:
        """Open the space, off the event loop if necessary. Until then nothing is read."""
        try:
            accounts = self._service.accounts
            accounts.enter_space(self._user, message.space, is_written=self._service.spaces.is_written(message.space))
            try:
                await self._service.spaces.enter(message.space)
            except BaseException:
                accounts.leave_space(self._user, message.space)
                raise
            self._space, self._send_buffer = message.space, self._service.spaces.send_buffer_of(message.space)
            self._host = self._service.spaces.host_of(message.space)
            self._host.lend_thread(self._loop.call_soon)
            self._connection_end.receive(message)
        except HeadwaterError as error:
            self.refuse(error)
        self._pending = None
        self._resume_reading()

    def _pause_reading(self) -> None:
        self._is_paused = True
        self._wire.hold()

    def stop_reading(self) -> None:
        """Read no more messages. Everything received before is answered; the peer sends the rest on its next
        connection.
        """
        self._is_stopped = True
        self._pause_reading()

    def _resume_reading(self) -> None:
        """Process the messages that were read before, and read again, unless another reason to wait is left."""
        self._is_paused = self._is_stopped or self._is_delayed or self._waits_for_room or self._pending is not None
        while self._arrived and not self._is_paused:
            self._on_message(*self._arrived.popleft())
        self._submit_commits()
        if not self._is_paused:
            self._wire.release()

    def _resume_if_room(self) -> None:
        """Resume reading once enough commits have verdicts, and enough questions have answers that the peer has
        taken.
        """
        if not self._waits_for_room:
            return
        if self._oversize_verdicts is not None and self._backpressure.is_idle():
            verdicts, self._oversize_verdicts = self._oversize_verdicts, None
            self.send([verdicts])
        if self._oversize_verdicts is not None or not self._has_room():
            return
        if self._question is not None and not self._backpressure.may_ask(self._wire.queued_bytes):
            return
        self._waits_for_room = False
        if self._question is not None and self._closing is None and not self._is_stopped:
            try:
                self._ask_engine(self._question)
            except HeadwaterError as error:
                self.refuse(error)
        self._resume_reading()

    def _authenticate(self, token: str) -> str:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        user, lasts_s = self._service.authenticate(token)
        if not self._user:
            self._service.accounts.connect(user)
            self._user = user
            self._wire.admit(self._service.limits.token.message_bytes)
            self._hello_timer = self._loop.call_later(self._service.limits.token.seconds, self._on_open_timeout)
        if self._token_timer is not None:
            self._token_timer.cancel()  # of the token that this one replaces
            self._token_timer = None
        if lasts_s is not None:
            self._token_timer = self._loop.call_later(min(lasts_s, 86_400 * 365), self._on_token_expired)
        return user

    def _on_oversize_message(self) -> None:
        """Refuse a message that is too long before Hello. After Hello the close code says so."""
        if not self._connection_end.is_greeted:
            most = self._service.limits.nothing.message_bytes
            self.refuse(LimitError(f"a message before Hello is over the limit of {most} bytes. Send Hello first."))

    def _on_hello_timeout(self) -> None:
        self.refuse(ProtocolError(f"no Hello came within {self._service.limits.nothing.seconds:g} s"))

    def _on_open_timeout(self) -> None:
        self.refuse(ProtocolError(f"no Open came within {self._service.limits.token.seconds:g} s of Hello"))

    def _on_token_expired(self) -> None:
        self.refuse(AccessError("the token is over. Renew it before that, or connect again with a new one."))

    @property
    def queued_bytes(self) -> int:
        return self._wire.queued_bytes

    # ---- to the peer -------------------------------------------------------------------------------

    def refuse(self, error: HeadwaterError) -> None:
        """Send a fatal problem and end the connection."""
        code = ending_code(error)
        self._service.note_refusal(code, type(error).__name__, self._space)
        self.send([Problem(code, str(error))])

    def _on_engine_message(self, message: FromEngine) -> None:
        """Put a message of the hub into the send buffer. Called on the host's thread."""
        assert self._send_buffer is not None
        self._send_buffer.post(self, message)

    def send(self, messages: list[FromEngine]) -> None:
        """Send messages at once. After a fatal problem nothing more is sent. Any thread."""
        if self._closing is not None:
            return
        service = self._service
        frames: list[bytes] = []
        is_fatal = False
        said: list[FromEngine] = []
        for message in messages:
            if isinstance(message, Opened):  # The access document gives the user a right.
                self._loop.call_soon_threadsafe(self._wire.allow, service.limits.right.message_bytes)
            fits, encoded = fit_message(message, self._encoding, service.limits.answer_bytes)
            said.append(fits)
            frames.append(make_frame(encoded, text=self._is_text))
            if isinstance(fits, Problem) and fits.fatal:
                if isinstance(message, Sync):
                    # The same message would be too long on the next connection, too: the peer has to watch anew.
                    self._connection_end.peer.leaves_nothing = True
                is_fatal = True
                self._closing = REFUSED
                break
        data = b"".join(frames) if len(frames) > 1 else frames[0]
        service.metrics.count_sent(said, len(data))
        queued = self._wire.put(data, last=is_fatal)
        if self._backpressure.count_sent(said, frames, queued - len(data)) and self._closing is None:
            self._closing = REFUSED  # At once, so that no later message waits behind it.
            self._loop.call_soon_threadsafe(self._drop_slow_peer, queued)
        if self._waits_for_room or is_fatal:
            self._loop.call_soon_threadsafe(self._resume_if_room)

    def _drop_slow_peer(self, queued_bytes: int) -> None:
        """Disconnect a peer that does not read. It gets the missing messages when it resumes its session."""
        self._service.metrics.slow.inc()
        self._service.log.info("too slow", queued_bytes=queued_bytes, space=self._space)
        self._wire.drop()

    def on_send_failed(self, error: Exception) -> None:
        """Disconnect after a defect kept a message from being sent. The session resumes and gets it. Any thread."""
        self._closing = FAILED
        self._service.connection_failed(self._space, error)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wire.drop)

    def close(self, code: int) -> None:
        """End the connection after the messages sent before."""
        if self._closing is None:
            self._closing = code
            self._wire.end()

    async def wait_closed(self) -> None:
        """Wait until everything was given to the socket, or the connection is lost."""
        await asyncio.wait([self._ended])
