"""Writes outside any run: each a transaction of its own, which lands or is told to have failed. None vanishes.

A write that waits for its document, never left this process, or met a conflict is made again, by calling what made it.
Only a write that read something can meet a conflict; then whoever speaks for the space sees to it (`LocalSpace.retry`),
or it is tried again when what won is here. Until that has an end, later writes to the same document stand behind it: a
runtime's writes to one document land in the order in which they were made. It never decides what runs.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.cell import Cell
from headwater.data.value import Value, equal
from headwater.errors import AuthoringError, CommitConvergenceError, LimitError
from headwater.protocol.verdict import Conflict, Rejected, Rejection, as_error
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.pending import Layer, Settled
from headwater.replica.replica import Replica
from headwater.replica.transaction import Transaction
from headwater.runtime.authored import Elsewhere, Missing, call_in, may_fall
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.runtime.core import Core

WINDOW_US: Final = 30_000_000
"""How long a write is tried again after its first conflict."""
MAX_BEHIND: Final = 10_000
"""Writes that stand behind one that is tried again."""
WHO: Final = "a write outside any run"


class Write:
    """One write, however often it is made."""

    __slots__ = ("act", "attempts", "began_us", "cell", "group", "home", "serial")

    def __init__(self, serial: int, cell: Cell[Any], act: Callable[[], object], group: object | None) -> None:
        self.serial = serial
        self.cell = cell
        self.act = act
        self.group = group
        self.home: Replica | None = None  # where it writes, if a link leads to another space
        self.attempts = 0
        self.began_us = 0  # when its first conflict was heard of; 0: none was


class Writing:
    """All writes outside any run of one runtime."""

    __slots__ = ("_behind", "_core", "_is_admitted", "_is_catching_up", "_serial", "_unsent")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._is_admitted = False  # what is made now was taken on before: it is not refused for want of room
        self._is_catching_up = False  # what is made again is a write like any other, and does not wait for itself
        self._serial = 0  # rises with every write
        # What stands behind a write that is tried again, by document, in the order in which it was made.
        self._behind: dict[Document, list[tuple[int, Callable[[], object]]]] = {}
        self._unsent: deque[Callable[[], object]] = deque()  # taken back before they left: made again, in order

    def __bool__(self) -> bool:
        """Whether something is to be made again now."""
        return bool(self._unsent)

    def waits(self) -> bool:
        """Whether something is still to be made, now or later."""
        return bool(self._unsent or self._behind)

    # ---- from handles --------------------------------------------------------------------------------

    def put(self, document: Document, value: Value, again: Callable[[], object], group: object | None) -> bool:
        """Replace a whole document that is here. It reads nothing. False: it has to, and is to be a transaction."""
        if document.writers:
            refuse_computed(document)
        if not self._is_admitted:
            document.home.check_room()
        self.catch_up()
        if document.layers and may_fall(document):
            return False
        self._serial += 1
        if self._stands_behind(document, self._serial, again):
            return True
        if document.value is not NOT_HERE and equal(document.value, value):
            return not document.layers  # Nothing is to be written; what a layer says is to be said again.
        serial = self._serial

        def settled(layer: Layer, rejection: Rejection | None) -> None:
            if isinstance(rejection, Conflict):
                self._again(document, serial, again)
            else:
                self._end(layer, rejection)

        marks = self._core.scheduler.marks
        running = marks.running
        if running is None:
            marks.running = self._core.observing.author()
        try:
            document.home.write_whole(document, value, (), None, group, "", None, False, settled)
        finally:
            marks.running = running
        self._core.request_tick()
        return True

    def write(self, cell: Cell[Any], act: Callable[[], object], group: object | None) -> None:
        """Call `act` in a transaction. What it raises at once is the caller's, later the error channel's."""
        if cell.document.writers:
            refuse_computed(cell.document)
        if not self._is_admitted:
            cell.document.home.check_room()
        self.catch_up()
        self._serial += 1
        write = Write(self._serial, cell, act, group)
        if not self._stands_behind(cell.document, write.serial, lambda: self._attempt(write)):
            self._attempt(write)

    def _stands_behind(self, document: Document, serial: int, act: Callable[[], object]) -> bool:
        """Whether earlier writes to the document are still to be made: then this one has its turn after them."""
        space = self._core.space_of(document)
        if space.waits_for(document):
            space.when_here(document, lambda: self._reporting(act))
            return True
        behind = self._behind.get(document)
        if behind is None:
            return False
        if len(behind) >= MAX_BEHIND:
            raise LimitError(
                f"{len(behind)} writes wait for {document!r} to be written: await them, or write less often"
            )
        insort(behind, (serial, act), key=_serial_of)  # One that was taken back may be older than those who wait.
        return True

    def catch_up(self) -> None:
        """Make again what never left, before anything newer is written."""
        if self._unsent and not self._is_catching_up:
            self._is_catching_up = True
            try:
                for _ in range(len(self._unsent)):  # What is refused again has its turn in the next slice.
                    self._reporting(self._unsent.popleft())
            finally:
                self._is_catching_up = False

    # ---- an attempt ----------------------------------------------------------------------------------

    def _attempt(self, write: Write) -> None:
        core = self._core
        write.attempts += 1
        home = write.home or write.cell.document.home
        transaction = home.begin(group=write.group)
        try:
            call_in(core.current, home, transaction, core.visible, write.act)
        except Missing as missing:
            home.drop(transaction)
            core.space_of(missing.document).when_here(missing.document, lambda: self._later(write))
        except Elsewhere as elsewhere:
            home.drop(transaction)
            if write.home is not None:
                raise  # It was sent on once: it writes several spaces.
            write.home = elsewhere.home  # A link leads there, and all of it goes there.
            self._attempt(write)
        except BaseException:
            home.drop(transaction)
            raise
        else:
            self.commit(home, transaction, lambda layer, rejection: self._settled(write, home, layer, rejection))
            core.request_tick()

    def commit(self, home: Replica, transaction: Transaction, *settled: Settled) -> None:
        """Commit what was written outside any run. What a watch's body writes comes from the watch (I6)."""
        marks = self._core.scheduler.marks
        running = marks.running
        if running is None:
            marks.running = self._core.observing.author()
        try:
            home.commit(transaction, *settled)
        finally:
            marks.running = running

    def _later(self, write: Write) -> None:
        self._reporting(lambda: self._attempt(write))

    def _reporting(self, act: Callable[[], object]) -> None:
        """Nobody who called waits for this any more."""
        was_admitted, self._is_admitted = self._is_admitted, True
        try:
            act()
        except Exception as error:  # It is told, and nothing else depends on it.
            self._core.report(WHO, error)
        finally:
            self._is_admitted = was_admitted

    # ---- its fate ------------------------------------------------------------------------------------

    def _settled(self, write: Write, home: Replica, layer: Layer, rejection: Rejection | None) -> None:
        if not isinstance(rejection, Conflict):
            self._end(layer, rejection)
        elif not rejection.collisions:
            write.home = None  # Links may lead elsewhere by now.
            self._again(write.cell.document, write.serial, lambda: self._attempt(write))
        else:
            self._conflicted(write, home, layer, rejection)

    def _again(self, document: Document, serial: int, act: Callable[[], object]) -> None:
        """It never left, or stood on something that is gone: nobody was in the way."""
        behind = self._behind.get(document)
        if behind is not None:
            insort(behind, (serial, act), key=_serial_of)
        else:
            self._unsent.append(act)
            self._core.request_tick()

    def _conflicted(self, write: Write, home: Replica, layer: Layer, conflict: Conflict) -> None:
        core, document = self._core, write.cell.document
        if document in self._behind:  # An earlier one is tried again: this one has its turn after that.
            self._again(document, write.serial, lambda: self._attempt(write))
            return
        space = core.space_of_replica(home)
        if space.retry is not None:
            self._behind[document] = []

            def attempt(transaction: Transaction) -> object:
                transaction.group = write.group
                return call_in(core.current, home, transaction, core.visible, write.act)

            space.retry(attempt, lambda: self._over(document))
            return
        now_us = core.clock.monotonic_us()
        write.began_us = write.began_us or now_us
        if now_us - write.began_us > WINDOW_US:
            error = CommitConvergenceError(
                f"a write did not land in {WINDOW_US / 1e6:g} s and {write.attempts} attempts, because others kept "
                "writing what it reads. Write less often, read less, or use an intent.",
                attempts=write.attempts,
                elapsed_ms=(now_us - write.began_us) / 1_000,
            )
            error.__cause__ = as_error(Rejected(layer.local_seq, conflict))
            core.report(WHO, error)
            return
        self._behind[document] = [(write.serial, lambda: self._attempt(write))]
        core.observing.when(lambda: space.channel.is_ready(conflict), lambda: self._over(document))

    def _over(self, document: Document) -> None:
        """Whatever stood behind a write has its turn now, in order."""
        for _, act in self._behind.pop(document, ()):
            self._unsent.append(act)
        self._core.request_tick()

    def _end(self, layer: Layer, rejection: Rejection | None) -> None:
        if rejection is not None:
            self._core.report(WHO, as_error(Rejected(layer.local_seq, rejection)))


def refuse_computed(document: Document) -> None:
    """What a node makes is not written by hand: it would be shown until the node runs again, and then be gone (I1)."""
    for writer in document.writers:
        if isinstance(writer, Node) and writer.returns and writer.outputs[0] is document:
            raise AuthoringError(f"{document!r} is computed by {writer.id}: write what that reads, not its result")


def _serial_of(entry: tuple[int, Callable[[], object]]) -> int:
    return entry[0]
