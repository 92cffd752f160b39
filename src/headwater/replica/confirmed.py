"""Confirmed state: what the engine's log said, as of one seq, for the documents this replica watches.

Every document here is as of the same seq, which is what makes that seq a true basis (C3, C8). A document may be
watched without its value being here: its changes are heard, its value is asked for when somebody reads it.
"""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.data.patch import Patch, PatchError, apply
from headwater.data.value import MaybeValue
from headwater.errors import ProtocolError
from headwater.protocol.messages import DocChange, Own, Patched, Whole
from headwater.replica.pending import Pending


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

    def integrate(self, changes: list[DocChange], seq: int, pending: Pending) -> dict[DocKey, None]:
        """Make changes of the log to documents that are here, and move to its seq: all of it or, on error, nothing."""
        staged: dict[DocKey, tuple[MaybeValue, int]] = {}
        for change in changes:
            value = staged[change.doc][0] if change.doc in staged else self._values[change.doc]
            staged[change.doc] = (_changed(change, value, pending), change.seq)
        self.move_to(seq)
        for doc, (value, written) in staged.items():
            self.put(doc, value, written)
        return dict.fromkeys(staged)


def _changed(change: DocChange, value: MaybeValue, pending: Pending) -> MaybeValue:
    match change:
        case Whole():
            return change.get()
        case Patched(doc, seq, patches):
            return _patched(value, patches, f"commit {seq} does not fit {doc.scope}:{doc.id}")
        case Own(doc, _, local_seq):
            layer = pending.get(local_seq)
            if layer is None:
                raise ProtocolError(f"the engine speaks of commit {local_seq}, which was settled before")
            # The same patches that the engine applied, on the same document.
            patches = tuple(patch for op in layer.commit.operations if op.doc == doc for patch in op.patches)
            return _patched(
                value, patches, f"own commit {local_seq} was accepted but does not fit {doc.scope}:{doc.id}"
            )


def _patched(value: MaybeValue, patches: tuple[Patch, ...], what: str) -> MaybeValue:
    for patch in patches:
        try:
            value = apply(value, patch).value
        except PatchError as error:
            raise ProtocolError(f"{what}: {error}") from error
    return value
