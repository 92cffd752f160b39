"""A replica without an engine: what is committed is confirmed at once, and nothing is kept beyond this process.

For tests, for benchmarks and for values that are nobody else's, such as the time. The rest of the system cannot tell
the difference: layers, waves and the feed are the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.address import DocKey
from headwater.protocol.verdict import Conflict
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
            self.replica.appear(missing)

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
            self.replica.confirm(wave)
