"""Short ways to say what the engine's tests say often. Decides and checks nothing.

A `Writer` is a session with a running number: it sends commits and keeps the last verdicts. Documents are
named by one word in the space scope unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path as FilePath

from headwater.clock import Clock, VirtualClock
from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.patch import Patch
from headwater.data.path import Path
from headwater.data.value import MaybeValue
from headwater.engine import DEFAULT_LIMITS, Engine, Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import MAIN, Commit, Operation, Precondition, Provenance, Read
from headwater.protocol.verdict import Accepted, Conflict, Rejected, Verdict

DEEP = Depth.DEEP
SHAPE = Depth.SHAPE


def doc(id: str, scope: str = SPACE_SCOPE) -> DocKey:
    return DocKey(scope, id)


def write(id: str, *patches: Patch) -> Operation:
    return Operation(doc(id), patches)


def read(id: str, path: Path = (), *, seq: int, depth: Depth = DEEP, layers: tuple[tuple[int, int], ...] = ()) -> Read:
    return Read(doc(id), path, depth, seq, layers)


def open_store(path: str | FilePath = ":memory:") -> SqliteStore:
    """A store that does not wait for the disk: nothing here needs the disk's own promises."""
    return SqliteStore(path, synchronous="OFF")


def open_engine(
    on: str | FilePath | SqliteStore = ":memory:", *, limits: Limits = DEFAULT_LIMITS, clock: Clock | None = None
) -> Engine:
    """An engine on a virtual clock, on a store or on a new store of a path."""
    store = on if isinstance(on, SqliteStore) else open_store(on)
    return Engine(store, clock=clock or VirtualClock(), limits=limits)


class Writer:
    """A session that numbers its commits by itself."""

    def __init__(self, engine: Engine, key: str, *, principal: str = "") -> None:
        self.engine = engine
        self.key = key
        engine.open_session(key, principal)
        self.next = 1

    def commit(
        self,
        *operations: Operation,
        reads: Iterable[Read] = (),
        preconditions: Iterable[Precondition] = (),
        branch: str = MAIN,
        node: str = "",
    ) -> Commit:
        """The next commit, not sent yet."""
        made = Commit(
            self.next,
            operations,
            tuple(reads),
            tuple(preconditions),
            branch,
            provenance=Provenance(node) if node else Provenance(),
        )
        self.next += 1
        return made

    def send(
        self,
        *operations: Operation,
        reads: Iterable[Read] = (),
        preconditions: Iterable[Precondition] = (),
        branch: str = MAIN,
        node: str = "",
    ) -> Verdict:
        """Make one commit, submit it alone, answer its verdict."""
        made = self.commit(*operations, reads=reads, preconditions=preconditions, branch=branch, node=node)
        return self.engine.submit(self.key, made)[0]

    def lands(
        self,
        *operations: Operation,
        reads: Iterable[Read] = (),
        preconditions: Iterable[Precondition] = (),
        branch: str = MAIN,
        node: str = "",
    ) -> int:
        """The same, for a commit that must be accepted: answers its seq."""
        return seq_of(self.send(*operations, reads=reads, preconditions=preconditions, branch=branch, node=node))


def seq_of(verdict: Verdict) -> int:
    assert isinstance(verdict, Accepted), verdict
    return verdict.seq


def conflict_of(verdict: Verdict) -> Conflict:
    assert isinstance(verdict, Rejected), verdict
    assert isinstance(verdict.rejection, Conflict), verdict
    return verdict.rejection


def value_of(engine: Engine, id: str, *, branch: str = MAIN, at: int | None = None) -> MaybeValue:
    return engine.read(doc(id), branch=branch, at=at).value
