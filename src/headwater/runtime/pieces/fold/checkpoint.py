"""The stored state of a fold, from which the next runtime continues instead of going over all elements again.

The stored value alone tells neither which elements went into it nor which code made it. Beside it is a note, written in
the same commit: the fingerprint of `add`, `remove`, `by`, `start` and the types, and a number that rises, so that a
value never changes without its note. The elements that went in are not stored: admission accepts a commit only if all
its reads still hold (C1), and the past can be read (C11). So the elements of a value are its source as of the seq of
its commit. If the source was not written since, that is the source as loaded; otherwise the source is read as of that
seq, once, and the elements that differ are removed and added. A stored copy of the elements would cost a second write
per element, by every runtime with the piece open, only to save work at a start.

The fold starts from nothing if the stored state does not fit: another fingerprint or none, a value that another writer
wrote or that is not confirmed yet (as in a piece that is stopped and opened at once), a source in another space, behind
a link or implied by a default, or history that was compacted away. An element that changed without changing the value
counts as changed since: no commit is spent to record otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.handle import Input
from headwater.cells.model import Json
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import InvalidValueError
from headwater.pieces.handles import Computed
from headwater.replica.document import NOT_HERE, Document

if TYPE_CHECKING:
    from headwater.pieces.declarations import FoldMember
    from headwater.runtime.pieces.view import ScopedView


@dataclass(frozen=True, slots=True)
class Basis:
    """A stored value, and the elements that went into it."""

    value: Any
    elements: Any  # ABSENT: the source was absent


@dataclass(frozen=True, slots=True)
class _Found:
    """A stored value, and the document with the source as of its commit."""

    value: Any
    past: Document | None  # None: the confirmed source was not written since


class FoldCheckpoint:
    """The stored value and the note of one fold."""

    __slots__ = ("_code", "_found", "_is_known", "_member", "_note", "_output", "_value", "_view")

    def __init__(self, member: FoldMember, value: Computed[Any], view: ScopedView) -> None:
        self._member = member
        self._value = value
        self._view = view
        self._output = value.document
        self._note: Cell[Any] = Cell(
            view.instance.pieces.core, view.result_document(f"{member.stored}/folded"), codec_for(Json)
        )
        self._code: str | None = None
        self._is_known = False  # whether `_code` was looked up
        self._found: _Found | None = None  # the stored state to continue from, while its source is fetched

    @property
    def note(self) -> Document:
        """The document of the note beside the value."""
        return self._note.document

    def forget(self) -> None:
        """Drop the known fingerprint and stored state, after the code may have changed."""
        self._is_known = False
        self._found = None

    @property
    def code(self) -> str | None:
        if not self._is_known:
            instance = self._view.instance
            self._code = instance.pieces.code_versions.code_of(instance.cls, self._member)
            self._is_known = True
        return self._code

    # ---- continuing from the stored state ----------------------------------------------------------

    def basis(self, source: Input[Any]) -> Basis | None:
        """Inside a run: return the state to continue from, if there is one. Stop the attempt until it is loaded."""
        if self.code is None:
            return None
        self._need(self.note)
        found = self._found
        if found is None:
            # Looked up once: the stored state stays true while its source is fetched, whatever is written meanwhile.
            found = self._found = self._stored(source.document)
            if found is None:
                return None
        if found.past is None:
            root: Any = source.document.confirmed
        else:
            self._need(found.past)
            said: Any = found.past.value
            self._view.instance.pieces.history_of(self._view.instance.space.name).let_go(found.past)
            if said is None:
                self._found = None
                return None
            root = said[0] if said else ABSENT
        self._found = None
        try:
            return Basis(found.value, source.value_in(root))
        except (LookupError, InvalidValueError):
            return None

    def _stored(self, source: Document) -> _Found | None:
        output, note = self._output, self.note
        instance = self._view.instance
        said: Any = note.value
        if source.home is not output.home or instance.pieces.channel(instance.space.name) is None:
            return None  # Seqs of another space do not compare, and without a log there are none.
        is_unconfirmed = any(each.layers or each.entry is not None for each in (output, note))
        if is_unconfirmed or not isinstance(said, Mapping) or said.get("code") != self.code:
            return None
        raw: Any = output.value
        if raw is ABSENT or not 0 < output.written <= note.written:
            return None  # The value was written without its note, so not by a fold.
        try:
            value = self._value.memo().decode(raw)
        except InvalidValueError:
            return None
        if source.written <= note.written:
            return _Found(value, None)
        return _Found(value, instance.pieces.history_of(instance.space.name).document(source.key, note.written))

    def _need(self, document: Document) -> None:
        if document.value is NOT_HERE:
            run = self._view.instance.pieces.core.current.run
            assert run is not None
            run.tracker.absent(run, document)

    # ---- writing the note --------------------------------------------------------------------------

    def say(self, value: Any) -> None:
        """Inside the run that makes a value: write the note for it, unless value and note are already stored."""
        if self.code is None:
            return
        self._need(self.note)
        said: Any = self.note.value
        turn = 0
        if isinstance(said, Mapping):
            turn = said["turn"] if type(said.get("turn")) is int else 0
            if said.get("code") == self.code and self._is_stored(value):
                return
        self._note.set({"code": self.code, "turn": turn + 1})

    def _is_stored(self, value: Any) -> bool:
        raw: MaybeValue = self._output.value  # type: ignore[assignment]  # Its run has begun, so that it is here.
        try:
            there = ABSENT if raw is ABSENT else self._value.memo().decode(raw)
        except InvalidValueError:
            return False
        return same(dict(there) if self._member.by is not None and isinstance(there, Mapping) else there, value)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are one object, or equal and of the same type: True is not 1."""
    return one is other or (one.__class__ is other.__class__ and one == other)
