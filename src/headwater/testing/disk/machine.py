"""One machine that runs an engine on a faulty disk.

`Machine` opens, asks, abandons and reads an engine; `Rig` has the parts that can be replaced. Each step is asked at a
time of its own, so that asking it again writes the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import apsw

from headwater.clock import Clock, VirtualClock
from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.value import MaybeValue
from headwater.engine import Engine, Outcome, every
from headwater.engine.store.port import DeliveryStore, Store
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import StorageError
from headwater.testing.disk.faulty_disk import FaultyDisk, arranged_faults_unreported
from headwater.testing.disk.steps import Restart, Step, ask
from headwater.testing.disk.workload import LIMITS, WRITERS

FILE: Final = "crash.space"
SCOPES: Final = (SPACE_SCOPE, "user:ann", *(f"session:{key}" for key in WRITERS))
CHECKPOINT_PAGES: Final = 48  # SQLite's own 1,000 would see one checkpoint in the whole run
STEP_US: Final = 1_000
_OURS: Final = "crash-"  # how the names of the harness's disks begin

Documents: TypeAlias = Mapping[tuple[str, DocKey], tuple[MaybeValue, int]]
"""Every present document of every branch, and the seq that wrote it."""


class Killed(BaseException):
    """The process is gone. Not an Exception: nothing in the engine may handle it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """The software on the disk. Its parts can be replaced by broken ones, to see that they are found."""

    store: Callable[[str], Store] = lambda vfs: SqliteStore(FILE, vfs=vfs)
    engine: Callable[[Store, Clock], Engine] = lambda store, clock: Engine(store, clock=clock, limits=LIMITS)
    sector_garbled: bool = False  # a torn write destroys its whole sector; SQLite is told so


class TracedStore:
    """A store that tells of each call before it is made, and can be made to fail there.

    `before_call` may raise; `after_call` may, too, which is a call that was done and reported as failed.
    """

    def __init__(
        self,
        store: Store | DeliveryStore,
        before_call: Callable[[str], None],
        after_call: Callable[[str], None],
    ) -> None:
        self._store = store
        self._before = before_call
        self._after = after_call

    def __getattr__(self, name: str) -> object:
        found = getattr(self._store, name)
        if name == "delivery":
            return TracedStore(found, self._before, self._after)
        if not callable(found):
            return found

        def traced(*args: object, **options: object) -> object:
            self._before(name)
            answer = found(*args, **options)
            self._after(name)
            return answer

        return traced


class Machine:
    """A disk, an engine on it and a clock that shows the time of the step that is asked."""

    def __init__(
        self,
        rig: Rig,
        disk: FaultyDisk,
        *,
        before_call: Callable[[str], None] = lambda name: None,
        after_call: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.disk = disk
        self._rig = rig
        self._clock = VirtualClock()
        self._before, self._after = before_call, after_call
        self._store: Store | None = None
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise StorageError("the engine is not open")
        return self._engine

    @property
    def is_open(self) -> bool:
        return self._engine is not None

    def open(self) -> None:
        """Open the engine on the content of the disk. After a failure, call `abandon`."""
        self._store = store = self._rig.store(self.disk.vfs)
        self._after("open")
        self._clock = VirtualClock()
        traced = cast(Store, TracedStore(store, self._before, self._after))
        self._engine = self._rig.engine(traced, self._clock)

    def close(self) -> None:
        """Close the engine in good order. It is closed, too, if that fails."""
        engine, self._engine, self._store = self._engine, None, None
        if engine is not None:
            engine.close()

    def abandon(self) -> None:
        """Let go of an engine whose disk was taken away: its connection changes nothing any more."""
        store, self._engine, self._store = self._store, None, None
        if store is not None:
            store.close()

    def ask(self, number: int, step: Step) -> list[Outcome]:
        """Ask a step at its own time, so that asking again writes the same rows."""
        self._clock.advance(max(0, VirtualClock().now_us() + (number + 1) * STEP_US - self._clock.now_us()))
        if isinstance(step, Restart):
            self.close()
            self.open()
            return []
        return ask(self.engine, step)

    def documents(self) -> Documents:
        """Everything there is to read now, through the engine."""
        engine = self.engine
        return {
            (branch.name, found.doc): (found.value, found.seq)
            for branch in every(lambda after: engine.branches(after=after))
            for scope in SCOPES
            for found in engine.documents(scope, branch=branch.name).items
        }


@contextmanager
def harness() -> Iterator[None]:
    """Prepare the whole process for the use of machines: every connection checkpoints often, as a long run would."""

    def shrink(connection: apsw.Connection) -> None:
        if connection.open_vfs.startswith(_OURS):
            connection.wal_autocheckpoint(CHECKPOINT_PAGES)

    apsw.connection_hooks.append(shrink)
    try:
        with arranged_faults_unreported():
            yield
    finally:
        apsw.connection_hooks.remove(shrink)
