"""Writes outside any run: each a transaction of its own, which lands or is told to have failed. None vanishes.

A write that waits for its document, never left this process, or met a conflict is made again, by calling what made it.
Only a write that read something can meet a conflict; then whoever speaks for the space sees to it (`LocalSpace.retry`),
or it is tried again when what won is here. It never decides what runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.cell import Cell
from headwater.data.value import Value
from headwater.errors import CommitConvergenceError
from headwater.protocol.verdict import Conflict, Rejected, Rejection, as_error
from headwater.replica.document import Document
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.runtime.authored import Elsewhere, Missing, call_in

if TYPE_CHECKING:
    from headwater.runtime.core import Core

WINDOW_US: Final = 30_000_000
"""How long a write is tried again after its first conflict."""
WHO: Final = "a write outside any run"


class Write:
    """One write, however often it is made."""

    __slots__ = ("act", "attempts", "began_us", "cell", "group", "home")

    def __init__(self, cell: Cell[Any], act: Callable[[], object], group: object | None) -> None:
        self.cell = cell
        self.act = act
        self.group = group
        self.home: Replica | None = None  # where it writes, if a link leads to another space
        self.attempts = 0
        self.began_us = 0  # when its first conflict was heard of; 0: none was


class Writing:
    """All writes outside any run of one runtime."""

    __slots__ = ("_core", "_is_catching_up", "_unsent")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._is_catching_up = False  # what is made again is a write like any other, and does not wait for itself
        self._unsent: deque[Callable[[], object]] = deque()  # taken back before they left: made again, in order

    def __bool__(self) -> bool:
        """Whether something is to be made again now."""
        return bool(self._unsent)

    # ---- from handles --------------------------------------------------------------------------------

    def put(self, document: Document, value: Value, again: Callable[[], object], group: object | None) -> None:
        """Replace a whole document that is here. It reads nothing."""
        self.catch_up()
        space = self._core.space_of(document)
        if space.waits_for(document):
            space.when_here(document, lambda: self._reporting(again))
            return

        def settled(layer: Layer, rejection: Rejection | None) -> None:
            if isinstance(rejection, Conflict):
                self._again(again)
            else:
                self._end(layer, rejection)

        document.home.write_whole(document, value, (), None, group, "", None, False, settled)
        self._core.request_tick()

    def write(self, cell: Cell[Any], act: Callable[[], object], group: object | None) -> None:
        """Call `act` in a transaction. What it raises at once is the caller's, later the error channel's."""
        self.catch_up()
        write = Write(cell, act, group)
        space = self._core.space_of(cell.document)
        if space.waits_for(cell.document):
            space.when_here(cell.document, lambda: self._later(write))
        else:
            self._attempt(write)

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
            home.commit(transaction, lambda layer, rejection: self._settled(write, home, layer, rejection))
            core.request_tick()

    def _later(self, write: Write) -> None:
        self._reporting(lambda: self._attempt(write))

    def _reporting(self, act: Callable[[], object]) -> None:
        """Nobody who called waits for this any more."""
        try:
            act()
        except Exception as error:  # It is told, and nothing else depends on it.
            self._core.report(WHO, error)

    # ---- its fate ------------------------------------------------------------------------------------

    def _settled(self, write: Write, home: Replica, layer: Layer, rejection: Rejection | None) -> None:
        if not isinstance(rejection, Conflict):
            self._end(layer, rejection)
        elif not rejection.collisions:
            write.home = None  # Links may lead elsewhere by now.
            self._again(lambda: self._attempt(write))
        else:
            self._conflicted(write, home, layer, rejection)

    def _again(self, act: Callable[[], object]) -> None:
        """It never left, or stood on something that is gone: nobody was in the way."""
        self._unsent.append(act)
        self._core.request_tick()

    def _conflicted(self, write: Write, home: Replica, layer: Layer, conflict: Conflict) -> None:
        core = self._core
        space = core.space_of_replica(home)
        if space.retry is not None:
            space.retry(lambda tx: call_in(core.current, home, tx, core.visible, write.act))
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
        core.observing.when(lambda: space.channel.is_ready(conflict), lambda: self._again(lambda: self._attempt(write)))

    def _end(self, layer: Layer, rejection: Rejection | None) -> None:
        if rejection is not None:
            self._core.report(WHO, as_error(Rejected(layer.local_seq, rejection)))
