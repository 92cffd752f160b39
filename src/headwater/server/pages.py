"""Pages: the connection of a browser to the application that this process serves.

Whatever a page asks is done by the serving runtime, with the page's user and session; its rights are looked at here, by
`allow=` of the handler and by the access document of the space. What a member shows is told as the latest value only,
so that a slow page costs one value for each thing it looks at. A page that breaks the rules is told how, and closed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from headwater.cells.cell import Cell
from headwater.cells.handle import Input
from headwater.cells.host import Subscription
from headwater.data.codec import from_json, to_json
from headwater.data.value import Value
from headwater.engine.access import Right
from headwater.errors import AccessError, AuthoringError, HeadwaterError, InvalidValueError, ProtocolError
from headwater.errors import Refused as RefusedError
from headwater.pieces.declarations import HandlerMember
from headwater.pieces.handles import Handler, Options
from headwater.pieces.piece import Piece
from headwater.protocol.pages import (
    PAGE_VERSION,
    Done,
    Enter,
    Entered,
    Failed,
    FromPage,
    Look,
    LookAway,
    Place,
    Refused,
    Send,
    Shown,
    ToPage,
    Write,
    page_decoder,
    page_encoder,
)
from headwater.server.application import Application

PATH: Final = "/v1/page"
MOST_LOOKS: Final = 2_000
MOST_UNDER_WAY: Final = 256
MOST_SAID: Final = 10_000
"""Answers that wait for a page to take them; one that takes none is let go."""
_RIGHT_FOR: Final = {"reader": Right.READ, "writer": Right.WRITE, "owner": Right.OWN}
_INTENTS: Final = ("set", "push", "add", "discard", "increment", "delete")


class Page:
    """One page in one browser."""

    def __init__(self, application: Application, socket: WebSocket) -> None:
        self._application = application
        self._socket = socket
        self._decoder = page_decoder()
        self._encoder = page_encoder()
        self._looks: dict[int, Subscription] = {}
        self._latest: dict[int, ToPage] = {}  # values to be shown, the latest of each
        self._answers: list[ToPage] = []
        self._news = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._user = ""
        self._session = ""

    async def run(self) -> None:
        """Serve it until it goes away."""
        await self._socket.accept()
        telling = asyncio.get_running_loop().create_task(self._tell())
        try:
            async with asyncio.timeout(self._application.hello_s):
                first = await self._next()
            self._enter(first)
            while True:
                self._take(await self._next())
        except (WebSocketDisconnect, TimeoutError):
            pass
        except (ProtocolError, AccessError, InvalidValueError) as error:
            await self._end(str(error))
        finally:
            telling.cancel()
            for look in self._looks.values():
                look.close()
            for task in self._under_way:
                task.cancel()

    async def _next(self) -> FromPage:
        text = await self._socket.receive_text()
        try:
            return self._decoder.decode(text)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"this message cannot be understood: {error}") from None

    async def _end(self, why: str) -> None:
        try:
            await self._socket.send_text(self._encoder.encode(Failed(0, why)).decode())
            await self._socket.close(1008, why[:120])
        except (RuntimeError, WebSocketDisconnect):
            pass  # It went away first.

    def _enter(self, first: FromPage) -> None:
        if not isinstance(first, Enter):
            raise ProtocolError("the first message is 'enter'")
        if first.version != PAGE_VERSION:
            raise ProtocolError(f"this page speaks version {first.version}, this server {PAGE_VERSION}: load it again")
        self._user = self._application.authenticate(first.token, first.user)
        self._session = first.session or self._application.new_session()
        self._say(Entered(self._user, self._session))

    # ---- what it asks ------------------------------------------------------------------------------

    def _take(self, message: FromPage) -> None:
        match message:
            case Look():
                self._begin(self._look(message))
            case LookAway():
                look = self._looks.pop(message.id, None)
                self._latest.pop(message.id, None)
                if look is not None:
                    look.close()
            case Send() | Write():
                if len(self._under_way) >= MOST_UNDER_WAY:
                    self._say(Failed(message.id, f"{MOST_UNDER_WAY} of your events are under way: wait for some"))
                    return
                self._begin(self._send(message) if isinstance(message, Send) else self._write(message))
            case Enter():
                raise ProtocolError("this page entered already")

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _look(self, message: Look) -> None:
        if message.id in self._looks:
            self._say(Failed(message.id, f"look {message.id} is there already: give every look a number of its own"))
            return
        if len(self._looks) >= MOST_LOOKS:
            self._say(Failed(message.id, f"a page looks at {MOST_LOOKS} members at most"))
            return
        id = message.id
        try:
            await self._check(message.place.space, Right.READ)
            handle = self._handle(message.place)
            if not isinstance(handle, Input):
                raise AuthoringError(f"{message.place.member!r} is nothing to look at")

            def shown(value: Any) -> None:
                self._latest[id] = Shown(id, True, _plain(handle, value))
                self._news.set()

            self._looks[id] = handle.sink(shown, group=message.group)
        except HeadwaterError as error:
            self._say(Failed(id, str(error)))

    async def _send(self, message: Send) -> None:
        place = message.place
        try:
            handle = self._handle(place)
            if not isinstance(handle, Handler):
                raise AuthoringError(f"{place.member!r} is no handler")
            member: HandlerMember = handle.member
            await self._check(place.space, _RIGHT_FOR[member.allow])
            options = Options(id=message.key or None)
            result = await handle.sends.send(member, _value(message.args), options)
            codec = type(self._piece(place)).__outline__.signature(member).result
            self._say(Done(message.id, _json(codec.encode(result))))
        except RefusedError as refused:
            self._say(Refused(message.id, refused.reason))
        except HeadwaterError as error:
            self._say(Failed(message.id, str(error)))

    async def _write(self, message: Write) -> None:
        place = message.place
        try:
            handle = self._handle(place)
            if not isinstance(handle, Cell):
                raise AuthoringError(f"{place.member!r} is no cell")
            if message.kind not in _INTENTS:
                raise AuthoringError(f"kind {message.kind!r}: use one of {', '.join(_INTENTS)}")
            own = handle.document.key.scope != "space"
            await self._check(place.space, Right.READ if own else Right.WRITE)
            act = getattr(handle, message.kind)
            if message.kind == "delete":
                act(group=message.group)
            else:
                act(handle.decoded(message.kind, _value(message.value)), group=message.group)
            self._say(Done(message.id))
        except HeadwaterError as error:
            self._say(Failed(message.id, str(error)))

    # ---- where it is -------------------------------------------------------------------------------

    def _piece(self, place: Place) -> Piece:
        return self._application.piece(place, self._user, self._session)

    def _handle(self, place: Place) -> Any:
        piece = self._piece(place)
        member = type(piece).__outline__.members.get(place.member)
        if member is None:
            raise AuthoringError(f"{place.cls} has no member {place.member!r}")
        handle = getattr(piece, place.member)
        return handle.below(place.path) if place.path else handle

    async def _check(self, space: str, right: Right) -> None:
        self._application.check_space(space)
        if await self._application.right_of(space, self._user) < right:
            raise AccessError(f"{self._user!r} may not do that in {space}: ask one of its owners")

    # ---- telling -----------------------------------------------------------------------------------

    def _say(self, message: ToPage) -> None:
        self._answers.append(message)
        self._news.set()

    async def _tell(self) -> None:
        """Give the page what there is to tell, one message after the other."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._answers or self._latest:
                if len(self._answers) > MOST_SAID:
                    await self._socket.close(1008, "it takes nothing")
                    return
                if self._answers:
                    message: ToPage = self._answers.pop(0)
                else:
                    message = self._latest.pop(next(iter(self._latest)))
                try:
                    await self._socket.send_text(self._encoder.encode(message).decode())
                except (RuntimeError, WebSocketDisconnect):
                    return  # It went away; whoever reads from it hears that.


def _value(raw: Any) -> Value:
    """What a page said, as a value: checked like everything that comes from outside."""
    return from_json(json.dumps(raw))


def _json(value: Value) -> Any:
    """A value as JSON that a page can read."""
    return msgspec.Raw(to_json(value))


def _plain(handle: Input[Any], value: Any) -> Any:
    """What is shown: the value as it is stored, or, of children, where they are."""
    if isinstance(value, Mapping) and any(isinstance(each, Piece) for each in value.values()):
        return [_child(key, each) for key, each in value.items()]
    if isinstance(value, Piece):
        return _child("", value)
    return _json(handle.encoded(value))


def _child(key: Any, piece: Piece) -> dict[str, Any]:
    bound: Any = piece.__bound__
    return {"key": key, "cls": type(piece).__outline__.name, "id": bound.home.id}
