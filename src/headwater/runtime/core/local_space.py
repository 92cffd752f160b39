"""One space of a runtime: its replica, the channel that speaks for it, and what waits for its documents.

Keeps watched what somebody reads, and for a while what was read last; beyond that, values are let go. Never decides
what runs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from headwater.data.address import DocKey
from headwater.errors import HeadwaterError, LimitError
from headwater.protocol.verdict import Conflict
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.replica.transaction import Transaction

KEPT_UNREAD: Final = 1_000
"""Documents that nobody reads any more and that are still here, the last ones."""
MAX_DEFERRED: Final = 10_000
"""Writes that wait for their documents."""


class Channel(Protocol):
    """Whoever speaks with the engine for a replica: a session's driver, or nobody."""

    def watch(self, docs: Iterable[DocKey]) -> None: ...

    def unwatch(self, doc: DocKey) -> bool: ...

    def flush(self) -> None: ...

    def is_ready(self, conflict: Conflict) -> bool: ...

    def is_durable(self) -> bool: ...


class LocalSpace:
    """A space as one runtime has it."""

    __slots__ = (
        "_ahead",
        "_deferred",
        "_held",
        "_unread",
        "channel",
        "ended",
        "failed_loads",
        "kept_unread",
        "name",
        "replica",
        "retry",
    )

    def __init__(self, name: str, replica: Replica, channel: Channel) -> None:
        self.name = name
        self.replica = replica
        self.channel = channel
        # See to it that a transaction lands, and say when that is over; None: nobody does.
        self.retry: Callable[[Callable[[Transaction], object], Callable[[], object]], object] | None = None
        self.kept_unread = KEPT_UNREAD
        self.ended: Exception | None = None  # why nothing will be heard any more
        self.failed_loads: dict[Document, HeadwaterError] = {}  # refused by the engine; the next read asks again
        self._ahead: dict[Document, None] = {}  # asked for, and nobody has missed it
        self._unread: OrderedDict[Document, None] = OrderedDict()
        self._held: dict[Document, None] = {}  # what stays here although nobody reads it
        # What is done when a document has arrived, and what instead if it will not.
        self._deferred: dict[Document, list[tuple[Callable[[], object], Callable[[], object]]]] = {}

    def document(self, id: str, scope: str = "space") -> Document:
        return self.replica.documents.of(DocKey(scope, id))

    def load(self, document: Document) -> None:
        """Somebody reads or writes it: watch it, and fetch it if it is not here."""
        self._ahead.pop(document, None)
        self._unread.pop(document, None)
        self.failed_loads.pop(document, None)
        self.channel.watch((document.key,))

    def bring(self, documents: Sequence[Document]) -> None:
        """Ask for several at once that somebody may read next. Whoever asked lets them be in the end."""
        for document in documents:
            self._unread.pop(document, None)
            self._ahead[document] = None
        self.channel.watch([document.key for document in documents])

    def hold(self, documents: Iterable[Document]) -> None:
        """Whether or not somebody reads them, they stay here from now on."""
        for document in documents:
            self._held[document] = None
            self._unread.pop(document, None)

    def let_loose(self, documents: Iterable[Document]) -> None:
        """They stay no longer than somebody reads them."""
        for document in documents:
            if document in self._held:
                del self._held[document]
                self.let_be(document)

    def come(self, documents: Iterable[Document]) -> None:
        """They were asked for before anybody wanted them, and may be let go as if somebody had."""
        self._unread.update([(each, None) for each in documents if each not in self._held and each.twig is None])

    def let_be(self, document: Document) -> None:
        """It was loaded for a moment only: if nobody reads or computes it, it may be let go."""
        if document.twig is None and not document.writers:
            self.release(document)

    def release(self, document: Document) -> None:
        """Nobody does any more. It stays for a while, since it may be looked at again."""
        self._ahead.pop(document, None)
        if document in self._held:
            return
        self._unread[document] = None
        self.trim(2)

    def trim(self, most: int) -> None:
        """Let go of some that were not looked at for long. What a commit is still on top of has to wait."""
        for _ in range(min(most, len(self._unread) - self.kept_unread)):
            oldest, _ = self._unread.popitem(last=False)
            is_used = oldest.twig is not None or oldest.writers or oldest in self._deferred
            if not is_used and not self.channel.unwatch(oldest.key):
                self._unread[oldest] = None
                return  # So have most of those that were let go with it: the next one is tried the next time.

    # ---- waiting for documents -----------------------------------------------------------------------

    def when_here(
        self, document: Document, act: Callable[[], object], dropped: Callable[[], object] | None = None
    ) -> None:
        """Act at once, or as soon as the document has arrived, in the order of the calls. `act` does not raise.

        If it will not arrive, whoever calls `load_failed` is handed `dropped` instead.
        """
        if document.value is not NOT_HERE and document not in self._deferred:
            act()
            return
        waiting = self._deferred.setdefault(document, [])
        if len(waiting) >= MAX_DEFERRED:
            raise LimitError(f"{len(waiting)} writes wait for {document!r} to arrive: await them, or write less often")
        waiting.append((act, dropped or _nothing))
        self.load(document)
        if document.value is not NOT_HERE:
            self._go_on(document)

    def waits_for(self, document: Document) -> bool:
        """Whether writes wait for it: one that comes now has its turn after them."""
        return document in self._deferred

    def arrived(self) -> None:
        """Something arrived: whatever waited for it goes on."""
        if self._deferred:
            for document in [each for each in self._deferred if each.value is not NOT_HERE]:
                self._go_on(document)

    def _go_on(self, document: Document) -> None:
        waiting = deque(self._deferred.pop(document, ()))
        try:
            while waiting:
                waiting.popleft()[0]()
        finally:
            if waiting:  # An interrupt: these are still to come.
                self._deferred[document] = [*waiting, *self._deferred.get(document, ())]
        self.let_be(document)

    def asked_for(self, docs: Iterable[DocKey]) -> tuple[DocKey, ...]:
        """Those that somebody needs. Of the others nobody is told that they do not come: they are asked for again."""
        documents = [self.replica.documents.of(doc) for doc in docs]
        needed = [each.key for each in documents if each not in self._ahead]
        for each in documents:
            self._ahead.pop(each, None)
        return tuple(needed)

    def load_failed(self, docs: Iterable[DocKey], error: HeadwaterError) -> list[Callable[[], object]]:
        """The engine refused these. Answers with what waited for them, and will not happen."""
        dropped: list[Callable[[], object]] = []  # to be called for each of them
        for doc in docs:
            document = self.replica.documents.of(doc)
            self.failed_loads[document] = error
            dropped += [each[1] for each in self._deferred.pop(document, ())]
        return dropped

    def deferred(self) -> int:
        """How many writes wait for documents."""
        return sum(map(len, self._deferred.values()))

    def is_pending(self, layers: Iterable[Layer]) -> bool:
        """Whether one of these is a commit of this space without an end."""
        return any(self.replica.pending.get(each.local_seq) is each for each in layers)

    def why_not(self, document: Document) -> Exception | None:
        """Why a document will not arrive, if it is known that it will not."""
        return self.failed_loads.get(document) or self.ended


def _nothing() -> None:
    """Nobody else waits for it."""
