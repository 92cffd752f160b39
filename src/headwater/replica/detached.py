"""A session without an engine: `flush` confirms commits, and no value outlives the process.

Used by tests, by benchmarks and for values that belong to one process, such as the time. Layers, waves and the feed are
the same as with an engine, so that the other packages need no special case.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.address import DocKey
from headwater.data.value import ABSENT
from headwater.protocol.verdict import Conflict
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.feed import Kind, Notification
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica


class Detached:
    """The session of a replica that has no engine."""

    __slots__ = ("_wave", "frames", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self._wave: list[Layer] = []
        self.frames = 0  # number of confirmed waves
        replica.on_layer = self._wave.append

    def watch(self, docs: Iterable[DocKey], *, is_ahead: bool = False) -> None:
        """Give documents that are not here the value ABSENT. Without an engine, an unwritten document is absent."""
        missing = [doc for doc in docs if not self.replica.is_here(doc)]
        if missing:
            self._appear(missing)

    def unwatch(self, doc: DocKey) -> bool:
        """Return False: a document is kept, because no engine holds a copy of its value."""
        return False

    def is_ready(self, conflict: Conflict) -> bool:
        """Return True: without other writers, a commit can be retried at once."""
        return True

    def is_durable(self) -> bool:
        """Return True if every commit is confirmed, which is as durable as a commit can be here."""
        return not self._wave and not self.replica.tier

    def flush(self) -> None:
        """Confirm all commits and results since the last call, as one frame."""
        tier = self.replica.tier
        if self._wave or tier:
            wave = self._wave[:]
            self._wave.clear()  # Cleared in place: `replica.on_layer` is bound to this list.
            self.frames += 1
            self._confirm(wave)
            tier.confirm_all()

    def _appear(self, docs: list[DocKey]) -> None:
        """Record that documents without a write are absent. They have no layers."""
        replica = self.replica
        replica.shown_anew()
        for doc in docs:
            document = replica.confirmed.put(doc, ABSENT, 0)
            document.value = ABSENT
            replica.feed.emit(Notification(Kind.PULL, document, ABSENT, ABSENT, None, False, replica.confirmed.seq))
        replica.report()

    def _confirm(self, layers: list[Layer]) -> None:
        """Make layers confirmed state. Shown values do not change."""
        replica = self.replica
        seq = replica.confirmed.seq + 1
        replica.confirmed.move_to(seq)
        for layer in layers:
            for document in self._written_by(layer):
                if document.confirmed is NOT_HERE:
                    replica.confirmed.put(document.key, ABSENT, seq)
                document.confirmed, document.written = document.value, seq
        replica.pending.confirmed(layers, seq)
        for layer in layers:
            if layer.settled is not None:
                replica.settle(layer, layer.settled, None)
        if replica.feed.errors:
            replica.report()

    def _written_by(self, layer: Layer) -> list[Document]:
        return [self.replica.documents.hold(doc) for doc in layer.docs()]
