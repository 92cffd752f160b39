"""One space of a runtime: its replica, its channel to the engine, and the writes that wait for its documents.

Keeps documents watched while a node or caller reads them, and the documents read last for a while longer; older unread
documents are dropped. Never decides which node runs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from headwater.data.address import DocKey
from headwater.errors import HeadwaterError, LimitError
from headwater.protocol.verdict import Conflict
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.replica.transaction import Transaction
from headwater.runtime.core.limits import RUNTIME_LIMITS


class Channel(Protocol):
    """The way to the engine of a replica.

    `runtime.channel.channel.EngineChannel` has a session's driver behind it; `replica.detached.Detached` is for spaces
    without an engine.
    """

    def watch(self, docs: Iterable[DocKey], *, is_ahead: bool = False) -> None:
        """Request documents, and have the engine tell their changes from now on. `is_ahead`: readers may follow."""

    def unwatch(self, doc: DocKey) -> bool:
        """Stop watching a document. Return False if it is kept all the same."""

    def flush(self) -> None:
        """Send what has gathered since the last call."""

    def is_ready(self, conflict: Conflict) -> bool:
        """Return whether the write that won a conflict is here."""

    def is_durable(self) -> bool:
        """Return whether no commit made here waits for its verdict."""


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
        # Retry a transaction until it ends, then call the second argument. None: `PlainWrites` retries by itself.
        self.retry: Callable[[Callable[[Transaction], object], Callable[[], object]], object] | None = None
        self.kept_unread = RUNTIME_LIMITS.unread_kept  # `Policy.unread_kept` of the runtime, once it is set
        self.ended: Exception | None = None  # why nothing will be received any more
        self.failed_loads: dict[Document, HeadwaterError] = {}  # refused by the engine; a new read asks again
        self._ahead: dict[Document, None] = {}  # requested ahead, and needed by no reader so far
        self._unread: OrderedDict[Document, None] = OrderedDict()
        self._held: dict[Document, None] = {}  # stay here even without a reader
        # For each document: calls to make when it has arrived, each with the call to make if it will not arrive.
        self._deferred: dict[Document, list[tuple[Callable[[], object], Callable[[], object]]]] = {}

    def document(self, id: str, scope: str = "space") -> Document:
        return self.replica.documents.of(DocKey(scope, id))

    def load(self, *documents: Document) -> None:
        """Watch documents that are about to be read or written, and fetch those that are not here."""
        keys: list[DocKey] = []
        for document in documents:
            if document in self._held and document.confirmed is not NOT_HERE:
                continue  # It is watched for as long as it is held.
            self._ahead.pop(document, None)
            self._unread.pop(document, None)
            self.failed_loads.pop(document, None)
            keys.append(document.key)
        if keys:
            self.channel.watch(keys)

    def bring(self, documents: Sequence[Document]) -> None:
        """Request several documents at once that may be read next. Call `release_if_unread` for each afterwards."""
        for document in documents:
            self._unread.pop(document, None)
            if document.twig is None and document not in self._deferred:  # Otherwise it is needed already.
                self._ahead[document] = None
        self.channel.watch([document.key for document in documents], is_ahead=len(documents) > 1)

    def hold(self, documents: Iterable[Document]) -> None:
        """Keep documents here from now on, with or without readers."""
        for document in documents:
            self._held[document] = None
            self._unread.pop(document, None)

    def let_loose(self, documents: Iterable[Document]) -> None:
        """End `hold`: the documents stay only as long as they have readers."""
        for document in documents:
            if document in self._held:
                del self._held[document]
                self.release_if_unread(document)

    def count_as_unread(self, documents: Iterable[Document]) -> None:
        """Count documents that were requested ahead of any reader as unread, so that `trim` may drop them."""
        self._unread.update([(each, None) for each in documents if each not in self._held and each.twig is None])

    def release_if_unread(self, document: Document) -> None:
        """Release a document that was loaded for a moment only, unless a node reads or writes it."""
        if document.twig is None and not document.writers:
            self.release(document)

    def release(self, document: Document) -> None:
        """Mark a document as unread. It stays here for a while, because it may be read again."""
        self._ahead.pop(document, None)
        if document in self._held:
            return
        self._unread[document] = None
        self.trim(2)

    def trim(self, most: int) -> None:
        """Drop up to `most` of the documents unread for longest. A document below a pending commit has to wait."""
        for _ in range(min(most, len(self._unread) - self.kept_unread)):
            oldest, _ = self._unread.popitem(last=False)
            is_used = oldest.twig is not None or oldest.writers or oldest in self._deferred
            if not is_used and not self.channel.unwatch(oldest.key):
                self._unread[oldest] = None
                return  # Documents released together mostly wait for the same commit: try again at the next call.

    # ---- waiting for documents -----------------------------------------------------------------------

    def when_here(
        self, document: Document, act: Callable[[], object], dropped: Callable[[], object] | None = None
    ) -> None:
        """Call `act` at once, or as soon as the document has arrived, in the order of the calls. `act` does not raise.

        If the document will not arrive, the caller of `load_failed` gets `dropped` instead.
        """
        if document.value is not NOT_HERE and document not in self._deferred:
            act()
            return
        waiting = self._deferred.setdefault(document, [])
        if len(waiting) >= RUNTIME_LIMITS.deferred_writes:
            raise LimitError(f"{len(waiting)} writes wait for {document!r} to arrive: await them, or write less often")
        waiting.append((act, dropped or _nothing))
        self.load(document)
        if document.value is not NOT_HERE:
            self._go_on(document)

    def waits_for(self, document: Document) -> bool:
        """True if writes wait for the document. A write made now has its turn after them."""
        return document in self._deferred

    def make_deferred_writes(self) -> None:
        """Make the writes whose documents have arrived."""
        if self._deferred:
            for document in [each for each in self._deferred if each.value is not NOT_HERE]:
                self._go_on(document)

    def _go_on(self, document: Document) -> None:
        waiting = deque(self._deferred.pop(document, ()))
        try:
            while waiting:
                waiting.popleft()[0]()
        finally:
            if waiting:  # An interrupt: these calls are still to be made.
                self._deferred[document] = [*waiting, *self._deferred.get(document, ())]
        self.release_if_unread(document)

    def asked_for(self, docs: Iterable[DocKey]) -> tuple[DocKey, ...]:
        """Return those of the documents that have been needed.

        Failures of the others, which were only requested ahead, are not reported: the first reader requests the
        document again.
        """
        documents = [self.replica.documents.of(doc) for doc in docs]
        needed = [each.key for each in documents if each not in self._ahead]
        for each in documents:
            self._ahead.pop(each, None)
        return tuple(needed)

    def load_failed(self, docs: Iterable[DocKey], error: HeadwaterError) -> list[Callable[[], object]]:
        """Record that the engine refused documents. Returns the `dropped` calls of the writes that waited for them."""
        dropped: list[Callable[[], object]] = []  # to be called by the caller
        for doc in docs:
            document = self.replica.documents.of(doc)
            self.failed_loads[document] = error
            dropped += [each[1] for each in self._deferred.pop(document, ())]
        return dropped

    def has_deferred_writes(self) -> bool:
        """True if a write waits for a document."""
        return bool(self._deferred)

    def deferred(self) -> int:
        """Return the number of writes that wait for documents."""
        return sum(map(len, self._deferred.values()))

    def is_pending(self, layers: Iterable[Layer]) -> bool:
        """True if one of these layers is a commit of this space that is still pending."""
        return any(self.replica.pending.get(each.local_seq) is each for each in layers)

    def why_not(self, document: Document) -> Exception | None:
        """Return the reason why a document will not arrive; None if it may arrive."""
        return self.failed_loads.get(document) or self.ended


def _nothing() -> None:
    """Do nothing: the default for `dropped`."""
