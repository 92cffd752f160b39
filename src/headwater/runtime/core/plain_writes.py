"""Writes outside any run: each is a transaction of its own, which lands or is reported as failed. None vanishes.

A write that waits for a document, never left this process, or met a conflict is made again by calling the function that
made it. A write meets a conflict if it read something, or if other writers removed the part of a document that it
changes. The channel of the space then retries it (`LocalSpace.retry`); without a retrying channel, it is tried again
when the winning commit is here. Until the write ends, later writes to the same documents wait behind it: a runtime's
writes to one document land in the order in which they were made, as far as their documents are known. The target of a
write through a link is known once the link is here. `PlainWrites` never decides which node runs.

A plain `set` of a Model or a Mapping writes fields (`cells.cell.FieldChange`). `undecided_places` and `unseen_places`
tell it which fields earlier writes of this runtime have written that had no outcome when it was asked for, made before
and after that.

`WriteOrder` keeps the writes that wait for an earlier one, by document and in order. A `WriteHold` covers some
documents as long as one write to them is still to be made, because it waits for a document to arrive or is retried. A
write to one of these documents meanwhile has its turn after that write. `WriteOrder` makes no write itself.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.cell import Cell
from headwater.cells.runtime_port import UndecidedPlaces
from headwater.data.path import Path, starts_with
from headwater.data.value import Value, equal
from headwater.errors import CommitConvergenceError, LimitError
from headwater.protocol.verdict import Conflict, Rejected, Rejection, as_error
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.pending import Layer, Settled
from headwater.replica.replica import Replica
from headwater.replica.transaction import Transaction
from headwater.runtime.core.demand import Demand
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.tracker import (
    UNDECIDED,
    Missing,
    OtherSpaceWrite,
    Overtaking,
    Stale,
    TransactionTracker,
    falling,
    refuse_computed,
)
from headwater.scheduler.failures import INTERRUPTS, as_failure
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.local_space import LocalSpace


Place = tuple[Document, Path]
"""A document, and a path in it."""
QueuedWrite = tuple[int, Callable[[], object]]
"""The serial of a write, in the order in which writes were first made, and the function that makes it."""


class WriteHold:
    """Some documents, and the writes that wait for their turn on them."""

    __slots__ = ("documents", "writes")

    def __init__(self) -> None:
        self.documents: dict[Document, None] = {}
        self.writes: list[QueuedWrite] = []  # by serial: the order in which they were first made


class WriteOrder:
    """All holds of one runtime. A document is in at most one hold."""

    __slots__ = ("_holds",)

    def __init__(self) -> None:
        self._holds: dict[Document, WriteHold] = {}

    def __bool__(self) -> bool:
        return bool(self._holds)

    def over(self, documents: Iterable[Document]) -> WriteHold | None:
        """Return the hold of one of these documents. A write whose documents are in several waits for one by one."""
        if self._holds:
            for document in documents:
                hold = self._holds.get(document)
                if hold is not None:
                    return hold
        return None

    def begin(self, documents: Iterable[Document]) -> WriteHold:
        """Begin a hold: from now on writes to these documents wait."""
        hold = WriteHold()
        self._widen(hold, documents)
        return hold

    def has_writes(self) -> bool:
        """Return True if a write waits behind another one."""
        return any(hold.writes for hold in self._holds.values())

    def check_room(self, hold: WriteHold) -> None:
        if len(hold.writes) >= RUNTIME_LIMITS.writes_behind:
            document = next(iter(hold.documents))
            raise LimitError(
                f"{len(hold.writes)} writes wait for {document!r} to be written: await them, or write less often"
            )

    def stand(self, hold: WriteHold, documents: Iterable[Document], queued: QueuedWrite) -> None:
        """Add a write to a hold, by its serial: a write that was taken back may be older than the waiting ones."""
        insort(hold.writes, queued, key=serial_of)
        self._widen(hold, documents)

    def end(self, hold: WriteHold) -> list[QueuedWrite]:
        """End a hold and return the writes that waited, in order."""
        for document in hold.documents:
            if self._holds.get(document) is hold:
                del self._holds[document]
        writes, hold.writes = hold.writes, []
        return writes

    def _widen(self, hold: WriteHold, documents: Iterable[Document]) -> None:
        for document in documents:
            if document not in self._holds:
                self._holds[document] = hold
                hold.documents[document] = None


def serial_of(queued: QueuedWrite) -> int:
    return queued[0]


def _is_outside_runs(layer: Layer) -> bool:
    """True if a commit was made by a plain write or a transaction, and by no node or handler."""
    return not layer.commit.provenance.node


WHO: Final = "a write outside any run"


class PlainWrite:
    """One write, over all its attempts."""

    __slots__ = ("act", "attempts", "author", "began_us", "cell", "documents", "group", "home", "serial")

    def __init__(self, serial: int, cell: Cell[Any], act: Callable[[], object], group: object | None) -> None:
        self.serial = serial
        self.cell = cell
        self.act = act
        self.group = group
        self.documents: tuple[Document, ...] = (cell.document,)  # kept in order: its cell's and those it last wrote
        self.home: Replica | None = None  # the space that it writes, if a link leads to another one
        self.author: Node | None = None  # the observer in whose function it was made, if there is one
        self.attempts = 0
        self.began_us = 0  # time of its first conflict; 0: none so far


class PlainWrites:
    """All writes outside any run of one runtime."""

    __slots__ = ("_behind", "_core", "_is_catching_up", "_made", "_places", "_serial", "_standing", "_unsent")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._made = 0  # the serial of the write being made, if it was accepted before; 0: writes are new
        self._is_catching_up = False  # a write that is made again must not wait for itself
        self._serial = 0  # of the newest write
        self._standing = WriteOrder()  # writes that wait for an earlier write to the same document
        # While writes wait: by the serials of those that were made after later ones were asked for, the newest serial
        # then, and where they wrote.
        self._places: dict[int, tuple[int, list[Place]]] = {}
        self._behind = 0  # how many writes are made again after the present one
        self._unsent: list[QueuedWrite] = []  # taken back before they were sent, or had to wait: made again, in order

    def __bool__(self) -> bool:
        """True if a write is to be made again now."""
        return bool(self._unsent)

    def waits(self) -> bool:
        """True if a write is still to be made, now or later."""
        return bool(self._unsent or self._standing)

    def check_turn(self, space: LocalSpace, transaction: Transaction, wrote: Iterable[Document]) -> None:
        """Raise `Overtaking` if earlier writes outside any run to documents of a transaction are still to be made.

        A transaction or a handler that reads or writes these documents has its turn after these writes. A write that
        does not fit the present value, and so is not shown, is made again or lands once it has its verdict.
        """
        if not self._standing and not space.has_deferred_writes() and not space.replica.pending.misfitted:
            return
        # fault writing.overtaken_by_transactions: wrote = ()
        documents = dict.fromkeys(wrote)
        # fault writing.unmade_writes_not_read: for doc, _, _ in ():
        for doc, _, _ in transaction.read_set():
            document = transaction.documents.get(doc)
            if document is not None:
                documents[document] = None
        waiting = [each for each in documents if self._is_to_be_made(each)]
        if waiting:
            raise Overtaking(waiting)

    def are_made(self, documents: Iterable[Document]) -> bool:
        """True if the writes that `check_turn` has found are made, and shown."""
        return not any(map(self._is_to_be_made, documents))

    def _is_to_be_made(self, document: Document) -> bool:
        if self._standing.over((document,)) is not None or self._core.space_of(document).waits_for(document):
            return True
        # fault writing.hidden_writes_not_read: return False
        return any(_is_outside_runs(layer) for layer in document.home.pending.hidden(document))

    # ---- from handles --------------------------------------------------------------------------------

    def put(self, document: Document, value: Value, again: Callable[[], object], group: object | None) -> bool:
        """Replace a whole document that is here, without reading it.

        False: nothing was written, and the caller has to write in a transaction, with reads.
        """
        if document.writers:
            refuse_computed(document)
        self._check_room(document.home)
        self.catch_up()
        if document.layers and falling(document):
            return False
        serial = self._number()
        if self._stands_behind(document, serial, again):
            return True
        if document.value is not NOT_HERE and equal(document.value, value):
            # An equal dict has no field to write. A value without fields is written again, and so is an equal value of
            # a layer, which may be rejected.
            return type(value) is dict and not document.layers

        def settled(layer: Layer, rejection: Rejection | None) -> None:
            if isinstance(rejection, Conflict):
                self._again((document,), serial, again)
            else:
                self._end(layer, rejection)

        marks = self._core.scheduler.marks
        running = marks.running
        if running is None:
            marks.running = self._core.observers.author()
        try:
            document.home.write_whole(document, value, (), None, self._group(group), "", settled)
        finally:
            marks.running = running
        self._core.request_tick()
        return True

    def write(self, cell: Cell[Any], act: Callable[[], object], group: object | None) -> None:
        """Call `act` in a transaction. Errors raised at once go to the caller, later ones to the error channel."""
        if cell.document.writers:
            refuse_computed(cell.document)
        self._check_room(cell.document.home)
        self.catch_up()
        write = PlainWrite(self._number(), cell, act, group)
        # fault writing.author_of_delayed_writes_lost: self._core.scheduler.marks.running = None
        write.author = self._core.scheduler.marks.running or self._core.observers.author()
        if not self._stands_behind(cell.document, write.serial, lambda: self._attempt(write)):
            self._attempt(write)

    def _number(self) -> int:
        """Return the serial of a write. A write that is made again keeps its serial, and so its turn."""
        if self._made:
            return self._made
        self._serial += 1
        return self._serial

    def _group(self, group: object | None) -> object | None:
        """Return the group whose sinks are not called.

        None for a delayed write: the sinks of its group may have been called with a value without it, so they are
        called, too.
        """
        return None if self._made else group

    def _check_room(self, home: Replica) -> None:
        if self._made:
            return  # It was accepted before, and is not refused for lack of room.
        try:
            home.check_room()
        except LimitError:
            self._core.space_of_replica(home).channel.flush()  # A channel that confirms at once has room again.
            home.check_room()

    def _stands_behind(self, document: Document, serial: int, act: Callable[[], object]) -> bool:
        """True if earlier writes to the document are still to be made: this write then has its turn after them."""
        space = self._core.space_of(document)
        if space.waits_for(document):
            space.when_here(document, lambda: self._queue([(serial, act)]))
            self.catch_up()
            return True
        hold = self._standing.over((document,))
        if hold is None:
            return False
        self._standing.check_room(hold)
        self._standing.stand(hold, (document,), (serial, act))
        return True

    def catch_up(self) -> None:
        """Make writes again that were never sent, before newer writes are made."""
        if self._unsent and not self._is_catching_up:
            self._is_catching_up = True
            writes, self._unsent = self._unsent, []  # A write refused again has its turn in the next slice.
            try:
                self._make_all(writes)
            finally:
                self._is_catching_up = False
                if not self._has_later():
                    self._places.clear()

    def _queue(self, writes: list[QueuedWrite]) -> None:
        """Note writes whose documents have arrived. `catch_up` makes them, the oldest of all first."""
        # fault+ writing.older_writes_overtaken: return self._make_all(writes)
        for queued in writes:
            insort(self._unsent, queued, key=serial_of)
        self._core.request_tick()

    def _make_all(self, writes: list[QueuedWrite]) -> None:
        made = 0
        try:
            for queued in writes:
                made += 1
                self._behind = len(writes) - made
                self._make(*queued)
        finally:
            self._behind = 0
            for queued in writes[made:]:  # An interrupt: these writes are still to be made.
                insort(self._unsent, queued, key=serial_of)

    def _make(self, serial: int, act: Callable[[], object]) -> None:
        """Make a write that was accepted before. Its caller does not wait any more, so errors are reported."""
        try:
            with self._making(serial):
                act()
        except BaseException as error:  # Reported: no other write depends on it.
            self._core.report(WHO, as_failure(error))
            if isinstance(error, INTERRUPTS):
                raise

    @contextmanager
    def _making(self, serial: int) -> Iterator[None]:
        """Make a write that was accepted before, and note where it writes if later writes were asked for meanwhile."""
        current = self._core.scheduler.current
        before, written = self._made, current.written
        self._made = serial
        # fault writing.unseen_writes_forgotten: current.written = None
        current.written = [] if serial < self._serial else None
        try:
            yield
        finally:
            if current.written and self._has_later():
                self._places[serial] = self._serial, current.written
            self._made, current.written = before, written

    def _has_later(self) -> bool:
        """Return True if a write waits for its turn."""
        is_queued = self._behind or self._unsent or self._standing.has_writes()
        return bool(is_queued) or any(space.has_deferred_writes() for space in self._core.spaces())

    def undecided_places(self, document: Document, path: Path) -> UndecidedPlaces:
        """Return where earlier writes without an outcome have written a document, at a path and below."""
        if self._core.scheduler.current.run is None:
            self.catch_up()
        home = document.home
        is_replaced, below = home.pending.repeated(document, path, home.next_local_seq)
        # Writes that do not fit the present value, and so are not shown, may still land.
        layers = [each for each in document.layers if each.fate in UNDECIDED] if is_replaced else ()
        others = layers or home.pending.hidden(document)
        places = (*below, *[place for layer in others for place in layer.written(document.key)])
        at = len(path)
        return UndecidedPlaces(
            is_replaced,
            any(layer.removes(document.key, path) for layer in layers),
            [place[at:] for place in places if len(place) > at and starts_with(place, path)],
        )

    def unseen_places(self, document: Document) -> list[Path]:
        """Return where earlier writes wrote a document after the write that is being made was asked for."""
        return [
            path
            for serial, (newest, places) in self._places.items()
            if serial < self._made <= newest
            for at, path in places
            if at is document
        ]

    # ---- an attempt ----------------------------------------------------------------------------------

    def _attempt(self, write: PlainWrite) -> None:
        core = self._core
        if self._has_to_wait(write):
            return
        write.attempts += 1
        home = write.home or write.cell.document.home
        transaction = home.begin(group=self._group(write.group))
        transaction.reads_back = False  # A plain `set` writes the fields that its caller changed.
        tracker = TransactionTracker(core.scheduler, home, transaction, core.visible)
        try:
            core.call_in(home, transaction, write.act, tracker)
        except Missing as missing:
            home.drop(transaction)
            self._wait_for(write, missing.documents[0])
        except Stale as stale:
            home.drop(transaction)
            self._wait_until_fresh(write, stale.documents)
        except OtherSpaceWrite as elsewhere:
            home.drop(transaction)
            if write.home is not None:
                raise  # It was redirected once before: it writes several spaces.
            write.home = elsewhere.home  # A link leads there, and the whole write goes there.
            self._attempt(write)
        except BaseException:
            home.drop(transaction)
            raise
        else:
            write.documents = (write.cell.document, *tracker.wrote)
            hold = self._standing.over(write.documents)
            if hold is not None:  # A link led to a document that an earlier write is still to write.
                home.drop(transaction)
                if not self._made:
                    self._standing.check_room(hold)
                self._has_to_wait(write)
                return
            self.commit(home, transaction, partial(self._settled, write, home), author=write.author)
            core.request_tick()

    def _has_to_wait(self, write: PlainWrite) -> bool:
        hold = self._standing.over(write.documents)
        if hold is None:
            return False
        self._standing.stand(hold, write.documents, (write.serial, lambda: self._attempt(write)))
        return True

    def _wait_for(self, write: PlainWrite, document: Document) -> None:
        """Make a write again when a document that it needs has arrived. Later writes do not overtake it."""
        space = self._core.space_of(document)
        if document is write.cell.document:
            space.when_here(document, lambda: self._queue([(write.serial, lambda: self._attempt(write))]))
            self.catch_up()
            return
        hold = self._standing.begin(write.documents)

        def here() -> None:
            self._queue([(write.serial, lambda: self._attempt(write)), *self._standing.end(hold)])

        try:
            space.when_here(document, here, lambda: self._over(hold))
        except LimitError:
            self._over(hold)
            raise
        self.catch_up()

    def _wait_until_fresh(self, write: PlainWrite, documents: Sequence[Document]) -> None:
        """Make a write again when the computeds that it reads are fresh. Later writes do not overtake it."""
        demand = Demand(self._core, WHO, documents)
        hold = self._standing.begin(write.documents)

        def over() -> None:
            error = demand.error()
            demand.end()
            if error is None:
                self._standing.stand(hold, (), (write.serial, lambda: self._attempt(write)))
            else:
                self._core.report(WHO, error)
            self._over(hold)

        self._core.observers.when(demand.is_over, over)

    def commit(self, home: Replica, transaction: Transaction, *settled: Settled, author: Node | None = None) -> None:
        """Commit writes made outside any run. Writes of a watch's body are caused by the watch (I6)."""
        marks = self._core.scheduler.marks
        running = marks.running
        if running is None:
            marks.running = author or self._core.observers.author()
        try:
            home.commit(transaction, *settled)
        finally:
            marks.running = running

    # ---- its fate ------------------------------------------------------------------------------------

    def _settled(self, write: PlainWrite, home: Replica, layer: Layer, rejection: Rejection | None) -> None:
        if not isinstance(rejection, Conflict):
            self._end(layer, rejection)
        elif not rejection.collisions:
            write.home = None  # Links may lead elsewhere by now.
            self._again(write.documents, write.serial, lambda: self._attempt(write))
        else:
            self._conflicted(write, home, layer, rejection)

    def _again(self, documents: tuple[Document, ...], serial: int, act: Callable[[], object]) -> None:
        """Make a write again that was never sent, or that stood on a commit that is gone. It met no other writer."""
        hold = self._standing.over(documents)
        if hold is not None:
            self._standing.stand(hold, documents, (serial, act))
        else:
            insort(self._unsent, (serial, act), key=serial_of)
            self._core.request_tick()

    def _conflicted(self, write: PlainWrite, home: Replica, layer: Layer, conflict: Conflict) -> None:
        core = self._core
        if self._has_to_wait(write):  # An earlier write is retried: this one has its turn after it.
            return
        space = core.space_of_replica(home)
        if space.retry is not None:
            hold = self._standing.begin(write.documents)

            def attempt(transaction: Transaction) -> None:
                with self._making(write.serial):
                    core.call_in(home, transaction, write.act)

            space.retry(attempt, lambda: self._over(hold))
            return
        now_us = core.clock.monotonic_us()
        write.began_us = write.began_us or now_us
        if now_us - write.began_us > RUNTIME_LIMITS.plain_window_us:
            error = CommitConvergenceError(
                f"a write did not land in {RUNTIME_LIMITS.plain_window_us / 1e6:g} s and {write.attempts} attempts, "
                "because other writers kept changing its reads. Write less often, read less, or use an intent.",
                attempts=write.attempts,
                elapsed_ms=(now_us - write.began_us) / 1_000,
            )
            error.__cause__ = as_error(Rejected(layer.local_seq, conflict))
            core.report(WHO, error)
            return
        hold = self._standing.begin(write.documents)
        self._standing.stand(hold, (), (write.serial, lambda: self._attempt(write)))
        core.observers.when(lambda: space.channel.is_ready(conflict), lambda: self._over(hold))

    def _over(self, hold: WriteHold) -> None:
        """End a hold: the writes that waited behind it have their turn now, in order."""
        for queued in self._standing.end(hold):
            insort(self._unsent, queued, key=serial_of)
        self._core.request_tick()

    def _end(self, layer: Layer, rejection: Rejection | None) -> None:
        if rejection is not None:
            self._core.report(WHO, as_error(Rejected(layer.local_seq, rejection)))
