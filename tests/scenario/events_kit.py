"""What the stories about events share: a world per story, an engine that says no on demand, and what is in its log.

A story answers what is wrong in the end, in words, and nothing if all is well.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from headwater import Piece
from headwater.data.address import Depth, DocKey
from headwater.data.ids import derive, event_id
from headwater.data.patch import replace
from headwater.data.value import ABSENT
from headwater.engine import Engine, Logged
from headwater.protocol.commit import Commit, Operation, Provenance, Read
from headwater.protocol.messages import FromReplica, Transact
from headwater.protocol.verdict import Accepted
from headwater.testing import Simulation
from headwater.testing.author.seeds import run_seed
from headwater.testing.author.stored import log_of

Story = Callable[[Simulation], Awaitable[list[str]]]
Spoil = Callable[[Engine, Commit], Commit]
"""Changes a commit on its way so that its engine rejects it."""


def told(story: Story, *, seed: int = 0, faults: tuple[str, ...] = ()) -> list[str]:
    """Tell a story in a world of its own. What is wrong in the end; an error is wrong, too."""
    found: list[str] = []

    async def tell(sim: Simulation) -> None:
        found.extend(await story(sim))

    try:
        run_seed(tell, seed, faults)
    except AssertionError as error:
        found.append(str(error) or repr(error))
    return found


# ---- an engine that says no ----------------------------------------------------------------------------

RIVAL = DocKey("space", "rival")
"""A document that only a rival of the events writes."""


def stale(engine: Engine, commit: Commit) -> Commit:
    """The commit, as if its handler had also read a document that a rival has written since."""
    if engine.read(RIVAL).value is ABSENT:
        engine.open_session("rival")
        written = Commit(1, (Operation(RIVAL, (replace((), 1),)),), provenance=Provenance("the rival's handler"))
        (verdict,) = engine.submit("rival", written)
        assert isinstance(verdict, Accepted)
    return msgspec.structs.replace(commit, reads=(*commit.reads, Read(RIVAL, (), Depth.DEEP, 0)))


def forbidden(engine: Engine, commit: Commit) -> Commit:
    """The commit, as if its handler had also written a document whose name no document may have."""
    return msgspec.structs.replace(
        commit, operations=(*commit.operations, Operation(DocKey("space", ""), (replace((), 1),)))
    )


class Front:
    """Stands in front of the server and spoils so many commits of a handler, so that the engine rejects them."""

    def __init__(self, sim: Simulation) -> None:
        self._server = sim.server
        self._spoiled: dict[str, tuple[int, Spoil]] = {}
        self.judged: Counter[str] = Counter()  # by handler: commits that came, those that were spoiled included
        self.rejected: Counter[str] = Counter()

    def reject(self, handler: str, times: int, spoil: Spoil = stale) -> None:
        """Have the next commits of a handler rejected."""
        self._spoiled[handler] = (times, spoil)

    def __enter__(self) -> Front:
        self._server.front = self._arrived
        return self

    def __exit__(self, *_: object) -> None:
        self._server.front = None

    def _arrived(self, engine: Engine, message: FromReplica) -> FromReplica:
        if not isinstance(message, Transact):
            return message
        return msgspec.structs.replace(message, commits=tuple([self._passed(engine, each) for each in message.commits]))

    def _passed(self, engine: Engine, commit: Commit) -> Commit:
        name = commit.provenance.node.rpartition(":")[2]
        self.judged[name] += 1
        left, spoil = self._spoiled.get(name, (0, stale))
        if not left:
            return commit
        self._spoiled[name] = (left - 1, spoil)
        self.rejected[name] += 1
        return spoil(engine, commit)


# ---- what is in the log ----------------------------------------------------------------------------------


def read(sim: Simulation, work: Callable[[Mapping[str, Engine]], Any]) -> Any:
    return sim.server.read(work)


def commits(sim: Simulation, space: str = "s", handler: str = "") -> list[Logged]:
    """The commits of a space, or those of a handler of that name."""

    def look(engines: Mapping[str, Engine]) -> list[Logged]:
        if space not in engines:
            return []
        return [each for each in log_of(engines[space]) if each.commit.provenance.node.endswith(handler)]

    found: list[Logged] = read(sim, look)
    return found


def stored(sim: Simulation) -> list[str]:
    """The streams of all events that are stored and that nobody has handled."""

    def look(engines: Mapping[str, Engine]) -> list[str]:
        return [event.stream for engine in engines.values() for event in engine.events(limit=1_000).items]

    found: list[str] = read(sim, look)
    return found


RECEIPTS = "$result:"
"""The id of the document that says that an event was handled: this, and the id of the event. It is stored."""


def given_id(user: str, session: str, said: str, stream: str) -> str:
    """The id of an event to which its sender gave one. How it follows from these never changes: it is stored."""
    return event_id(derive("caller", user, session, said), stream, 0, 0)


def receipt_of(id: str) -> DocKey:
    """The document that says that an event was handled."""
    return DocKey("space", f"{RECEIPTS}{id}")


def documents(engine: Engine, prefix: str, scope: str = "space") -> dict[str, Any]:
    """The documents of a scope whose ids begin so, with their values."""
    found: dict[str, Any] = {}
    after: str | None = ""
    while after is not None:
        page = engine.documents(scope, after=after)
        found |= {each.doc.id: each.value for each in page.items if each.doc.id.startswith(prefix)}
        after = page.next
    return found


def durable(sim: Simulation, piece: Piece, member: str, space: str = "s") -> Any:
    """What a cell of a piece holds in the log of its space, as it is stored. None: nothing."""
    document: DocKey = getattr(piece, member).document.key

    def look(engines: Mapping[str, Engine]) -> Any:
        value = engines[space].read(document).value
        return value if isinstance(value, (int, str, bool, Mapping, tuple)) else None

    return read(sim, look)


async def outcome(work: Awaitable[Any]) -> Any:
    """What an awaited send answers, or the error that it ends with."""
    try:
        return await work
    except Exception as error:
        return error


async def outcomes(*work: Awaitable[Any]) -> list[Any]:
    return list(await asyncio.gather(*map(outcome, work)))
