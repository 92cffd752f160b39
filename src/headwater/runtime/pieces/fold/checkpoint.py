"""What is stored of a fold, and how its next runtime goes on from there instead of going over everything again.

The value itself says neither what went into it nor which code made it. Beside it stands a note, written in the same
commit: the fingerprint of `add`, `remove`, `by`, `start` and the types, and a number that rises, so that a value never
changes without its note. Which elements went in is not stored at all: admission lets a commit in only if everything it
read is still so (C1), and the past can be read (C11). So what went into a value is its source as of the seq of that
commit. If the source was not written since, that is what is here; otherwise it is read as of then, once, and the
elements that differ are taken out and put in. A copy of the elements would be a second write for each of them, by
every runtime that has the piece open, for the sake of a start.

Whatever does not fit is no ground to go on from, and the fold begins anew: another fingerprint or none, a value that
somebody else wrote or that is not confirmed yet (of a piece that is stopped and opened at once), a source in another
space, behind a link or implied by a default, history that was compacted away.
An element that changed without changing the value counts as changed since: no commit is spent on saying otherwise.
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
    """A value that was stored, and what went into it."""

    value: Any
    elements: Any  # ABSENT: nothing was there


@dataclass(frozen=True, slots=True)
class _Found:
    """A value that was stored, and where what went into it is read."""

    value: Any
    past: Document | None  # None: what is confirmed here is as old as that


class FoldCheckpoint:
    """The stored side of one fold."""

    __slots__ = ("_code", "_facet", "_found", "_is_known", "_member", "_note", "_output", "_value")

    def __init__(self, member: FoldMember, value: Computed[Any], facet: ScopedView) -> None:
        self._member = member
        self._value = value
        self._facet = facet
        self._output = value.document
        self._note: Cell[Any] = Cell(facet.home.pieces.core, facet.document(f"{member.stored}/folded"), codec_for(Json))
        self._code: str | None = None
        self._is_known = False  # what its code is
        self._found: _Found | None = None  # what it goes on from, as long as that is being fetched

    @property
    def note(self) -> Document:
        """The document beside the value."""
        return self._note.document

    def forget(self) -> None:
        """Its code may be another."""
        self._is_known = False
        self._found = None

    @property
    def code(self) -> str | None:
        if not self._is_known:
            home = self._facet.home
            self._code = home.pieces.generations.code_of(home.cls, self._member)
            self._is_known = True
        return self._code

    # ---- going on ----------------------------------------------------------------------------------

    def basis(self, source: Input[Any]) -> Basis | None:
        """Inside a run: what can be gone on from. Stops the attempt until that is here."""
        if self.code is None:
            return None
        self._need(self.note)
        found = self._found
        if found is None:
            # Asked once: what was stored then stays true, however much others write while it is fetched.
            found = self._found = self._stored(source.document)
            if found is None:
                return None
        if found.past is None:
            root: Any = source.document.confirmed
        else:
            self._need(found.past)
            said: Any = found.past.value
            self._facet.home.pieces.past(self._facet.home.space.name).let_go(found.past)
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
        home = self._facet.home
        said: Any = note.value
        if source.home is not output.home or home.pieces.runtime.channel(home.space.name) is None:
            return None  # Another space has other numbers, and without a log there are none.
        if output.layers or note.layers or not isinstance(said, Mapping) or said.get("code") != self.code:
            return None
        raw: Any = output.value
        if raw is ABSENT or not 0 < output.written <= note.written:
            return None  # Somebody wrote the value without its note, which no fold does.
        try:
            value = self._value.memo().decode(raw)
        except InvalidValueError:
            return None
        if source.written <= note.written:
            return _Found(value, None)
        return _Found(value, home.pieces.past(home.space.name).document(source.key, note.written))

    def _need(self, document: Document) -> None:
        if document.value is NOT_HERE:
            run = self._facet.home.pieces.core.current.run
            assert run is not None
            run.tracker.absent(run, document)

    # ---- leaving word ------------------------------------------------------------------------------

    def say(self, value: Any) -> None:
        """Inside the run that makes it: what is stored from now on is this code's."""
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
    """The same object, or an equal one of the same type: True is not 1."""
    return one is other or (one.__class__ is other.__class__ and one == other)
