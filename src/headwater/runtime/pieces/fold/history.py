"""Documents of a space as they were at a seq, for runs that go on from there.

They are documents of a replica of their own, which never change: a run that needs one waits for it as for any other
that is not here. Each is asked for once, as one query, and let go by whoever asked; what nobody waits for any more is
not kept. It never says what is there now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headwater.data.address import DocKey
from headwater.data.value import ABSENT, Absent, MaybeValue
from headwater.errors import HeadwaterError, LoadError
from headwater.protocol.messages import Query
from headwater.protocol.verdict import Conflict
from headwater.replica.document import Document
from headwater.replica.feed import Kind, Notification
from headwater.replica.replica import Replica
from headwater.replica.session import Link

if TYPE_CHECKING:
    from headwater.runtime.api.runtime import Runtime

TRIES: Final = 5
"""How often a question is asked again whose answer was lost with its connection."""


class DocumentHistory:
    """The past of one space, as far as somebody waits for it. The channel of its own replica."""

    __slots__ = ("_asked", "_runtime", "_space", "replica")

    def __init__(self, runtime: Runtime, space: str) -> None:
        self._runtime = runtime
        self._space = space
        self._asked: set[DocKey] = set()
        self.replica = Replica()
        runtime.core.add_replica(f"{space} as it was", self.replica, self)

    def document(self, doc: DocKey, seq: int) -> Document:
        """A document as of a seq: `(value,)` or, if there was none, `()`. None: its history is not there any more."""
        return self.replica.documents.of(DocKey(doc.scope, f"{seq} {doc.id}"))

    def let_go(self, document: Document) -> None:
        """Whoever asked for it has it."""
        self.replica.let_go(document.key)

    # ---- the channel -------------------------------------------------------------------------------

    def watch(self, docs: Iterable[DocKey]) -> None:
        for doc in docs:
            if doc not in self._asked and not self.replica.is_here(doc):
                self._asked.add(doc)
                self._runtime.tasks.begin(self._fetch(doc), f"the past of {self._space}")

    def unwatch(self, doc: DocKey) -> bool:
        return self.replica.let_go(doc)

    def flush(self) -> None:
        """Nothing is written here."""

    def is_ready(self, conflict: Conflict) -> bool:
        """Nobody else writes here either."""
        return True

    def is_durable(self) -> bool:
        return True

    async def _fetch(self, doc: DocKey) -> None:
        seq, _, id = doc.id.partition(" ")
        try:
            found = await self._found(Query(0, doc.scope, id, int(seq)))
        finally:
            self._asked.discard(doc)
        core, replica = self._runtime.core, self.replica
        document = replica.documents.get(doc)
        if document is None or not core.scheduler.loads.is_awaited(document):
            return  # Whoever asked is gone.
        replica.shown_anew()
        replica.confirmed.put(doc, found, 0)
        document.value = found
        replica.feed.emit(Notification(Kind.PULL, document, ABSENT, found, None, False, 0))
        replica.report()
        core.observing.look()
        core.request_tick()

    async def _found(self, query: Query) -> MaybeValue:
        channel = self._runtime.channel(self._space)
        if channel is None:
            return None
        for _ in range(TRIES):
            try:
                answer = await channel.driver.query(query)
            except LoadError:
                if channel.driver.session.link is Link.UP:
                    return None  # It was refused: that seq cannot be read.
                continue
            except HeadwaterError:
                return None  # Nothing is heard of the space any more, which whoever speaks for it has told.
            value = answer.documents[0].get()
            return () if isinstance(value, Absent) else (value,)
        return None
