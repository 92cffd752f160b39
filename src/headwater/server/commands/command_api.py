"""The desk: answers what commands ask of a runtime and of the engines under it.

Places are named as people name them, `PIECE.MEMBER#/path`, or by address. What somebody may ask is looked at first, as
for pages; what stands in the log is answered by the engine, everything else by the runtime. It needs no extra.

What there is in a space, for somebody who named something that is not: pieces, and what one of them keeps.

Looks at what is stored, since that needs no application; a cell that still has its default is not stored. Owns these
sentences. Looks through so many documents and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.handle import Input
from headwater.cells.model import Json
from headwater.data.address import SPACE_SCOPE, AddressParts, DocKey, check_space, parse_address
from headwater.data.codec import from_json_form, json_form
from headwater.data.json_form import JsonForm
from headwater.data.path import parse_path
from headwater.data.value import ABSENT, Absent
from headwater.engine.admission.access import ACCESS, Right, wrong_with
from headwater.engine.engine import Engine
from headwater.errors import AbsentError, AuthoringError, HeadwaterError, InvalidValueError, RuleRefusedError
from headwater.pieces.declarations import HandlerMember
from headwater.pieces.handles import Effect, Handler, Options
from headwater.pieces.names import SEPARATOR, document_id, piece_id
from headwater.pieces.signature import given
from headwater.protocol.command_messages import Question
from headwater.protocol.commit import MAIN
from headwater.replica.document import NOT_HERE
from headwater.runtime.binding.each_handles import Each_
from headwater.runtime.binding.home import Home
from headwater.runtime.binding.making import WHILE_OPEN
from headwater.runtime.binding.records import class_named, classes
from headwater.runtime.entry import taking_part
from headwater.runtime.runtime import Runtime
from headwater.scheduler.node import Node
from headwater.server.application.member_json import RIGHT_FOR, check_way, needed, part_of, shown_form, space_of, write
from headwater.server.commands.foreign_reads import Abroad
from headwater.server.commands.json_forms import (
    branch_form,
    compact_form,
    intents_form,
    log_form,
    read_form,
    stored_form,
    why_form,
)
from headwater.server.commands.nodes_json import backlog_form, current_form, nodes_form
from headwater.server.commands.reactions_json import reactions_form

__all__ = ["Desk", "is_address", "members_there", "pieces_there", "place_of"]


ACCESS_EXAMPLE: Final = '{"owners": ["ann"], "writers": ["bob"], "readers": ["*"]}'

T = TypeVar("T")
Check = Callable[[str, Right], Awaitable[None]]


class Engines(Protocol):
    """Whoever has the engines of a runtime's spaces."""

    def sizes(self) -> dict[str, int]:
        """The spaces that are kept, and how many bytes the file of each has. Asking opens none."""

    async def ask(self, space: str, question: Callable[[Engine], T]) -> T:
        """Call a function with the engine of a space, on the thread that owns it."""

    async def copy(self, space: str) -> str:
        """The folder of a copy of the space's file, beside the data, for somebody who has these and removes it."""


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
        if asked.what not in ("set", "send", "spaces") and not (asked.what == "intents" and not asked.space):
            self._check_there(asked.space)
        match asked.what:
            case "log":
                await check(asked.space, Right.OWN)
                return await self._engines.ask(
                    asked.space, lambda engine: log_form(engine, asked.since, asked.branch, asked.limit)
                )
            case "why":
                await check(asked.space, Right.OWN)
                parts = await self._address(asked, user)
                is_declared = not is_address(asked.place)
                return await self._asked_abroad(
                    asked.space,
                    lambda engine, abroad: why_form(engine, parts, asked.limit, abroad, is_declared=is_declared),
                    check,
                )
            case "graph":
                await check(asked.space, Right.OWN)
                return self._graph(asked.space)
            case "spaces":
                await check("", Right.OWN)
                return [{"name": name, "bytes": size} for name, size in self._engines.sizes().items()]
            case "compact":
                await check(asked.space, Right.OWN)
                return await self._engines.ask(asked.space, lambda engine: compact_form(engine, asked.since or 0))
            case "branch":
                await check(asked.space, Right.OWN)
                return await self._engines.ask(asked.space, lambda engine: branch_form(engine, asked))
            case "intents":
                await check(asked.space, Right.OWN)
                return await self._intents([asked.space] if asked.space else list(self._engines.sizes()))
            case "nodes":
                await check(asked.space, Right.OWN)
                return await self._asked_abroad(
                    asked.space, lambda engine, abroad: nodes_form(engine, asked, abroad), check
                )
            case "backlog":
                await check(asked.space, Right.OWN)
                return await self._asked_abroad(
                    asked.space, lambda engine, abroad: backlog_form(engine, asked, abroad), check
                )
            case "current":
                await check(asked.space, Right.OWN)
                return await self._engines.ask(asked.space, lambda engine: current_form(engine, asked))
            case "reactions":
                await check(asked.space, Right.OWN)
                return await self._engines.ask(
                    asked.space, lambda engine: reactions_form(engine, asked.value, asked.limit)
                )
            case "verify":
                await check(asked.space, Right.OWN)
                return {"copy": await self._engines.copy(asked.space)}
            case "get" if is_address(asked.place):
                await check(asked.space, Right.OWN)
                parts = _address(asked)
                branch = asked.branch or MAIN
                return await self._engines.ask(asked.space, lambda engine: read_form(engine, parts, branch, asked.at))
            case "get" if asked.at is not None or asked.branch is not None:
                await check(asked.space, Right.READ)
                return await self._get_stored(asked, user, check)
            case "get":
                await check(asked.space, Right.READ)
                return await self._get(asked, user, check)
            case "set":
                return await self._set(asked, user, check)
            case "send":
                return await self._send(asked, user, check)

    async def _asked_abroad(
        self, space: str, form: Callable[[Engine, Abroad], dict[str, JsonForm]], check: Check
    ) -> JsonForm:
        """What a space knows of nodes, with what others say of what these read there, as far as they may be asked."""
        abroad = Abroad()
        made = await self._engines.ask(space, lambda engine: form(engine, abroad))
        for question, reads in abroad.questions():
            try:
                self._check_there(question.space)
                await check(question.space, Right.OWN)
                said = await self._engines.ask(question.space, partial(current_form, asked=question))
            except HeadwaterError:
                continue  # It is told that this space was not asked.
            abroad.told(reads, said)
        abroad.settle()
        return made

    # ---- members -----------------------------------------------------------------------------------

    async def _get(self, asked: Question, user: str, check: Check) -> JsonForm:
        whole, _, pointer = asked.place.partition("#")
        _, handle = await self._member(asked, user, whole)
        space = await self._check_handle(asked, handle, user, Right.READ, check)
        found = await handle.pull()
        check_way(handle, user, self._runtime.pieces.windows.asked(space, user))
        value: Any = shown_form(handle, found)
        if isinstance(handle, Each_):
            value = {str(each["key"]): {name: of for name, of in each.items() if name != "key"} for each in value}
        for step in parse_path(pointer):
            inside = isinstance(value, Mapping) and step in value
            if not inside and not (isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)):
                raise AbsentError(f"nothing is at {asked.place}: {whole} has no such path")
            value = value[step]
        return {"place": asked.place, "value": value}

    async def _get_stored(self, asked: Question, user: str, check: Check) -> JsonForm:
        """What was stored of a member, at a seq or on a branch: nothing runs there."""
        _, handle = await self._member(asked, user)
        await self._check_handle(asked, handle, user, Right.READ, check)
        key, branch = handle.document.key, asked.branch or MAIN
        parts = AddressParts(None, key.scope, key.id, handle.path)
        form = await self._engines.ask(asked.space, lambda engine: read_form(engine, parts, branch, asked.at))
        return {**form, "place": asked.place}

    async def _set(self, asked: Question, user: str, check: Check) -> JsonForm:
        if is_address(asked.place):
            await check(asked.space, Right.OWN)
            parts = _address(asked)
            handle: Any = self._runtime.cell(asked.space, parts.id, Json, scope=parts.scope)
            handle = handle.below(parts.path) if parts.path else handle
        else:
            await check(asked.space, Right.READ)
            _, handle = await self._member(asked, user)
        if not isinstance(handle, Cell):
            raise AuthoringError(f"{asked.place} is no cell: only cells can be set")
        space = await self._check_handle(asked, handle, user, Right.WRITE, check)
        try:
            value = handle.decoded("set", await asyncio.to_thread(from_json_form, asked.value))
        except InvalidValueError as error:
            raise InvalidValueError(f"{asked.place} does not take this: {given(error)}", path=error.path) from None
        await self._runtime.space(space, user=user).transact(self._written, handle, value, user)
        return {"place": asked.place, "value": json_form(handle.encoded(value))}

    def _written(self, handle: Cell[Any], value: Any, user: str) -> None:
        """Inside a transaction. The serving runtime may write everything, so that what nobody could mend is refused."""
        space = self._runtime.core.space_name(handle.document)
        write(handle, user, self._runtime.pieces.windows.asked(space, user), "set", value)
        document = handle.document
        if document.key == ACCESS:
            access: Cell[Any] = Cell(self._runtime.core, document, codec_for(Json))
            wrong = wrong_with(codec_for(Json).encode(access.get()))
            if wrong is not None:
                raise RuleRefusedError(f"{wrong}, like {ACCESS_EXAMPLE}")

    async def _send(self, asked: Question, user: str, check: Check) -> JsonForm:
        await check(asked.space, Right.READ)
        home, handle = await self._member(asked, user)
        if not isinstance(handle, Handler):
            raise AuthoringError(f"{asked.place} is no handler: only handlers can be sent to")
        member: HandlerMember = handle.member
        await check(space_of(handle), RIGHT_FOR[member.allow])
        payload = await asyncio.to_thread(from_json_form, {} if asked.value is None else asked.value)
        result = await handle.sends.send(member, payload, Options())
        return {"place": asked.place, "result": json_form(home.outline.signature(member).result.encode(result))}

    async def _intents(self, spaces: list[str]) -> JsonForm:
        """What is on its way, of all runtimes of this process."""
        rows = [row for each in (self._runtime, *taking_part()) for row in each.intents()]
        found: list[JsonForm] = []
        for space in spaces:
            found += intents_form(space, rows, await self._engines.ask(space, stored_form))
        return found

    # ---- where it is -------------------------------------------------------------------------------

    async def _address(self, asked: Question, user: str) -> AddressParts:
        if is_address(asked.place):
            return _address(asked)
        home, handle = await self._member(asked, user)
        if isinstance(handle, Effect):  # It keeps nothing; what is known of its last run is under its name.
            return AddressParts(None, SPACE_SCOPE, document_id(home.id, place_of(asked.place)[2]), ())
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
        session = self._runtime.pieces.windows.asked(asked.space, user)
        handle = getattr(home.facet("session", user, session).piece, name)
        return home, part_of(handle, parse_path(pointer), name)

    async def _check_handle(self, asked: Question, handle: Any, user: str, shared: Right, check: Check) -> str:
        """Whether somebody may do this where a handle leads, which may be another space. Answers which."""
        if not isinstance(handle, Input):
            raise AuthoringError(f"{asked.place} is nothing to look at")
        space = self._runtime.core.space_name(handle.document)
        await check(space, needed(handle, user, self._runtime.pieces.windows.asked(space, user), shared))
        return space

    def _check_there(self, space: str) -> None:
        known = {*self._engines.sizes(), *(each.name for each in self._runtime.core.spaces())}
        if check_space(space) not in known:
            raise AbsentError(f"there is no space {space!r} here: `headwater spaces` lists those that there are")

    def _graph(self, space: str) -> JsonForm:
        """What runs in a space, without what only keeps things here."""
        head = f"{space}/"

        def is_shown(node: Node) -> bool:
            return node.id.startswith(head) and WHILE_OPEN not in node.id

        looking = self._runtime.introspection
        return {**looking.snapshot(is_shown).as_json(), "dot": looking.dot(is_shown)}

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
            there = ""
            if space in self._engines.sizes():
                there = await self._engines.ask(space, lambda engine: pieces_there(engine, name))
            raise AbsentError(f"{space} has no piece {name!r}.{there} To make one, name its class: Class:{name}.member")
        found = [each for each in classes() if cls in (each.__name__, each.__outline__.name)]
        if not found:
            raise AbsentError(f"there is no class {cls!r} of pieces here")
        return pieces.home(local, found[-1], name)


def _address(asked: Question) -> AddressParts:
    parts = parse_address(asked.place)
    if parts.space is not None and parts.space != asked.space:
        raise AuthoringError(f"{asked.place!r} is in space {parts.space!r}, and the command reads {asked.space!r}")
    return parts


RECORD: Final = "@"
PAGE: Final = 200
PAGES: Final = 10
SHOWN: Final = 8


def pieces_there(engine: Engine, name: str, branch: str = MAIN) -> str:
    """Which pieces a space has, those with a similar name first. Empty: it has none."""
    found: list[str] = []
    after: str | None = ""
    for _ in range(PAGES):
        page = engine.documents(SPACE_SCOPE, branch=branch, after=after or "", limit=PAGE)
        ids = [each.doc.id.rpartition(":") for each in page.items]
        found += [id for id, _, stored in ids if stored == RECORD and SEPARATOR not in id]
        after = page.next
        if after is None:
            break
    return f" Pieces there: {_some(name, found, more=after is not None)}." if found else ""


def members_there(engine: Engine, id: str, member: str, branch: str = MAIN) -> str:
    """What a piece keeps. Empty: there is no such piece."""
    record: Any = engine.read(DocKey(SPACE_SCOPE, document_id(id, RECORD)), branch=branch).value
    if isinstance(record, Absent):
        return ""
    head = document_id(id, "")
    page = engine.documents(SPACE_SCOPE, branch=branch, after=head, limit=PAGE)
    stored = [each.doc.id.removeprefix(head) for each in page.items if each.doc.id.startswith(head)]
    found = [name for name in stored if name != RECORD and "/" not in name]
    kept = f"It keeps {_some(member, found)}" if found else "It keeps nothing yet"
    return f" {kept}; a cell that still has its default is known to the application only: --app FILE."


def _some(name: str, found: list[str], *, more: bool = False) -> str:
    """A few of many, those first that were perhaps meant."""
    close = get_close_matches(name, found, SHOWN)
    listed = [*close, *[each for each in sorted(found) if each not in close]]
    return ", ".join(listed[:SHOWN]) + (", ..." if more or len(listed) > SHOWN else "")
