"""Reads the files of spaces from outside: the documents of cells, and the events that are not handled yet."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headwater.data.address import DocKey
from headwater.data.value import ABSENT
from headwater.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import event_id_of
from headwater.protocol.reactions import QueryReactions, QueryTargets, ReactionList, TargetPage
from headwater.testing.author.stored import log_of
from tests.simulation.programs.description import Program, Send
from tests.simulation.programs.expressions import CELL_KINDS

__all__ = [
    "KEPT",
    "StoredSend",
    "decode",
    "engine_of",
    "owner_of",
    "sent",
    "stored_cells",
    "stored_receipts",
    "stored_records",
    "stored_sends",
]

KEPT = (*CELL_KINDS, "link", "log")
"""Kinds of members that are stored, and written by actions only."""
RECEIPT: Final = "$result:"
"""How the id of the document begins that says that an event was handled."""


@dataclass(frozen=True, slots=True)
class StoredSend:
    """An event in the store: its id, the space that it is stored in, and the event as a step of a user.

    A record that is to be delivered is one without an id and a user.
    """

    id: str
    space: str
    send: Send
    user: str
    is_handled: bool = False  # its receipt is stored


@contextmanager
def engine_of(folder: Path, space: str, copy: Path) -> Iterator[Engine | None]:
    """An engine over a copy of the files of a directory. None: this space has no file yet."""
    if not folder.exists():
        yield None
        return
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*lock*"), dirs_exist_ok=True)
    path = copy / f"{space}.space"
    if not path.exists():
        yield None
        return
    engine = Engine(SqliteStore(path))
    try:
        yield engine
    finally:
        engine.close()


def decode(classes: Mapping[str, Any], of: str, member: str, raw: Any) -> Any:
    """Decode the stored value of a member of a class."""
    schema = classes[of].__schema__
    return schema.codec(getattr(classes[of], member).declaration).decode(raw)


def owner_of(doc: DocKey) -> str:
    """The end of the name of a member for the user that a document belongs to; nothing if that is the space."""
    kind, _, user = doc.scope.partition(":")
    return f"@{user}" if kind == "user" else ""


def stored_cells(
    program: Program, classes: Mapping[str, Any], space: str, engine: Engine
) -> dict[tuple[str, str], Any]:
    """The values of all cells of the pieces of a space, and of their children, that have a document."""
    documents = {operation.doc for logged in log_of(engine) for operation in logged.commit.operations}
    found = {}
    for doc in documents:
        id, _, member = doc.id.partition(":")
        of = _class_of(program, space, id, member)
        if of is None:
            continue
        raw = engine.read(doc).value
        if raw is not ABSENT:
            found[_path(id, of), member + owner_of(doc)] = decode(classes, of, member, raw)
    return found


def _class_of(program: Program, space: str, id: str, member: str) -> str | None:
    """The class of the piece or child that keeps a member under an id. None: none keeps it."""
    name, _, below = id.partition("/")
    if name not in {each.name for each in program.pieces if each.space == space}:
        return None
    of = program.class_of(name)
    classes = [of]
    if below:
        keeper = next((each for each in of.of_kind("children") if each.name == below.partition("/")[0]), None)
        classes = [each for each in program.classes if keeper is not None and each.name in keeper.uses]
    return next((each.name for each in classes if member in {kept.name for kept in each.of_kind(*KEPT)}), None)


def _path(id: str, of: str) -> str:
    """The path of a piece or child by its id and class: that of a `child` ends with its class instead of a key."""
    return id + of if id.endswith("/") else id


def sent(stream: str, payload: Any) -> Send:
    """An event as a step of a program, by its stored form."""
    piece, _, handler = stream.partition("/")[2].rpartition(":")
    args = payload["args"]
    piece = _path(piece, payload["cls"].rpartition(".")[2])
    return Send(args["eid"], piece, handler, args["n"], args["w"], is_awaited=False)


def stored_sends(space: str, engine: Engine) -> list[StoredSend]:
    """The events that are stored in a space."""
    found = []
    page = engine.events()
    while True:
        for row in page.items:
            found.append(
                StoredSend(event_id_of(row.id, row.payload), space, sent(row.stream, row.payload), row.payload["user"])
            )
        if page.next is None:
            return found
        page = engine.events(after=page.next)


def stored_receipts(engine: Engine) -> set[str]:
    """The ids of the events that were handled in a space."""
    documents = {operation.doc.id for logged in log_of(engine) for operation in logged.commit.operations}
    return {id.removeprefix(RECEIPT) for id in documents if id.startswith(RECEIPT)}


def stored_records(space: str, engine: Engine) -> list[StoredSend]:
    """The records that are stored in a space behind the positions of their targets.

    Each has the form of the event for the handler that follows its reaction.
    """
    reactions = engine.deliver(QueryReactions(0))
    assert isinstance(reactions, ReactionList)
    handled: dict[tuple[str, str], tuple[int, int]] = {}
    for each in reactions.reactions:
        found = engine.deliver(QueryTargets(0, each.name))
        assert isinstance(found, TargetPage)
        assert found.next is None
        handled.update(((each.topic, target.key), target.position) for target in found.targets)
    return [
        StoredSend("", space, Send(record.payload["n"], record.key, "g", 0, record.payload["t"], is_awaited=False), "")
        for logged in log_of(engine)
        for ordinal, record in enumerate(logged.commit.records)
        if (logged.seq, ordinal) > handled.get((record.topic, record.key), (0, 0))
    ]
