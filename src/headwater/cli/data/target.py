"""Asking about a space: the directory itself, the process that owns it, or a server by its address.

Owns the way there. A directory that nobody has is opened for the one question; of one that somebody serves, the
answer comes from there, so that a command works whether or not the application runs. Never changes a question.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from headwater.cli.directory import address_of, open_directory, open_space, sizes_in
from headwater.data.address import check_space, parse_address
from headwater.data.json_form import JsonForm
from headwater.engine.admission.access import Right
from headwater.engine.engine import Engine
from headwater.errors import AbsentError, AuthoringError, DirectoryInUseError, HeadwaterError, StorageError
from headwater.protocol.command_messages import COMMAND_PATH, CommandAnswer, CommandQuestion
from headwater.protocol.commit import MAIN

if TYPE_CHECKING:
    from headwater.server.commands.foreign_reads import ForeignReads

T = TypeVar("T")
TOKEN: Final = "HEADWATER_TOKEN"
ANSWER_S: Final = 60.0


def ask(where: str, question: CommandQuestion, *, app: str = "", token: str = "") -> Any:
    """The answer of whoever can give it: a JSON document."""
    if "://" in where:
        return _posted(where, question, token)
    directory = Path(where)
    if question.what != "spaces" and (question.space or question.what != "intents"):
        check_space(question.space)
    try:
        if app:
            return _by_application(directory, question, app)
        return _by_engine(directory, question)
    except DirectoryInUseError:
        url = address_of(directory)
        if url is None:
            raise
        return _posted(url, question, token or _own_token(directory, question.user))


# ---- from the directory ------------------------------------------------------------------------------


def _by_engine(directory: Path, asked: CommandQuestion) -> Any:
    """What stands in the log needs no application."""
    from headwater.server.commands.foreign_reads import ForeignReads  # noqa: PLC0415 (help is quick)
    from headwater.server.commands.nodes_json import current_form  # noqa: PLC0415

    if asked.what == "spaces":
        with open_directory(directory):
            return [{"name": name, "bytes": size} for name, size in sizes_in(directory).items()]
    if asked.what == "intents":
        return _stored(directory, [asked.space] if asked.space else list(sizes_in(directory)))
    foreign_reads = ForeignReads()
    made = _looked(directory, asked, foreign_reads)
    for question, reads in foreign_reads.questions():
        try:
            with open_space(directory, question.space) as engine:
                foreign_reads.add_answer(reads, current_form(engine, question))
        except HeadwaterError:
            continue  # It is told that this space was not asked.
    foreign_reads.decide()
    return made


def _looked(directory: Path, asked: CommandQuestion, foreign_reads: ForeignReads) -> Any:
    """What one space knows. `abroad` hears what others are to be asked."""
    from headwater.server.commands.json_forms import (  # noqa: PLC0415
        branch_form,
        compact_form,
        log_form,
        read_form,
        why_form,
    )
    from headwater.server.commands.nodes_json import backlog_form, current_form, nodes_form  # noqa: PLC0415
    from headwater.server.commands.reactions_json import reactions_form  # noqa: PLC0415

    with open_space(directory, asked.space) as engine:
        if asked.what == "log":
            return log_form(engine, asked.since, asked.branch, asked.limit)
        if asked.what == "graph":
            return _pieces(engine)
        if asked.what == "branch":
            return branch_form(engine, asked)
        if asked.what == "nodes":
            return nodes_form(engine, asked, foreign_reads)
        if asked.what == "backlog":
            return backlog_form(engine, asked, foreign_reads)
        if asked.what == "current":
            return current_form(engine, asked)
        if asked.what == "reactions":
            return reactions_form(engine, asked.value, asked.limit)
        if asked.what == "compact":
            return compact_form(engine, asked.since or 0)
        if asked.what in ("get", "why"):
            address = _stored_at(asked)
            parts = parse_address(address)
            if parts.space is not None and parts.space != asked.space:
                raise AuthoringError(f"{address!r} is in space {parts.space!r}, and the command reads {asked.space!r}")
            try:
                if asked.what == "why":
                    return why_form(engine, parts, asked.limit, foreign_reads)
                return read_form(engine, parts, asked.branch or MAIN, asked.at)
            except AbsentError as error:
                raise AbsentError(f"{error}.{_there(engine, asked)}") from None
    raise AbsentError(f"{asked.what} needs the application: say which, with --app shop.py, or let it run")


def _there(engine: Engine, asked: CommandQuestion) -> str:
    """What somebody may have meant who named a member that is not there."""
    from headwater.pieces.names import piece_id  # noqa: PLC0415 (help is quick)
    from headwater.server.commands.command_api import is_address, split_place, suggest_members, suggest_pieces  # noqa: PLC0415  # noqa: PLC0415

    if is_address(asked.place):
        return ""
    _, piece, member, _ = split_place(asked.place)
    branch, id = asked.branch or MAIN, piece if "/" in piece else piece_id(piece)
    return suggest_members(engine, id, member, branch) or suggest_pieces(engine, piece, branch)


def _stored(directory: Path, spaces: list[str]) -> list[JsonForm]:
    """What is stored and waits for somebody, while nobody is there."""
    from headwater.server.commands.json_forms import stored_form  # noqa: PLC0415

    found: list[JsonForm] = []
    for space in spaces:
        with open_space(directory, space) as engine:
            found += stored_form(engine)
    return found


def _stored_at(asked: CommandQuestion) -> str:
    """Where a member is stored. Without its class it is taken to be shared by all, or, with --user, that user's."""
    from headwater.pieces.names import document_id, piece_id  # noqa: PLC0415
    from headwater.server.commands.command_api import is_address, split_place  # noqa: PLC0415

    if is_address(asked.place):
        return asked.place
    _, piece, member, pointer = split_place(asked.place)
    id = document_id(piece if "/" in piece else piece_id(piece), member)
    scope = f"user:{asked.user}" if asked.user else "space"
    return f"{scope}:{id}#{pointer}" if pointer else f"{scope}:{id}"


def _pieces(engine: Engine) -> JsonForm:
    """The pieces that are stored, and what each was given: all that is known of them while nothing runs."""
    found: list[JsonForm] = []
    after: str | None = ""
    while after is not None:
        page = engine.documents("space", after=after, limit=200)
        for each in page.items:
            value = each.value
            if each.doc.id.endswith(":@") and isinstance(value, dict):
                inputs = value.get("inputs")
                found.append(
                    {
                        "piece": str(value.get("name", "")),
                        "class": str(value.get("cls", "")),
                        "inputs": {key: str(to) for key, to in inputs.items()} if isinstance(inputs, dict) else {},
                    }
                )
        after = page.next
    return {"pieces": found}


# ---- with the application ----------------------------------------------------------------------------


class EmbeddedEngines:
    """The engines of a directory that this process opened for the question."""

    def __init__(self, directory: Path, attachment: Any) -> None:
        self._directory = directory
        self._attachment = attachment

    def sizes(self) -> dict[str, int]:
        return sizes_in(self._directory)

    async def ask(self, space: str, question: Callable[[Engine], T]) -> T:
        host = await self._attachment.host(space)
        made: T = await asyncio.to_thread(host.call, lambda engine, _: question(engine))
        return made

    async def copy(self, space: str) -> str:
        raise AbsentError(f"nobody serves {space!r}: verify its file itself")


def _by_application(directory: Path, asked: CommandQuestion, app: str) -> Any:
    """Open the directory with the application's classes, and answer as the process that serves it would."""
    from headwater.cli.loading import load  # noqa: PLC0415

    if not directory.is_dir():
        raise AbsentError(f"{directory} is no directory. Name the data directory that a program of yours opened.")
    # What an application prints is no part of the answer.
    with contextlib.redirect_stdout(sys.stderr):
        module, _, _ = load(app)
        return asyncio.run(_answered(directory, asked, module))


async def _answered(directory: Path, asked: CommandQuestion, module: ModuleType) -> Any:
    from headwater.runtime.api.runtime import Runtime  # noqa: PLC0415
    from headwater.runtime.channel.backend import Embedded  # noqa: PLC0415
    from headwater.server.commands.command_api import CommandApi  # noqa: PLC0415

    async with Embedded(directory) as attachment, Runtime(attachment) as rt:
        begin = getattr(module, "start", None) if asked.what == "graph" else None
        if begin is not None:
            await begin(rt)  # What is asked is what it runs.
            await rt.settled()
        return await CommandApi(rt, EmbeddedEngines(directory, attachment)).answer(asked, asked.user, _anything)


async def _anything(space: str, right: Right) -> None:
    """Whoever can open the files may do everything."""


# ---- over the network --------------------------------------------------------------------------------


def _own_token(directory: Path, user: str) -> str:
    """Whoever can read the keys of a directory can say who they are."""
    if not (directory / "keys").is_dir():
        return ""
    from headwater.cli.keys import server_extra  # noqa: PLC0415

    with server_extra():
        from headwater.server.operation.keys import key_ids, new_token  # noqa: PLC0415

        if not key_ids(directory):
            return ""
        if not user:
            raise AuthoringError(f"{directory} is served to people who prove who they are: say for whom, with --user")
        return new_token(directory, user, ttl_s=round(ANSWER_S))


def _posted(url: str, asked: CommandQuestion, token: str) -> Any:
    address = url.rstrip("/").replace("wss://", "https://").replace("ws://", "http://") + COMMAND_PATH
    headers = {"content-type": "application/json"}
    bearer = token or os.environ.get(TOKEN, "")
    if bearer:
        headers["authorization"] = f"Bearer {bearer}"
    if not address.startswith(("http://", "https://")):
        raise AuthoringError(f"{url} is no address of a server: write it like https://example.org")
    request = urllib.request.Request(address, msgspec.json.encode(asked), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
            body = response.read()
    except urllib.error.HTTPError as error:
        body = error.read()
        if error.headers.get_content_type() != "application/json":
            raise StorageError(f"{url} answered {error.code}: it is no server of an application") from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from None
    add_answer = msgspec.json.decode(body, type=CommandAnswer)
    if add_answer.error:
        raise HeadwaterError(add_answer.error)
    return add_answer.answer
