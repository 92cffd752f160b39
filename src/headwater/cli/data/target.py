"""The way from a command to an answer: a data directory itself, the process that serves it, or a server by its address.

A directory that is not in use is opened for the one question. A directory that a process serves is asked through that
process, so that a command works whether or not the application runs.
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

from headwater.cli.directory import open_directory, open_space, owner_address, space_sizes
from headwater.cli.limits import DEFAULT_COMMAND_LIMITS, CommandLimits
from headwater.data.address import check_space, parse_address
from headwater.data.json_form import JsonForm
from headwater.engine.admission.access import Right
from headwater.engine.engine import Engine
from headwater.errors import AbsentError, AuthoringError, DirectoryInUseError, HeadwaterError, StorageError
from headwater.protocol.command_messages import (
    COMMAND_PATH,
    CommandAnswer,
    CommandQuestion,
    is_address,
    split_place,
)
from headwater.protocol.commit import MAIN

if TYPE_CHECKING:
    from headwater.server.commands.foreign_reads import ForeignReads

T = TypeVar("T")
TOKEN: Final = "HEADWATER_TOKEN"


def ask(where: str, question: CommandQuestion, *, app: str = "", token: str = "") -> Any:
    """Return the answer to a question, as a JSON document, from the first place that can give it."""
    if "://" in where:
        return _post(where, question, token)
    directory = Path(where)
    if question.what != "spaces" and (question.space or question.what != "intents"):
        check_space(question.space)
    try:
        if app:
            return _ask_application(directory, question, app)
        return _ask_engine(directory, question)
    except DirectoryInUseError as error:
        url = owner_address(directory)
        if url is None:
            said = str(error).partition(". ")[0]
            raise DirectoryInUseError(
                f"{said}, which does not serve it, so that no command can ask it. Stop that process first, or serve "
                "the directory with headwater run."
            ) from None
        return _post(url, question, token or _make_own_token(directory, question.user))


# ---- from the directory ------------------------------------------------------------------------------


def _ask_engine(directory: Path, asked: CommandQuestion) -> Any:
    """Answer from the engine alone, without the application."""
    from headwater.server.commands.foreign_reads import ForeignReads  # noqa: PLC0415 (help is quick)
    from headwater.server.commands.nodes_json import current_form  # noqa: PLC0415

    if asked.what == "spaces":
        with open_directory(directory):
            return [{"name": name, "bytes": size} for name, size in space_sizes(directory).items()]
    if asked.what == "intents":
        return _stored_events(directory, [asked.space] if asked.space else list(space_sizes(directory)))
    foreign_reads = ForeignReads()
    made = _ask_space(directory, asked, foreign_reads)
    for question, reads in foreign_reads.questions():
        try:
            with open_space(directory, question.space) as engine:
                foreign_reads.add_answer(reads, current_form(engine, question))
        except HeadwaterError:
            continue  # The answer lists the space as not asked.
    foreign_reads.decide()
    return made


def _ask_space(directory: Path, asked: CommandQuestion, foreign_reads: ForeignReads) -> Any:
    """Answer from one space. `foreign_reads` collects questions to other spaces."""
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
            return _stored_pieces(engine)
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
            address = _stored_address(asked)
            parts = parse_address(address)
            if parts.space is not None and parts.space != asked.space:
                raise AuthoringError(f"{address!r} is in space {parts.space!r}, and the command reads {asked.space!r}")
            try:
                if asked.what == "why":
                    return why_form(engine, parts, asked.limit, foreign_reads)
                return read_form(engine, parts, asked.branch or MAIN, asked.at)
            except AbsentError as error:
                raise AbsentError(f"{error}.{_suggest_existing(engine, asked)}") from None
    raise AbsentError(f"{asked.what} needs the application: say which, with --app shop.py, or let it run")


def _suggest_existing(engine: Engine, asked: CommandQuestion) -> str:
    """Return a sentence with existing pieces or members for one that does not exist."""
    from headwater.pieces.names import piece_id  # noqa: PLC0415 (help is quick)
    from headwater.server.commands.command_api import suggest_members, suggest_pieces  # noqa: PLC0415

    if is_address(asked.place):
        return ""
    _, piece, member, _ = split_place(asked.place)
    branch, id = asked.branch or MAIN, piece if "/" in piece else piece_id(piece)
    return suggest_members(engine, id, member, branch) or suggest_pieces(engine, piece, branch)


def _stored_events(directory: Path, spaces: list[str]) -> list[JsonForm]:
    """Return the stored events of spaces that no process serves."""
    from headwater.server.commands.json_forms import stored_form  # noqa: PLC0415

    found: list[JsonForm] = []
    for space in spaces:
        with open_space(directory, space) as engine:
            found += stored_form(engine)
    return found


def _stored_address(asked: CommandQuestion) -> str:
    """Return the address of a member. Its class is not known: the member is taken as shared, or with --user as that
    user's.
    """
    from headwater.pieces.names import document_id, piece_id  # noqa: PLC0415

    if is_address(asked.place):
        return asked.place
    _, piece, member, pointer = split_place(asked.place)
    id = document_id(piece if "/" in piece else piece_id(piece), member)
    scope = f"user:{asked.user}" if asked.user else "space"
    return f"{scope}:{id}#{pointer}" if pointer else f"{scope}:{id}"


def _stored_pieces(engine: Engine) -> JsonForm:
    """Return the stored pieces and their inputs."""
    found: list[JsonForm] = []
    after: str | None = ""
    while after is not None:
        page = engine.documents("space", after=after, limit=DEFAULT_COMMAND_LIMITS.document_page)
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
    """The engines of a directory that this process has opened for the question."""

    def __init__(self, directory: Path, backend: Any) -> None:
        self._directory = directory
        self._backend = backend

    def sizes(self) -> dict[str, int]:
        return space_sizes(self._directory)

    async def ask(self, space: str, question: Callable[[Engine], T]) -> T:
        host = await self._backend.host(space)
        made: T = await asyncio.to_thread(host.call, lambda engine, _: question(engine))
        return made

    async def copy(self, space: str) -> str:
        raise AbsentError(f"no process serves {space!r}: verify its file itself")


def _ask_application(directory: Path, asked: CommandQuestion, app: str) -> Any:
    """Open the directory with the application's classes, and answer as a process that serves it."""
    from headwater.cli.loading import load_application  # noqa: PLC0415

    if not directory.is_dir():
        raise AbsentError(f"{directory} is not a directory. Name the data directory that your program opened.")
    # Output of the application is no part of the answer.
    with contextlib.redirect_stdout(sys.stderr):
        module, _, _ = load_application(app)
        return asyncio.run(_answer_in_runtime(directory, asked, module))


async def _answer_in_runtime(directory: Path, asked: CommandQuestion, module: ModuleType) -> Any:
    from headwater.runtime.api.runtime import Runtime  # noqa: PLC0415
    from headwater.runtime.channel.backend import LocalDirectory  # noqa: PLC0415
    from headwater.server.commands.command_api import CommandApi  # noqa: PLC0415

    async with LocalDirectory(directory) as backend, Runtime(backend) as rt:
        begin = getattr(module, "start", None) if asked.what == "graph" else None
        if begin is not None:
            await begin(rt)  # Questions are about the nodes that `start` creates.
            await rt.settled()
        return await CommandApi(rt, EmbeddedEngines(directory, backend)).answer(asked, asked.user, _allow_everything)


async def _allow_everything(space: str, right: Right) -> None:
    """Allow everything: a user who can open the files has all rights."""


# ---- over the network --------------------------------------------------------------------------------


def _make_own_token(directory: Path, user: str, limits: CommandLimits = DEFAULT_COMMAND_LIMITS) -> str:
    """Return a token for a user who can read the directory's keys; empty without keys."""
    if not (directory / "keys").is_dir():
        return ""
    from headwater.cli.keys import server_extra  # noqa: PLC0415

    with server_extra():
        from headwater.server.operation.keys import key_ids, new_token  # noqa: PLC0415

        if not key_ids(directory):
            return ""
        if not user:
            raise AuthoringError(f"{directory} is served to people who prove who they are: say for whom, with --user")
        return new_token(directory, user, ttl_s=round(limits.answer_s))


def _post(url: str, asked: CommandQuestion, token: str, limits: CommandLimits = DEFAULT_COMMAND_LIMITS) -> Any:
    address = url.rstrip("/").replace("wss://", "https://").replace("ws://", "http://") + COMMAND_PATH
    headers = {"content-type": "application/json"}
    bearer = token or os.environ.get(TOKEN, "")
    if bearer:
        headers["authorization"] = f"Bearer {bearer}"
    if not address.startswith(("http://", "https://")):
        raise AuthoringError(f"{url} is not the address of a server: write it like https://example.org")
    request = urllib.request.Request(address, msgspec.json.encode(asked), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=limits.answer_s) as response:
            body = response.read()
    except urllib.error.HTTPError as error:
        body = error.read()
        if error.headers.get_content_type() != "application/json":
            raise StorageError(f"{url} answered {error.code}: it is not the server of an application") from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from None
    add_answer = msgspec.json.decode(body, type=CommandAnswer)
    if add_answer.error:
        raise HeadwaterError(add_answer.error)
    return add_answer.answer
