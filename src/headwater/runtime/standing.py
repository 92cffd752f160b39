"""Writes outside any run that wait for an earlier one: who stands behind whom, by document and in order.

A hold is over some documents as long as one write to them is still to be made: it waits for something to arrive, or is
tried again. Whoever writes one of these documents meanwhile has its turn after it. It makes no write itself.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Final

from headwater.errors import LimitError
from headwater.replica.document import Document

if TYPE_CHECKING:
    from headwater.data.address import DocKey
    from headwater.replica.replica import Replica

MAX_BEHIND: Final = 10_000
"""Writes that stand behind one that is tried again."""

Turn = tuple[int, Callable[[], object]]
"""When a write was first made, and what makes it."""


class Hold:
    """Some documents, and the writes that wait for their turn on them."""

    __slots__ = ("documents", "turns")

    def __init__(self) -> None:
        self.documents: dict[Document, None] = {}
        self.turns: list[Turn] = []  # in the order in which they were first made


class Standing:
    """All holds of one runtime. A document is in one at most."""

    __slots__ = ("_holds",)

    def __init__(self) -> None:
        self._holds: dict[Document, Hold] = {}

    def __bool__(self) -> bool:
        return bool(self._holds)

    def over(self, documents: Iterable[Document]) -> Hold | None:
        """The hold that one of these documents is in. Whoever is in several waits for one after the other."""
        if self._holds:
            for document in documents:
                hold = self._holds.get(document)
                if hold is not None:
                    return hold
        return None

    def is_over(self, home: Replica, docs: Container[DocKey]) -> bool:
        """Whether one of these documents of a space is in a hold."""
        return any(document.home is home and document.key in docs for document in self._holds)

    def begin(self, documents: Iterable[Document]) -> Hold:
        """From now on whoever writes one of these waits."""
        hold = Hold()
        self._widen(hold, documents)
        return hold

    def check_room(self, hold: Hold) -> None:
        if len(hold.turns) >= MAX_BEHIND:
            document = next(iter(hold.documents))
            raise LimitError(
                f"{len(hold.turns)} writes wait for {document!r} to be written: await them, or write less often"
            )

    def stand(self, hold: Hold, documents: Iterable[Document], turn: Turn) -> None:
        """Wait there. One that was taken back may be older than those who wait already."""
        insort(hold.turns, turn, key=serial_of)
        self._widen(hold, documents)

    def end(self, hold: Hold) -> list[Turn]:
        """It is over: the turns of those who waited, in order."""
        for document in hold.documents:
            if self._holds.get(document) is hold:
                del self._holds[document]
        turns, hold.turns = hold.turns, []
        return turns

    def _widen(self, hold: Hold, documents: Iterable[Document]) -> None:
        for document in documents:
            if document not in self._holds:
                self._holds[document] = hold
                hold.documents[document] = None


def serial_of(turn: Turn) -> int:
    return turn[0]
