"""Confirmed state: what the engine's log said, as of one seq, for the documents this replica watches.

Every document here is as of the same seq, which is what makes that seq a true basis (C3, C8). A document may be
watched without its value being here: its changes are heard, its value is asked for when somebody reads it.
"""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.data.patch import PatchError, apply
from headwater.data.value import MaybeValue
from headwater.errors import ProtocolError
from headwater.protocol.messages import DocChange, Own, Patched, Whole
from headwater.replica.pending import Layer, Pending


class NotHere(Exception):
    """Internal: a document that was read has not arrived. Whoever runs the reader fetches it and runs it again."""

    def __init__(self, doc: DocKey) -> None:
        super().__init__(f"{doc.scope}:{doc.id} has not arrived yet")
        self.doc = doc


class Confirmed:
    """Documents as of `seq`."""

    __slots__ = ("_values", "_written", "seq")

    def __init__(self) -> None:
        self._values: dict[DocKey, MaybeValue] = {}
        self._written: dict[DocKey, int] = {}
        self.seq = 0

    def __contains__(self, doc: DocKey) -> bool:
        return doc in self._values

    def __len__(self) -> int:
        return len(self._values)

    def docs(self) -> tuple[DocKey, ...]:
        return tuple(self._values)

    def value(self, doc: DocKey) -> MaybeValue:
        return self._values[doc]

    def written(self, doc: DocKey) -> int:
        """The seq of the last write that was heard of; 0: none was."""
        return self._written.get(doc, 0)

    def put(self, doc: DocKey, value: MaybeValue, written: int) -> None:
        self._values[doc] = value
        self._written[doc] = written

    def drop(self, doc: DocKey) -> None:
        self._values.pop(doc, None)
        self._written.pop(doc, None)

    def move_to(self, seq: int) -> None:
        """C9: the log is heard in order. Going back would un-happen what was shown."""
        if seq < self.seq:
            raise ProtocolError(f"the engine spoke of seq {seq} after seq {self.seq}")
        self.seq = seq

    def apply(self, change: DocChange, pending: Pending) -> None:
        """Make one change of the log, to a document that is here."""
        match change:
            case Whole(doc, seq):
                self.put(doc, change.get(), seq)
            case Patched(doc, seq, patches):
                value = self._values[doc]
                for patch in patches:
                    try:
                        value = apply(value, patch).value
                    except PatchError as error:
                        raise ProtocolError(f"commit {seq} does not fit {doc.scope}:{doc.id}: {error}") from error
                self.put(doc, value, seq)
            case Own(doc, seq, local_seq):
                layer = pending.get(local_seq)
                if layer is None:
                    raise ProtocolError(f"the engine speaks of commit {local_seq}, which was settled before")
                self.put(doc, _confirmed_by(layer, doc, self._values[doc]), seq)


def _confirmed_by(layer: Layer, doc: DocKey, value: MaybeValue) -> MaybeValue:
    """What an own commit made of the confirmed document: the same patches that the engine applied."""
    for operation in layer.commit.operations:
        if operation.doc == doc:
            for patch in operation.patches:
                try:
                    value = apply(value, patch).value
                except PatchError as error:
                    raise ProtocolError(
                        f"own commit {layer.local_seq} was accepted but does not fit {doc.scope}:{doc.id}: {error}"
                    ) from error
    return value
