"""Pages: the connection of a browser to the application that this process serves.

Whatever a page asks is done by the serving runtime, with the page's user and session; its rights are looked at here, by
`allow=` of the handler and by the access document of the space, and again whenever that changes. What a member shows is
told as the latest value only, so that a slow page costs one value for each thing it looks at; one that takes no answers
is not read any further. Everything is answered. A call that is wrong in any way fails alone, by its number. A page that
breaks the protocol (its first message is not `enter`, or a message has no number) is told how, and closed.
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
from headwater.errors import AccessError, AuthoringError, HeadwaterError, InvalidValueError, LimitError, ProtocolError
from headwater.errors import Refused as RefusedError
from headwater.pieces.declarations import HandlerMember
from headwater.pieces.handles import Handler, Options
from headwater.pieces.piece import Piece
from headwater.pieces.signature import given
from headwater.protocol.pages import (
    PAGE_VERSION,
    Done,
    Enter,
    Entered,
    Failed,
    FromPage,
    Look,
    LookAway,
    Made,
    Place,
    Refused,
    Send,
    Shown,
    ToPage,
    Write,
    number_of,
    page_decoder,
    page_encoder,
)
from headwater.replica.document import Document
from headwater.replica.transaction import Transaction
from headwater.runtime.authored import call_in
from headwater.server.application.application import Application
from headwater.server.application.member_json import (
    RIGHT_FOR,
    Broken,
    check_way,
    look,
    needed,
    part_of,
    shown_form,
    space_of,
    write,
)

PATH: Final = "/v1/page"
MOST_LOOKS: Final = 2_000
MOST_UNDER_WAY: Final = 256
MOST_SAID: Final = 1_000
"""Answers that wait for a page to take them; beyond it the page is read no further, until it takes some."""
WRITES: Final = "$writes"
"""The document of a session with the keys of what its page wrote last: those that may come again."""
_INTENTS: Final = ("set", "push", "add", "discard", "increment", "delete")


class _Looked:
    """One look of a page. It has its number from the moment it was asked for."""

    __slots__ = ("document", "right", "space", "subscription")

    def __init__(self) -> None:
        self.document: Document | None = None
        self.space = ""  # whose access document says who may look
        self.right = Right.READ
        self.subscription: Subscription | None = None

    def close(self) -> None:
        if self.subscription is not None:
            self.subscription.close()


class Page:
    """One page in one browser."""

    def __init__(
        self, application: Application, socket: WebSocket, entered: Callable[[], object] = lambda: None
    ) -> None:
        """`entered` is called once the page has proved who its user is, before anything else is read from it."""
        self._application = application
        self._entered = entered
        self._runtime = application.runtime
        self._socket = socket
        self._decoder = page_decoder()
        self._encoder = page_encoder()
        self._limits = application.limits
        self._rate = application.new_rate()
        self._looks: dict[int, _Looked] = {}
        self._access: dict[str, Subscription] = {}  # of the spaces that are looked at
        self._latest: dict[int, Callable[[], ToPage]] = {}  # what is to be shown, the latest of each look
        self._answers: list[Callable[[], ToPage]] = []  # in order
        self._news = asyncio.Event()
        self._room = asyncio.Event()  # it took something that it was told, or something that it asked is over
        self._writing = asyncio.Lock()  # what a person types lands in the order in which it was typed
        self._under_way = 0
        self._is_told = True  # until it takes nothing any more
        self._is_over = False
        self._user = ""
        self._session = ""

    async def run(self) -> None:
        """Serve it until it goes away."""
        await self._socket.accept()
        telling = asyncio.get_running_loop().create_task(self._tell())
        try:
            async with asyncio.timeout(self._limits.hello_s):
                first, _ = await self._next()
            left_s = self._enter(first)
            await self._serve(left_s)
        except (WebSocketDisconnect, TimeoutError):
            pass
        except (ProtocolError, AccessError, InvalidValueError) as error:
            await self._end(str(error))
        finally:
            self._is_over = True
            telling.cancel()
            for looked in self._looks.values():
                looked.close()
            for access in self._access.values():
                access.close()

    async def _serve(self, left_s: float | None) -> None:
        """Take what it says, as long as its token is good."""
        try:
            async with asyncio.timeout(left_s):
                while True:
                    self._take(*await self._next())
                    wait_s = self._rate.take()
                    if wait_s:
                        await asyncio.sleep(wait_s)
                    # What a page asks all at once, as after it was away, waits in its socket: nothing is refused.
                    while self._under_way >= MOST_UNDER_WAY or (len(self._answers) >= MOST_SAID and self._is_told):
                        self._room.clear()
                        await self._room.wait()
        except TimeoutError:
            raise AccessError("your token is over: enter again with another one") from None

    async def _next(self) -> tuple[FromPage | Failed, Value]:
        """The next message, and the value in it. A long one is decoded on another thread: others do not wait."""
        heard = await self._socket.receive()
        if heard["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(heard.get("code", 1005))
        text = heard.get("text")
        if text is None:
            raise ProtocolError("this message cannot be understood: it is no text")
        # fault page.long_message_decoded_on_loop: if False:
        if len(text) > self._limits.aside_bytes:
            return await asyncio.to_thread(self._decode, text)
        return self._decode(text)

    def _decode(self, text: str) -> tuple[FromPage | Failed, Value]:
        """Any thread. A call that is wrong or too long is one that failed; ProtocolError: it has no number."""
        size, most = len(text) if text.isascii() else len(text.encode()), self._limits.page_bytes
        try:
            if size > most:
                raise LimitError(f"a message of {size} bytes is over the limit of {most}. Send less at once.")
            message = self._decoder.decode(text)
            match message:
                case Send():
                    return message, from_json(bytes(message.args))
                case Write():
                    return message, from_json(bytes(message.value))
                case _:
                    return message, None
        except (msgspec.MsgspecError, RecursionError) as error:
            wrong = f"this message cannot be understood: {error}"
        except (LimitError, InvalidValueError) as error:
            wrong = str(error)
        number = number_of(text[:most]) if self._session else None  # Before `enter` nothing is answered by a number.
        # fault page.wrong_call_ends_connection: if True:
        if number is None:
            raise ProtocolError(wrong)
        return Failed(number, wrong), None

    async def _end(self, why: str) -> None:
        try:
            await self._socket.send_text(self._encoder.encode(Failed(0, why)).decode())
            await self._socket.close(1008, why[:120])
        except (RuntimeError, WebSocketDisconnect):
            pass  # It went away first.

    async def leave(self, code: int) -> None:
        """The server ends: it comes back by itself, and says again what had no answer."""
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # It went away first.
            await self._socket.close(code)

    def _enter(self, first: FromPage | Failed) -> float | None:
        """Who it is. Answers for how many seconds that is known."""
        if not isinstance(first, Enter):
            raise ProtocolError("the first message is 'enter', with a version and a token")
        if first.version != PAGE_VERSION:
            raise ProtocolError(f"this page speaks version {first.version}, this server {PAGE_VERSION}: load it again")
        self._user, left_s = self._application.authenticate(first.token, first.user)
        said = first.session or self._application.new_session()
        self._session = self._application.session_of(self._user, said)
        self._entered()
        self._say(Entered(self._user, said, self._limits.page_bytes))
        return left_s

    # ---- what it asks ------------------------------------------------------------------------------

    def _take(self, message: FromPage | Failed, value: Value) -> None:
        match message:
            case LookAway():
                self._look_away(message.id)
            case Look():
                self._begin_look(message)
            case Send():
                self._begin(message.id, self._send(message, value))
            case Write():
                self._begin(message.id, self._write(message, value))
            case Failed():
                self._say(message)
            case Enter():
                raise ProtocolError("this page entered already")

    def _begin(self, id: int, work: Coroutine[Any, Any, None]) -> None:
        """Have it done, whether or not the page stays."""
        self._under_way += 1
        self._runtime.tasks.begin(self._answered(id, work), f"page of {self._user!r}")

    async def _answered(self, id: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except RefusedError as refused:
            self._say(Refused(id, refused.reason))
        except HeadwaterError as error:
            self._say(Failed(id, str(error)))
        except Exception as error:  # A bug of ours or of the author's: whoever asked is told, and so are we.
            self._say(Failed(id, f"{type(error).__name__}: {error}"))
            raise
        finally:
            self._under_way -= 1
            self._room.set()

    def _begin_look(self, message: Look) -> None:
        """A look has its number at once: what is said of it next finds it."""
        if message.id in self._looks:
            self._say(Failed(message.id, f"look {message.id} is there already: give every look a number of its own"))
        elif len(self._looks) >= MOST_LOOKS:
            self._say(Failed(message.id, f"a page looks at {MOST_LOOKS} members at most"))
        else:
            looked = self._looks[message.id] = _Looked()
            self._begin(message.id, self._look(message, looked))

    async def _look(self, message: Look, looked: _Looked) -> None:
        id, member = message.id, message.place.member
        try:
            handle = await self._handle(message.place)
            if not isinstance(handle, Input):
                raise AuthoringError(
                    f"{member!r} is nothing to look at: look at cells, computeds and children, and send to handlers"
                )
            looked.space, looked.right = await self._allowed(message.place, handle, Right.READ)
        except BaseException:
            if self._looks.get(id) is looked:
                del self._looks[id]
            raise
        if self._is_over or self._looks.get(id) is not looked:
            return  # It looked away meanwhile.

        def shown(value: Any) -> None:
            self._latest[id] = lambda: _shown(id, handle, value)
            self._news.set()

        looked.document = handle.document
        looked.subscription = look(
            self._runtime, handle, shown, message.group, lambda: check_way(handle, self._user, self._session)
        )
        if looked.space not in self._access:
            access = self._application.access_of(looked.space)
            self._access[looked.space] = look(self._runtime, access, lambda _: self._look_again(looked.space))

    def _look_again(self, space: str) -> None:
        """Who may do what has changed: what must not be seen any more is not shown any more."""
        right = self._application.right_now(space, self._user)
        for id, looked in tuple(self._looks.items()):
            if looked.space == space and looked.subscription is not None and right < looked.right:
                self._look_away(id)
                self._say(Failed(id, f"{self._user!r} may not see that any more: ask one of the owners of {space}"))

    def _look_away(self, id: int) -> None:
        looked = self._looks.pop(id, None)
        self._latest.pop(id, None)
        if looked is not None:
            looked.close()

    async def _send(self, message: Send, args: Value) -> None:
        place = message.place
        handle = await self._handle(place)
        if not isinstance(handle, Handler):
            instead = "watch it, or write to it" if isinstance(handle, Cell) else "watch it"
            raise AuthoringError(f"{place.member!r} is no handler: {instead}")
        member: HandlerMember = handle.member
        await self._check(space_of(handle), RIGHT_FOR[member.allow])
        options = Options(id=message.key or None)
        result = await handle.sends.send(member, args, options)
        codec = type(self._piece(place)).__outline__.signature(member).result
        self._say(Done(message.id, _json(codec.encode(result))))

    async def _write(self, message: Write, value: Value) -> None:
        place = message.place
        if message.kind not in _INTENTS:
            raise AuthoringError(f"kind {message.kind!r}: use one of {', '.join(_INTENTS)}")
        async with self._writing:
            handle = await self._handle(place)
            if not isinstance(handle, Cell):
                raise AuthoringError(
                    f"{place.member!r} is no cell: only cells can be written, by {', '.join(_INTENTS)}"
                )
            name, _ = await self._allowed(place, handle, Right.WRITE)
            try:
                arguments = () if message.kind == "delete" else (handle.decoded(message.kind, value),)
            except InvalidValueError as error:
                raise InvalidValueError(f"{place.member!r} does not take this: {given(error)}") from None

            def written() -> None:
                write(handle, self._user, self._session, message.kind, *arguments)

            await self._land(name, message, handle.document, written)
        self._say(Done(message.id))

    async def _land(self, name: str, message: Write, document: Document, act: Callable[[], object]) -> None:
        """Write in one transaction with the key, so that what comes again after a lost connection is not done again."""
        core = self._runtime.core
        scope = f"session:{self._session}"
        done = self._runtime.cell(name, WRITES, tuple[str, ...], scope=scope, default=())

        def once() -> bool:
            if message.key and message.key in done.get():
                return False
            act()
            if message.key:
                done.push(message.key, keep=MOST_UNDER_WAY)
            return True

        def attempt(transaction: Transaction) -> None:
            transaction.group = message.group
            if call_in(core.current, core.space(name).replica, transaction, core.visible, once):
                self._made(message.id, document)  # It is committed next, before anybody looks.

        await self._runtime.acting(name, self._user, self._session).land(attempt)

    # ---- where it is, and who may ------------------------------------------------------------------

    def _piece(self, place: Place) -> Piece:
        return self._application.piece(place, self._user, self._session)

    async def _handle(self, place: Place) -> Any:
        """The handle of a member, for whoever may see anything of its space."""
        await self._check(place.space, Right.READ)
        piece = self._piece(place)
        if place.member not in type(piece).__outline__.members:
            there = ", ".join(type(piece).__outline__.members)
            raise AuthoringError(f"{place.cls} has no member {place.member!r}. It has: {there}.")
        return part_of(getattr(piece, place.member), place.path, place.member)

    async def _allowed(self, place: Place, handle: Input[Any], shared: Right) -> tuple[str, Right]:
        """The space that a handle leads to, which may be another one's, and the right that was needed there."""
        space = self._runtime.core.space_name(handle.document)
        right = needed(handle, self._user, self._session, shared)
        await self._check(space, right)
        return space, right

    async def _check(self, space: str, right: Right) -> None:
        self._application.check_space(space)
        if await self._application.right_of(space, self._user) < right:
            raise AccessError(f"{self._user!r} may not do that in {space}: ask one of its owners")

    # ---- telling -----------------------------------------------------------------------------------

    def _say(self, message: ToPage) -> None:
        if not self._is_over:
            self._answers.append(lambda: message)
            self._news.set()

    def _made(self, id: int, document: Document) -> None:
        """A write is made. What was to be shown of that document does not have it, and is told before."""
        for number, looked in self._looks.items():
            if looked.document is document and number in self._latest:
                self._answers.append(self._latest.pop(number))
        self._say(Made(id))

    async def _tell(self) -> None:
        """Give the page what there is to tell, one message after the other."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._answers or self._latest:
                tell = self._answers.pop(0) if self._answers else self._latest.pop(next(iter(self._latest)))
                message = tell()
                try:
                    await self._socket.send_text(self._encoder.encode(message).decode())
                except (RuntimeError, WebSocketDisconnect):
                    self._is_told = False  # It went away; whoever reads from it hears that.
                    return
                finally:
                    self._room.set()


def _json(value: Value) -> Any:
    """A value as JSON that a page can read."""
    return msgspec.Raw(to_json(value))


def _shown(id: int, handle: Input[Any], value: Any) -> ToPage:
    """What is told of a look."""
    if value is ABSENT:
        return Shown(id, False)
    if isinstance(value, Broken):
        return Failed(id, value.error)
    try:
        return Shown(id, True, shown_form(handle, value))
    except HeadwaterError as error:
        return Failed(id, str(error))
