"""A replica without an engine: what is committed is confirmed at once, and nothing is kept beyond this process.

For tests, for benchmarks and for values that are nobody else's, such as the time. The rest of the system cannot tell
the difference: layers, waves and the feed are the same.
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
        self.frames = 0  # waves that were confirmed
        replica.on_layer = self._wave.append

    def watch(self, docs: Iterable[DocKey]) -> None:
        """There is nothing to be fetched: what was never written is absent."""
        missing = [doc for doc in docs if not self.replica.is_here(doc)]
        if missing:
            self._appear(missing)

    def unwatch(self, doc: DocKey) -> bool:
        """Nothing can be let go: it is nowhere else."""
        return False

    def is_ready(self, conflict: Conflict) -> bool:
        """Nobody else writes."""
        return True

    def is_durable(self) -> bool:
        """Whether everything that was committed is as safe as it gets here."""
        return not self._wave

    def flush(self) -> None:
        """Confirm everything that was committed since the last time, as one frame."""
        if self._wave:
            wave = self._wave[:]
            self._wave.clear()  # The same list goes on taking layers.
            self.frames += 1
            self._confirm(wave)

    def _appear(self, docs: list[DocKey]) -> None:
        """These are not written yet, and from now on that is known. No layer is on them."""
        replica = self.replica
        replica.shown_anew()
        for doc in docs:
            document = replica.confirmed.put(doc, ABSENT, 0)
            document.value = ABSENT
            replica.feed.emit(Notification(Kind.PULL, document, ABSENT, ABSENT, None, False, replica.confirmed.seq))
        replica.report()

    def _confirm(self, layers: list[Layer]) -> None:
        """These layers are what is confirmed now. Nothing is shown differently."""
        replica = self.replica
        seq = replica.confirmed.seq + 1
        replica.confirmed.move_to(seq)
        for layer in layers:
            for document in (layer.document,) if layer.document is not None else self._written_by(layer):
                if document.confirmed is NOT_HERE:
                    replica.confirmed.put(document.key, ABSENT, seq)
                document.confirmed, document.written = document.value, seq
        replica.untold.clear()
        replica.pending.confirmed(layers, seq, replica.opened.count > 0)
        for layer in layers:
            if layer.settled is not None:
                replica.settle(layer, layer.settled, None)
        if replica.feed.errors:
            replica.report()

    def _written_by(self, layer: Layer) -> list[Document]:
        return [self.replica.documents.hold(doc) for doc in layer.docs()]
