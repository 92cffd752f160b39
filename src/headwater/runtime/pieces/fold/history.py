"""Documents of a space as of an earlier seq, for runs that continue from there.

They are documents of a separate replica and never change: a run that needs one waits for it like for any document that
is not loaded. Each is fetched with one query and released by the run that asked for it; an answer that no node waits
for any more is not kept. The current state of the space is not available here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headwater.data.address import DocKey
from headwater.data.value import ABSENT, Absent, MaybeValue
from headwater.errors import HeadwaterError, LoadError
from headwater.protocol.messages import Query
from headwater.protocol.verdict import Conflict
from headwater.replica.document import Document
from headwater.replica.feed import Kind, Notification
from headwater.replica.replica import Replica
from headwater.replica.session import LinkState
from headwater.runtime.core.limits import RUNTIME_LIMITS

if TYPE_CHECKING:
    from headwater.runtime.channel.channel import EngineChannel
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.waiting import Tasks


class PastDocuments:
    """Earlier states of one space, as far as a node waits for them. Also the channel of its own replica."""

    __slots__ = ("_asked", "_channel", "_core", "_space", "_tasks", "replica")

    def __init__(self, core: Core, tasks: Tasks, channel: Callable[[str], EngineChannel | None], space: str) -> None:
        self._core = core
        self._tasks = tasks
        self._channel = channel  # returns the channel of a space by its name
        self._space = space
        self._asked: set[DocKey] = set()
        self.replica = Replica()
        core.add_replica(f"{space} as it was", self.replica, self)

    def document(self, doc: DocKey, seq: int) -> Document:
        """Return a document as of a seq: `(value,)`, `()` if it was absent, or None if its history is compacted."""
        return self.replica.documents.of(DocKey(doc.scope, f"{seq} {doc.id}"))

    def let_go(self, document: Document) -> None:
        """Release a document that its reader has read."""
        self.replica.let_go(document.key)

    # ---- the channel -------------------------------------------------------------------------------

    def watch(self, docs: Iterable[DocKey]) -> None:
        for doc in docs:
            if doc not in self._asked and not self.replica.is_here(doc):
                self._asked.add(doc)
                self._tasks.begin(self._fetch(doc), f"the past of {self._space}")

    def unwatch(self, doc: DocKey) -> bool:
        return self.replica.let_go(doc)

    def flush(self) -> None:
        """Do nothing: this replica has no writes."""

    def is_ready(self, conflict: Conflict) -> bool:
        """Return True: no other session writes here either."""
        return True

    def is_durable(self) -> bool:
        return True

    async def _fetch(self, doc: DocKey) -> None:
        seq, _, id = doc.id.partition(" ")
        try:
            found = await self._found(Query(0, doc.scope, id, int(seq)))
        finally:
            self._asked.discard(doc)
        core, replica = self._core, self.replica
        document = replica.documents.get(doc)
        if document is None or not core.scheduler.loads.is_awaited(document):
            return  # No node waits for it any more.
        replica.shown_anew()
        replica.confirmed.put(doc, found, 0)
        document.value = found
        replica.feed.emit(Notification(Kind.PULL, document, ABSENT, found, None, False, 0))
        replica.report()
        core.observers.check_conditions()
        core.request_tick()

    async def _found(self, query: Query) -> MaybeValue:
        channel = self._channel(self._space)
        if channel is None:
            return None
        for _ in range(RUNTIME_LIMITS.history_questions):
            try:
                answer = await channel.driver.query(query)
            except LoadError:
                if channel.driver.session.link is LinkState.UP:
                    return None  # The query was refused: that seq cannot be read.
                continue
            except HeadwaterError:
                return None  # The space is closed here, which its channel has reported.
            value = answer.documents[0].get()
            return () if isinstance(value, Absent) else (value,)
        return None
