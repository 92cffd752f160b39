"""The desk: answers what commands ask of a runtime and of the engines under it.

Places are named as people name them, `PIECE.MEMBER#/path`, or by address. What somebody may ask is looked at first, as
for pages; what stands in the log is answered by the engine, everything else by the runtime. It needs no extra.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from headwater.cells.cell import Cell
from headwater.cells.handle import Input
from headwater.cells.model import Json
from headwater.data.address import SPACE_SCOPE, AddressParts, DocKey, doc_text, parse_address
from headwater.data.codec import from_json_form, json_form
from headwater.data.json_form import JsonForm
from headwater.data.path import parse_path
from headwater.data.value import ABSENT
from headwater.engine.access import Right
from headwater.engine.engine import Engine
from headwater.errors import AbsentError, AuthoringError, InvalidValueError
from headwater.pieces.declarations import HandlerMember
from headwater.pieces.handles import Handler, Options
from headwater.pieces.names import document_id, piece_id
from headwater.pieces.piece import Piece
from headwater.pieces.states import Failed, Pending, Ready
from headwater.protocol.commit import MAIN
from headwater.protocol.desk import Question
from headwater.replica.document import NOT_HERE
from headwater.runtime.binding.home import Home
from headwater.runtime.binding.records import class_named, classes
from headwater.runtime.runtime import Runtime
from headwater.server.forms import log_form, read_form, why_form

__all__ = ["Desk", "is_address", "place_of"]

T = TypeVar("T")
Check = Callable[[str, Right], Awaitable[None]]
RIGHT_FOR = {"reader": Right.READ, "writer": Right.WRITE, "owner": Right.OWN}


class Engines(Protocol):
    """Whoever has the engines of a runtime's spaces."""

    async def ask(self, space: str, question: Callable[[Engine], T]) -> T:
        """Call a function with the engine of a space, on the thread that owns it."""


def is_address(place: str) -> bool:
    """Whether a place is written as an address, SCOPE:ID or SPACE/SCOPE:ID."""
    head, colon, _ = place.partition("#")[0].partition(":")
    return bool(colon) and head.rpartition("/")[2] in (SPACE_SCOPE, "user", "session")


def place_of(place: str) -> tuple[str, str, str, str]:
    """`[CLASS:]PIECE.MEMBER[#/path]` in its parts: class, piece, member and path."""
    names, _, pointer = place.partition("#")
    cls, colon, rest = names.rpartition(":")
    piece, dot, member = rest.rpartition(".")
    if not dot or not piece or not member:
        raise AuthoringError(f"{place!r} names no member: write PIECE.MEMBER, like ann.total, or ann.lines#/0/qty")
    return cls if colon else "", piece, member, pointer


class Desk:
    """Answers questions about one runtime."""

    __slots__ = ("_engines", "_runtime")

    def __init__(self, runtime: Runtime, engines: Engines) -> None:
        self._runtime = runtime
        self._engines = engines

    async def answer(self, asked: Question, user: str, check: Check) -> JsonForm:
        """The answer to a question of a user, if that user may ask it."""
        match asked.what:
            case "log":
                await check(asked.space, Right.OWN)
                return await self._engines.ask(
                    asked.space, lambda engine: log_form(engine, asked.since, asked.branch, asked.limit)
                )
            case "why":
                await check(asked.space, Right.OWN)
                parts = await self._address(asked, user)
                return await self._engines.ask(asked.space, lambda engine: why_form(engine, parts, asked.limit))
            case "graph":
                await check(asked.space, Right.OWN)
                head = f"{asked.space}/"
                chosen = self._runtime.introspection.snapshot(lambda node: node.id.startswith(head))
                dot = self._runtime.introspection.dot(lambda node: node.id.startswith(head))
                return {**chosen.as_json(), "dot": dot}
            case "get" if is_address(asked.place):
                await check(asked.space, Right.OWN)
                parts = _address(asked)
                branch = asked.branch or MAIN
                return await self._engines.ask(asked.space, lambda engine: read_form(engine, parts, branch, asked.at))
            case "get":
                await check(asked.space, Right.READ)
                return await self._get(asked, user)
            case "set":
                return await self._set(asked, user, check)
            case "send":
                return await self._send(asked, user, check)

    # ---- members -----------------------------------------------------------------------------------

    async def _get(self, asked: Question, user: str) -> JsonForm:
        whole, _, pointer = asked.place.partition("#")
        home, handle = await self._member(asked, user, whole)
        if not isinstance(handle, Input):
            raise AuthoringError(f"{whole} is nothing to look at")
        value = _shown(home, handle, whole, await handle.pull())
        for step in parse_path(pointer):
            inside = isinstance(value, Mapping) and step in value
            if not inside and not (isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)):
                raise AbsentError(f"nothing is at {asked.place}: {whole} has no such path")
            value = value[step]  # type: ignore[index]
        return {"place": asked.place, "value": value}

    async def _set(self, asked: Question, user: str, check: Check) -> JsonForm:
        if is_address(asked.place):
            await check(asked.space, Right.OWN)
            parts = _address(asked)
            handle: Any = self._runtime.cell(asked.space, parts.id, Json, scope=parts.scope)
            handle = handle.below(parts.path) if parts.path else handle
        else:
            _, handle = await self._member(asked, user)
            own = isinstance(handle, Cell) and handle.document.key.scope != SPACE_SCOPE
            await check(asked.space, Right.READ if own else Right.WRITE)
        if not isinstance(handle, Cell):
            raise AuthoringError(f"{asked.place} is no cell: only cells can be set")
        try:
            value = handle.decoded("set", from_json_form(asked.value))
        except InvalidValueError as error:
            raise InvalidValueError(f"{asked.place} does not take this: {error}", path=error.path) from None
        await self._runtime.space(asked.space, user=user).transact(lambda: handle.set(value))
        return {"place": asked.place, "value": json_form(handle.encoded(value))}

    async def _send(self, asked: Question, user: str, check: Check) -> JsonForm:
        home, handle = await self._member(asked, user)
        if not isinstance(handle, Handler):
            raise AuthoringError(f"{asked.place} is no handler: only handlers can be sent to")
        member: HandlerMember = handle.member
        await check(asked.space, RIGHT_FOR[member.allow])
        result = await handle.sends.send(member, from_json_form(asked.value or {}), Options())
        return {"place": asked.place, "result": json_form(home.outline.signature(member).result.encode(result))}

    # ---- where it is -------------------------------------------------------------------------------

    async def _address(self, asked: Question, user: str) -> AddressParts:
        if is_address(asked.place):
            return _address(asked)
        _, handle = await self._member(asked, user)
        if not isinstance(handle, Input):
            raise AuthoringError(f"{asked.place} is nothing that is kept")
        key = handle.document.key
        return AddressParts(None, key.scope, key.id, handle.path)

    async def _member(self, asked: Question, user: str, place: str = "") -> tuple[Home, Any]:
        cls, piece, name, pointer = place_of(place or asked.place)
        home = await self._home(asked.space, cls, piece)
        member = home.outline.members.get(name)
        if member is None:
            there = ", ".join(home.outline.members)
            raise AuthoringError(f"{home.outline.name} has no member {name!r}. It has: {there}.")
        session = self._runtime.pieces.own_session(asked.space)
        handle = getattr(home.facet("session", user, session).piece, name)
        return home, handle.below(parse_path(pointer)) if pointer else handle

    async def _home(self, space: str, cls: str, name: str) -> Home:
        pieces, core = self._runtime.pieces, self._runtime.core
        local = core.space(space)
        known = pieces.known(space, name)
        if known is not None:
            return known
        cell = pieces.records.cell(local, piece_id(name))
        await core.loaded(cell.document)
        value = cell.document.value
        if value is not ABSENT and value is not NOT_HERE:
            record = cell.memo().decode(value)
            return pieces.home(local, class_named(record.cls), record.name)
        if not cls:
            raise AbsentError(f"{space} has no piece {name!r}. To make one, name its class: Class:{name}.member")
        found = [each for each in classes() if cls in (each.__name__, each.__outline__.name)]
        if not found:
            raise AbsentError(f"there is no class {cls!r} of pieces here")
        return pieces.home(local, found[-1], name)


def _address(asked: Question) -> AddressParts:
    parts = parse_address(asked.place)
    if parts.space is not None and parts.space != asked.space:
        raise AuthoringError(f"{asked.place!r} is in space {parts.space!r}, and the command reads {asked.space!r}")
    return parts


def _shown(home: Home, handle: Input[Any], place: str, value: Any) -> JsonForm:
    """What a member shows, as plain JSON."""
    if isinstance(value, (Pending, Ready, Failed)):
        member = home.outline.members[place_of(place)[2]]
        last = value.value if isinstance(value, Ready) else value.last
        shown: dict[str, JsonForm] = {"state": type(value).__name__.lower()}
        if last is not None:
            shown["value"] = json_form(home.outline.codec(member).encode(last))
        return {**shown, "error": value.error} if isinstance(value, Failed) else shown
    if isinstance(value, Piece):
        return _child(value)
    if isinstance(value, Mapping) and any(isinstance(each, Piece) for each in value.values()):
        return {str(key): _child(each) for key, each in value.items()}
    return json_form(handle.encoded(value))


def _child(piece: Piece) -> JsonForm:
    bound: Any = piece.__bound__
    return {"class": type(piece).__outline__.name, "piece": bound.home.id, "document": doc_text(_record(bound.home))}


def _record(home: Home) -> DocKey:
    return DocKey(SPACE_SCOPE, document_id(home.id, "@"))
