"""The connection of a page in a browser to the application of this server.

A page has a user and a session. The serving runtime does what the page asks, after its rights were checked by `allow=`
of the handler and by the access document of the space; watches are checked again when that document changes. Of a
watched member only the latest value is kept to be sent, so that a slow page costs one value for each watch; a page that
takes no answers is not read. Every call is answered. A wrong call fails alone, by its id. A page that violates the
protocol (its first message is not `enter`, or a message has no id) gets an error, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from headwater.cells.cell import Cell
from headwater.cells.handle import Input
from headwater.cells.runtime_port import Subscription
from headwater.data.codec import from_json, to_json
from headwater.data.value import ABSENT, Value
from headwater.engine.admission.access import Right
from headwater.errors import (
    AccessError,
    AuthoringError,
    HeadwaterError,
    InvalidValueError,
    LimitError,
    ProtocolError,
    Refused,
)
from headwater.pieces.declarations import HandlerMember
from headwater.pieces.handles import Handler, Options
from headwater.pieces.piece import Piece
from headwater.pieces.signature import argument_error
from headwater.protocol.pages import (
    PAGE_VERSION,
    Done,
    Enter,
    Entered,
    FromPage,
    Look,
    LookAway,
    Made,
    PageWrite,
    Place,
    RequestFailed,
    RequestRefused,
    Send,
    Shown,
    ToPage,
    number_of,
    page_decoder,
    page_encoder,
)
from headwater.replica.document import Document
from headwater.replica.transaction import Transaction
from headwater.server.application.application import Application, no_right
from headwater.server.application.member_json import (
    RIGHT_FOR,
    Unreadable,
    check_link_target,
    handler_space,
    member_form,
    needed_right,
    select_part,
    watch_member,
    write_as_user,
)

PATH: Final = "/v1/page"
WRITES: Final = "$writes"
"""The document of a session with the keys of its page's latest writes, which the page may send again."""
_INTENTS: Final = ("set", "push", "add", "discard", "increment", "delete")


class _Watch:
    """A member that a page watches. It has its id from the moment of the request."""

    __slots__ = ("document", "right", "space", "subscription")

    def __init__(self) -> None:
        self.document: Document | None = None
        self.space = ""  # the space whose access document decides
        self.right = Right.READ
        self.subscription: Subscription | None = None

    def close(self) -> None:
        if self.subscription is not None:
            self.subscription.close()


class OpenPage:
    """One page in one browser."""

    def __init__(
        self, application: Application, socket: WebSocket, entered: Callable[[], object] = lambda: None
    ) -> None:
        """`entered` is called once the user is authenticated, before the next message is read."""
        self._application = application
        self._entered = entered
        self._runtime = application.runtime
        self._socket = socket
        self._decoder = page_decoder()
        self._encoder = page_encoder()
        self._limits = application.limits
        self._rate = application.new_rate_limit()
        self._watches: dict[int, _Watch] = {}
        self._access: dict[str, Subscription] = {}  # watches of access documents, by space
        self._latest: dict[int, Callable[[], ToPage]] = {}  # the latest value of each watch that is not sent yet
        self._answers: list[Callable[[], ToPage]] = []  # in order
        self._news = asyncio.Event()
        self._progress = asyncio.Event()  # set when an answer was sent, or a call ended
        self._writing = asyncio.Lock()  # writes of a page are committed in the order of their messages
        self._calls = 0
        self._can_send = True  # False after a failed send
        self._is_over = False
        self._accounts = application.accounts
        self._is_counted = False  # among the connections of its user
        self._user = ""
        self._session = ""

    async def run(self) -> None:
        """Serve the page until it disconnects."""
        await self._socket.accept()
        telling = asyncio.get_running_loop().create_task(self._send_queued())
        try:
            async with asyncio.timeout(self._limits.nothing.seconds):
                first, _ = await self._receive()
            left_s = self._authenticate(first)
            await self._serve(left_s)
        except (WebSocketDisconnect, TimeoutError):
            pass
        except (ProtocolError, AccessError, InvalidValueError, LimitError) as error:
            await self._close_with_error(str(error))
        finally:
            self._is_over = True
            if self._is_counted:
                self._accounts.disconnect(self._user)
            telling.cancel()
            for watch in self._watches.values():
                watch.close()
            for access in self._access.values():
                access.close()

    async def _serve(self, left_s: float | None) -> None:
        """Process messages until the token expires."""
        try:
            async with asyncio.timeout(left_s):
                while True:
                    self._dispatch(*await self._receive())
                    wait_s = self._rate.admit()
                    if wait_s:
                        await asyncio.sleep(wait_s)
                    # Further calls of a page that asks many at once wait in its socket.
                    while self._is_full():
                        self._progress.clear()
                        await self._progress.wait()
        except TimeoutError:
            raise AccessError("your token is over: enter again with another one") from None

    def _is_full(self) -> bool:
        """Return whether so many calls run, or so many answers wait to be sent, that no further call is read."""
        limits = self._limits
        return self._calls >= limits.page_calls or (len(self._answers) >= limits.page_answers and self._can_send)

    async def _receive(self) -> tuple[FromPage | RequestFailed, Value]:
        """Return the next message and its value. A long message is decoded on another thread."""
        heard = await self._socket.receive()
        if heard["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(heard.get("code", 1005))
        text = heard.get("text")
        if text is None:
            raise ProtocolError("this message cannot be understood: it is not text")
        # fault page.long_message_decoded_on_loop: if False:
        if len(text) > self._limits.aside_bytes:
            return await asyncio.to_thread(self._decode, text)
        return self._decode(text)

    def _decode(self, text: str) -> tuple[FromPage | RequestFailed, Value]:
        """Decode a message; a wrong or too long call becomes `RequestFailed`. Raises ProtocolError if it has no id. Any
        thread.
        """
        size, most = len(text) if text.isascii() else len(text.encode()), self._limits.page_bytes
        try:
            if size > most:
                raise LimitError(f"a message of {size} bytes is over the limit of {most}. Send less at once.")
            message = self._decoder.decode(text)
            match message:
                case Send():
                    return message, from_json(bytes(message.args))
                case PageWrite():
                    return message, from_json(bytes(message.value))
                case _:
                    return message, None
        except (msgspec.MsgspecError, RecursionError) as error:
            wrong = f"this message cannot be understood: {error}"
        except (LimitError, InvalidValueError) as error:
            wrong = str(error)
        number = number_of(text[:most]) if self._session else None  # Before `enter` no id is answered.
        # fault page.wrong_call_ends_connection: if True:
        if number is None:
            raise ProtocolError(wrong)
        return RequestFailed(number, wrong), None

    async def _close_with_error(self, why: str) -> None:
        try:
            await self._socket.send_text(self._encoder.encode(RequestFailed(0, why)).decode())
            await self._socket.close(1008, why[:120])
        except (RuntimeError, WebSocketDisconnect):
            pass  # The page disconnected first.

    async def close(self, code: int) -> None:
        """Close the connection because the server ends. The page reconnects and repeats calls without an answer."""
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # It disconnected first.
            await self._socket.close(code)

    def _authenticate(self, first: FromPage | RequestFailed) -> float | None:
        """Authenticate the page by its first message, and return the seconds until its token expires."""
        if not isinstance(first, Enter):
            raise ProtocolError("the first message is 'enter', with a version and a token")
        if first.version != PAGE_VERSION:
            raise ProtocolError(f"this page speaks version {first.version}, this server {PAGE_VERSION}: load it again")
        self._user, left_s = self._application.authenticate(first.token, first.user)
        said = first.session or self._application.new_session()
        self._session = self._application.session_of(self._user, said)
        self._accounts.connect(self._user)
        self._is_counted = True
        self._entered()
        self._queue_answer(Entered(self._user, said, self._limits.page_bytes))
        return left_s

    # ---- what it asks ------------------------------------------------------------------------------

    def _dispatch(self, message: FromPage | RequestFailed, value: Value) -> None:
        match message:
            case LookAway():
                self._end_watch(message.id)
            case Look():
                self._start_watch(message)
            case Send():
                self._start_call(message.id, self._send(message, value))
            case PageWrite():
                self._start_call(message.id, self._write(message, value))
            case RequestFailed():
                self._queue_answer(message)
            case Enter():
                raise ProtocolError("this page entered already")

    def _start_call(self, id: int, work: Coroutine[Any, Any, None]) -> None:
        """Run a call to its end, even if the page disconnects."""
        self._calls += 1
        self._runtime.tasks.begin(self._run_call(id, work), f"page of {self._user!r}")

    async def _run_call(self, id: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Refused as refused:
            self._queue_answer(RequestRefused(id, refused.reason))
        except HeadwaterError as error:
            self._queue_answer(RequestFailed(id, str(error)))
        except Exception as error:  # A defect of Headwater or the application: answered, and raised.
            self._queue_answer(RequestFailed(id, f"{type(error).__name__}: {error}"))
            raise
        finally:
            self._calls -= 1
            self._progress.set()

    def _start_watch(self, message: Look) -> None:
        """Start a watch, and register its id at once, since the next message may refer to it."""
        if message.id in self._watches:
            self._queue_answer(
                RequestFailed(message.id, f"look {message.id} is there already: give every look a number of its own")
            )
        elif len(self._watches) >= self._limits.page_looks:
            self._queue_answer(RequestFailed(message.id, f"a page looks at {self._limits.page_looks} members at most"))
        else:
            watch = self._watches[message.id] = _Watch()
            self._start_call(message.id, self._watch(message, watch))

    async def _watch(self, message: Look, watch: _Watch) -> None:
        id, member = message.id, message.place.member
        try:
            handle = await self._find_handle(message.place)
            if not isinstance(handle, Input):
                raise AuthoringError(
                    f"{member!r} is nothing to look at: look at cells, computeds and children, and send to handlers"
                )
            watch.space, watch.right = await self._check_handle(handle, Right.READ)
        except BaseException:
            if self._watches.get(id) is watch:
                del self._watches[id]
            raise
        if self._is_over or self._watches.get(id) is not watch:
            return  # The page ended the watch meanwhile.

        def on_state(value: Any) -> None:
            self._latest[id] = lambda: _watch_message(id, handle, value)
            self._news.set()

        watch.document = handle.document
        watch.subscription = watch_member(
            self._runtime, handle, on_state, message.group, lambda: check_link_target(handle, self._user, self._session)
        )
        if watch.space not in self._access:
            access = self._application.access_cell(watch.space)
            self._access[watch.space] = watch_member(self._runtime, access, lambda _: self._recheck_access(watch.space))

    def _recheck_access(self, space: str) -> None:
        """End the watches that the changed access document no longer allows."""
        right = self._application.right_if_loaded(space, self._user)
        for id, watch in tuple(self._watches.items()):
            if watch.space == space and watch.subscription is not None and right < watch.right:
                self._end_watch(id)
                self._queue_answer(
                    RequestFailed(id, f"{self._user!r} may not see that any more: ask one of the owners of {space}")
                )

    def _end_watch(self, id: int) -> None:
        watch = self._watches.pop(id, None)
        self._latest.pop(id, None)
        if watch is not None:
            watch.close()

    async def _send(self, message: Send, args: Value) -> None:
        place = message.place
        handle = await self._find_handle(place)
        if not isinstance(handle, Handler):
            instead = "watch it, or write to it" if isinstance(handle, Cell) else "watch it"
            raise AuthoringError(f"{place.member!r} is not a handler: {instead}")
        member: HandlerMember = handle.member
        await self._check_right(handler_space(handle), RIGHT_FOR[member.allow])
        options = Options(id=message.key or None)
        result = await handle.sender.send(member, args, options)
        codec = type(self._find_piece(place)).__schema__.signature(member).result
        self._queue_answer(Done(message.id, _value_json(codec.encode(result))))

    async def _write(self, message: PageWrite, value: Value) -> None:
        place = message.place
        if message.kind not in _INTENTS:
            raise AuthoringError(f"kind {message.kind!r}: use one of {', '.join(_INTENTS)}")
        async with self._writing:
            handle = await self._find_handle(place)
            if not isinstance(handle, Cell):
                raise AuthoringError(
                    f"{place.member!r} is not a cell: only cells can be written, by {', '.join(_INTENTS)}"
                )
            name, _ = await self._check_handle(handle, Right.WRITE)
            try:
                arguments = () if message.kind == "delete" else (handle.decoded(message.kind, value),)
            except InvalidValueError as error:
                raise InvalidValueError(f"{place.member!r} does not take this: {argument_error(error)}") from None

            def write_handle() -> None:
                write_as_user(handle, self._user, self._session, message.kind, *arguments)

            await self._write_once(name, message, handle.document, write_handle)
        self._queue_answer(Done(message.id))

    async def _write_once(self, name: str, message: PageWrite, document: Document, act: Callable[[], object]) -> None:
        """Write in one transaction with the message's key, so that a write that is sent again is not done twice."""
        core = self._runtime.core
        scope = f"session:{self._session}"
        done = self._runtime.cell(name, WRITES, tuple[str, ...], scope=scope, default=())

        def write_if_new() -> bool:
            if message.key and message.key in done.get():
                return False
            act()
            if message.key:
                done.push(message.key, keep=self._limits.page_calls)
            return True

        def attempt(transaction: Transaction) -> None:
            transaction.group = message.group
            if core.call_in(core.space(name).replica, transaction, write_if_new):
                self._queue_made(message.id, document)  # It is committed next, before any watch sees it.

        await self._runtime.acting(name, self._user, self._session).land(attempt)

    # ---- where it is, and who may ------------------------------------------------------------------

    def _find_piece(self, place: Place) -> Piece:
        return self._application.piece(place, self._user, self._session)

    async def _find_handle(self, place: Place) -> Any:
        """Return the handle of a member, for a user who may read its space."""
        await self._check_right(place.space, Right.READ)
        piece = self._find_piece(place)
        if place.member not in type(piece).__schema__.members:
            there = ", ".join(type(piece).__schema__.members)
            raise AuthoringError(f"{place.cls} has no member {place.member!r}. It has: {there}.")
        return select_part(getattr(piece, place.member), place.path, place.member)

    async def _check_handle(self, handle: Input[Any], shared: Right) -> tuple[str, Right]:
        """Check the right that a handle needs, and return its space, which may be another one, and that right."""
        space = self._runtime.core.space_name(handle.document)
        right = needed_right(handle, self._user, self._session, shared)
        await self._check_right(space, right)
        return space, right

    async def _check_right(self, space: str, right: Right) -> None:
        # fault page.absent_space_told: if False:
        if not self._application.has_opened(space) and not self._application.may_create_space(self._user):
            raise no_right(self._user, space)
        self._application.check_open_space(space)
        if await self._application.right_of(space, self._user) < right:
            raise no_right(self._user, space)

    # ---- telling -----------------------------------------------------------------------------------

    def _queue_answer(self, message: ToPage) -> None:
        if not self._is_over:
            self._answers.append(lambda: message)
            self._news.set()

    def _queue_made(self, id: int, document: Document) -> None:
        """Queue the answer to a write behind values of the document that do not contain the write yet."""
        for number, watch in self._watches.items():
            if watch.document is document and number in self._latest:
                self._answers.append(self._latest.pop(number))
        self._queue_answer(Made(id))

    async def _send_queued(self) -> None:
        """Send queued answers and values, one message after the other."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._answers or self._latest:
                tell = self._answers.pop(0) if self._answers else self._latest.pop(next(iter(self._latest)))
                message = tell()
                try:
                    await self._socket.send_text(self._encoder.encode(message).decode())
                except (RuntimeError, WebSocketDisconnect):
                    self._can_send = False  # The page disconnected; `_serve` ends with its next read.
                    return
                finally:
                    self._progress.set()


def _value_json(value: Value) -> Any:
    """Return a value as JSON for a page."""
    return msgspec.Raw(to_json(value))


def _watch_message(id: int, handle: Input[Any], value: Any) -> ToPage:
    """Return the message to a page about the state of a watch."""
    if value is ABSENT:
        return Shown(id, False)
    if isinstance(value, Unreadable):
        return RequestFailed(id, value.error)
    try:
        return Shown(id, True, member_form(handle, value))
    except HeadwaterError as error:
        return RequestFailed(id, str(error))
