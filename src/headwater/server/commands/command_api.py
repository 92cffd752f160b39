"""The command API: answers questions of commands from a runtime and the engines below it.

A place is written `PIECE.MEMBER#/path`, or as an address. The right of the user is checked first. Questions about the
log are answered by the engine, other questions by the runtime. Works without the extra `server`.

If a place does not exist, the error lists pieces or members that do, from stored documents; a cell with its default
value is not stored. The number of documents that are searched for that is bounded.
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
from headwater.pieces.signature import argument_error
from headwater.protocol.command_messages import CommandQuestion, is_address, split_place
from headwater.protocol.commit import MAIN
from headwater.replica.document import NOT_HERE
from headwater.runtime.api.entry_points import taking_part
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.pieces.child_set import EachHandle
from headwater.runtime.pieces.classes import imported_classes
from headwater.runtime.pieces.instance import PieceInstance
from headwater.runtime.pieces.records import record_document
from headwater.runtime.pieces.view import WHILE_OPEN
from headwater.scheduler.node import Node
from headwater.server.application.member_json import (
    RIGHT_FOR,
    check_link_target,
    handler_space,
    member_form,
    needed_right,
    select_part,
    write_as_user,
)
from headwater.server.commands.foreign_reads import ForeignReads
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
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits

__all__ = ["CommandApi", "is_address", "split_place", "suggest_members", "suggest_pieces"]


ACCESS_EXAMPLE: Final = '{"owners": ["ann"], "writers": ["bob"], "readers": ["*"]}'

T = TypeVar("T")
Check = Callable[[str, Right], Awaitable[None]]


class Engines(Protocol):
    """Access to the engines of a runtime's spaces.

    A server has `command_route.ServedEngines`, a command on a directory `cli.data.target.EmbeddedEngines`.
    """

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each space's file, without opening a space."""

    async def ask(self, space: str, question: Callable[[Engine], T]) -> T:
        """Call a function with the engine of a space, on the engine's thread."""

    async def copy(self, space: str) -> str:
        """Copy the file of a space, and return the name of the folder beside the data. The caller removes it."""


class CommandApi:
    """Answers questions about one runtime."""

    __slots__ = ("_engines", "_limits", "_runtime")

    def __init__(self, runtime: Runtime, engines: Engines, limits: ServerLimits = DEFAULT_SERVER_LIMITS) -> None:
        self._runtime = runtime
        self._engines = engines
        self._limits = limits

    async def answer(self, asked: CommandQuestion, user: str, check: Check) -> JsonForm:
        """Answer a question of a user after a check of the user's right."""
        if asked.what not in ("set", "send", "spaces") and not (asked.what == "intents" and not asked.space):
            # First: a user without a right gets the same answer whether or not the space exists.
            # fault desk.absent_space_told: self._check_space_exists(asked.space)
            await check(asked.space, Right.READ)
            self._check_space_exists(asked.space)
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
                return await self._ask_with_foreign_reads(
                    asked.space,
                    lambda engine, foreign: why_form(
                        engine, parts, asked.limit, foreign, is_declared=is_declared, limits=self._limits
                    ),
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
                return await self._ask_with_foreign_reads(
                    asked.space, lambda engine, foreign_reads: nodes_form(engine, asked, foreign_reads), check
                )
            case "backlog":
                await check(asked.space, Right.OWN)
                return await self._ask_with_foreign_reads(
                    asked.space, lambda engine, foreign_reads: backlog_form(engine, asked, foreign_reads), check
                )
            case "current":
                await check(asked.space, Right.OWN)
                return await self._engines.ask(asked.space, lambda engine: current_form(engine, asked))
            case "reactions":
                await check(asked.space, Right.OWN)
                return await self._engines.ask(
                    asked.space, lambda engine: reactions_form(engine, asked.value, asked.limit, self._limits)
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

    async def _ask_with_foreign_reads(
        self, space: str, form: Callable[[Engine, ForeignReads], dict[str, JsonForm]], check: Check
    ) -> JsonForm:
        """Answer a question about nodes, and ask the other spaces that these nodes read, as far as the user may ask
        there.
        """
        foreign_reads = ForeignReads(self._limits)
        made = await self._engines.ask(space, lambda engine: form(engine, foreign_reads))
        for question, reads in foreign_reads.questions():
            try:
                await check(question.space, Right.OWN)
                self._check_space_exists(question.space)
                said = await self._engines.ask(question.space, partial(current_form, asked=question))
            except HeadwaterError:
                continue  # The answer lists the space as not asked.
            foreign_reads.add_answer(reads, said)
        foreign_reads.decide()
        return made

    # ---- members -----------------------------------------------------------------------------------

    async def _get(self, asked: CommandQuestion, user: str, check: Check) -> JsonForm:
        whole, _, pointer = asked.place.partition("#")
        _, handle = await self._find_member(asked, user, whole)
        space = await self._check_handle(asked, handle, user, Right.READ, check)
        found = await handle.pull()
        check_link_target(handle, user, self._runtime.sessions.asked(space, user))
        value: Any = member_form(handle, found)
        if isinstance(handle, EachHandle):
            value = {str(each["key"]): {name: of for name, of in each.items() if name != "key"} for each in value}
        for step in parse_path(pointer):
            inside = isinstance(value, Mapping) and step in value
            if not inside and not (isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)):
                raise AbsentError(f"nothing is at {asked.place}: {whole} has no such path")
            value = value[step]
        return {"place": asked.place, "value": value}

    async def _get_stored(self, asked: CommandQuestion, user: str, check: Check) -> JsonForm:
        """Return the stored value of a member at a seq or on a branch, without running anything."""
        _, handle = await self._find_member(asked, user)
        await self._check_handle(asked, handle, user, Right.READ, check)
        key, branch = handle.document.key, asked.branch or MAIN
        parts = AddressParts(None, key.scope, key.id, handle.path)
        form = await self._engines.ask(asked.space, lambda engine: read_form(engine, parts, branch, asked.at))
        return {**form, "place": asked.place}

    async def _set(self, asked: CommandQuestion, user: str, check: Check) -> JsonForm:
        if is_address(asked.place):
            await check(asked.space, Right.OWN)
            parts = _address(asked)
            handle: Any = self._runtime.cell(asked.space, parts.id, Json, scope=parts.scope)
            handle = handle.below(parts.path) if parts.path else handle
        else:
            await check(asked.space, Right.READ)
            _, handle = await self._find_member(asked, user)
        if not isinstance(handle, Cell):
            raise AuthoringError(f"{asked.place} is not a cell: only cells can be set")
        space = await self._check_handle(asked, handle, user, Right.WRITE, check)
        try:
            value = handle.decoded("set", await asyncio.to_thread(from_json_form, asked.value))
        except InvalidValueError as error:
            raise InvalidValueError(
                f"{asked.place} does not take this: {argument_error(error)}", path=error.path
            ) from None
        await self._runtime.space(space, user=user).transact(self._write_checked, handle, value, user)
        return {"place": asked.place, "value": json_form(handle.encoded(value))}

    def _write_checked(self, handle: Cell[Any], value: Any, user: str) -> None:
        """Write inside a transaction. The runtime may write any access document, so one that no user could repair is
        refused here.
        """
        space = self._runtime.core.space_name(handle.document)
        write_as_user(handle, user, self._runtime.sessions.asked(space, user), "set", value)
        document = handle.document
        if document.key == ACCESS:
            access: Cell[Any] = Cell(self._runtime.core, document, codec_for(Json))
            wrong = wrong_with(codec_for(Json).encode(access.get()))
            if wrong is not None:
                raise RuleRefusedError(f"{wrong}, like {ACCESS_EXAMPLE}")

    async def _send(self, asked: CommandQuestion, user: str, check: Check) -> JsonForm:
        await check(asked.space, Right.READ)
        home, handle = await self._find_member(asked, user)
        if not isinstance(handle, Handler):
            raise AuthoringError(f"{asked.place} is not a handler: only handlers can be sent to")
        member: HandlerMember = handle.member
        await check(handler_space(handle), RIGHT_FOR[member.allow])
        payload = await asyncio.to_thread(from_json_form, {} if asked.value is None else asked.value)
        result = await handle.sender.send(member, payload, Options())
        return {"place": asked.place, "result": json_form(home.schema.signature(member).result.encode(result))}

    async def _intents(self, spaces: list[str]) -> JsonForm:
        """Return the events of all runtimes of this process, and stored events."""
        rows = [row for each in (self._runtime, *taking_part()) for row in each.intents()]
        found: list[JsonForm] = []
        stored = partial(stored_form, limits=self._limits)
        for space in spaces:
            found += intents_form(space, rows, await self._engines.ask(space, stored))
        return found

    # ---- where it is -------------------------------------------------------------------------------

    async def _address(self, asked: CommandQuestion, user: str) -> AddressParts:
        if is_address(asked.place):
            return _address(asked)
        home, handle = await self._find_member(asked, user)
        if isinstance(handle, Effect):  # An effect has no document; its last run is stored under its name.
            return AddressParts(None, SPACE_SCOPE, document_id(home.id, split_place(asked.place)[2]), ())
        if not isinstance(handle, Input):
            raise AuthoringError(f"{asked.place} is nothing that is kept")
        key = handle.document.key
        return AddressParts(None, key.scope, key.id, handle.path)

    async def _find_member(self, asked: CommandQuestion, user: str, place: str = "") -> tuple[PieceInstance, Any]:
        cls, piece, name, pointer = split_place(place or asked.place)
        home = await self._find_piece(asked.space, cls, piece)
        member = home.schema.members.get(name)
        if member is None:
            there = ", ".join(home.schema.members)
            raise AuthoringError(f"{home.schema.name} has no member {name!r}. It has: {there}.")
        session = self._runtime.sessions.asked(asked.space, user)
        handle = getattr(home.view("session", user, session).piece, name)
        return home, select_part(handle, parse_path(pointer), name)

    async def _check_handle(self, asked: CommandQuestion, handle: Any, user: str, shared: Right, check: Check) -> str:
        """Check the right that a handle needs in its space, which may be another one, and return that space."""
        if not isinstance(handle, Input):
            raise AuthoringError(f"{asked.place} is nothing to look at")
        space = self._runtime.core.space_name(handle.document)
        await check(space, needed_right(handle, user, self._runtime.sessions.asked(space, user), shared))
        return space

    def _check_space_exists(self, space: str) -> None:
        known = {*self._engines.sizes(), *(each.name for each in self._runtime.core.spaces())}
        if check_space(space) not in known:
            raise AbsentError(f"there is no space {space!r} here: `headwater spaces` lists those that there are")

    def _graph(self, space: str) -> JsonForm:
        """Return the graph of a space, without nodes that only keep documents open."""
        head = f"{space}/"

        def is_shown(node: Node) -> bool:
            return node.id.startswith(head) and WHILE_OPEN not in node.id

        looking = self._runtime.introspection
        return {**looking.snapshot(is_shown).as_json(), "dot": looking.dot(is_shown)}

    async def _find_piece(self, space: str, cls: str, name: str) -> PieceInstance:
        pieces, core = self._runtime.pieces, self._runtime.core
        local = core.space(space)
        known = pieces.find(space, name)
        if known is not None:
            return known
        id = piece_id(name)
        record = record_document(local, id)
        await core.loaded(record)
        if record.value is not ABSENT and record.value is not NOT_HERE:
            return pieces.find_recorded(local, id)
        if not cls:
            there = ""
            if space in self._engines.sizes():
                there = await self._engines.ask(space, lambda engine: suggest_pieces(engine, name, limits=self._limits))
            raise AbsentError(f"{space} has no piece {name!r}.{there} To make one, name its class: Class:{name}.member")
        found = [each for each in imported_classes() if cls in (each.__name__, each.__schema__.name)]
        if not found:
            raise AbsentError(f"there is no class {cls!r} of pieces here")
        return pieces.find_or_make(local, found[-1], name)


def _address(asked: CommandQuestion) -> AddressParts:
    parts = parse_address(asked.place)
    if parts.space is not None and parts.space != asked.space:
        raise AuthoringError(f"{asked.place!r} is in space {parts.space!r}, and the command reads {asked.space!r}")
    return parts


RECORD: Final = "@"


def suggest_pieces(
    engine: Engine, name: str, branch: str = MAIN, *, limits: ServerLimits = DEFAULT_SERVER_LIMITS
) -> str:
    """Return a sentence with the pieces of a space, similar names first; empty if there are none."""
    found: list[str] = []
    after: str | None = ""
    for _ in range(limits.suggestion_pages):
        page = engine.documents(SPACE_SCOPE, branch=branch, after=after or "", limit=limits.suggestion_page)
        ids = [each.doc.id.rpartition(":") for each in page.items]
        found += [id for id, _, stored in ids if stored == RECORD and SEPARATOR not in id]
        after = page.next
        if after is None:
            break
    return f" Pieces there: {_list_closest(name, found, limits.suggestions, more=after is not None)}." if found else ""


def suggest_members(
    engine: Engine, id: str, member: str, branch: str = MAIN, *, limits: ServerLimits = DEFAULT_SERVER_LIMITS
) -> str:
    """Return a sentence with the stored members of a piece; empty if there is no such piece."""
    record: Any = engine.read(DocKey(SPACE_SCOPE, document_id(id, RECORD)), branch=branch).value
    if isinstance(record, Absent):
        return ""
    head = document_id(id, "")
    page = engine.documents(SPACE_SCOPE, branch=branch, after=head, limit=limits.suggestion_page)
    stored = [each.doc.id.removeprefix(head) for each in page.items if each.doc.id.startswith(head)]
    found = [name for name in stored if name != RECORD and "/" not in name]
    kept = f"It keeps {_list_closest(member, found, limits.suggestions)}" if found else "It keeps nothing yet"
    unstored = "a cell that still has its default, and a computed that never ran"
    return f" {kept}; {unstored}, are known to the application only: --app FILE."


def _list_closest(name: str, found: list[str], most: int, *, more: bool = False) -> str:
    """Return the first few names of many, similar names first."""
    close = get_close_matches(name, found, most)
    listed = [*close, *[each for each in sorted(found) if each not in close]]
    return ", ".join(listed[:most]) + (", ..." if more or len(listed) > most else "")
