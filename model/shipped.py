"""The shipped engine beside the model's: every decision that the model's engine can come to, asked of both.

A model that drifts away from the code proves nothing about it. So the steps of the model's engine (commits
judged, verdicts acknowledged, restarts) are collected over all reachable states of a workload, and each is taken
on a real `headwater.engine.Engine`, after the same steps as in the model. Verdicts, seqs and documents must agree.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.clock import VirtualClock
from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.patch import append
from headwater.data.value import ABSENT
from headwater.engine.engine import Engine as ShippedEngine
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol import commit as protocol
from headwater.protocol.verdict import Accepted
from model import engine as engines
from model.engine import Engine
from model.messages import NAMES, Acknowledging, Commit, Crashing, Event, Flushing, Judging, Verdict
from model.system import System
from model.workload import PATHS

History = tuple[Event, ...]


class DisagreementError(Exception):
    """The shipped engine decided otherwise than the model's."""


def histories(system: System) -> list[History]:
    """Ways through a system that was explored which together take every step of its engine."""
    steps: dict[Engine, set[tuple[Event | None, Engine]]] = {}
    for engine, event, after in system.engine_steps():
        steps.setdefault(engine, set()).add((event, after))
    start = engines.new_engine(len(system.workload))
    ways: dict[Engine, History] = {start: ()}
    frontier = [start]
    taken: list[History] = []
    for engine in frontier:  # grows while it is walked: breadth first
        for event, after in sorted(steps.get(engine, ()), key=str):
            way = ways[engine] if event is None else (*ways[engine], event)
            if after not in ways:
                ways[after] = way
                frontier.append(after)
            taken.append(way)
    begun = {way[:length] for way in taken for length in range(len(way))}
    return sorted({way for way in taken if way not in begun}, key=str)


class Shipped:
    """One shipped engine in memory that plays many histories, each with documents and sessions of its own."""

    __slots__ = ("_base", "_engine", "_expected", "_group", "_played", "_store", "decisions")

    def __init__(self) -> None:
        self._store = SqliteStore(":memory:", synchronous="OFF")
        self._engine = ShippedEngine(self._store, clock=VirtualClock())
        self._played = 0
        self._base = 0
        self._group: list[Judging] = []
        self._expected: dict[int, Commit] = {}
        self.decisions = 0

    def close(self) -> None:
        self._engine.close()

    def play(self, history: Iterable[Event], *, groups: bool) -> None:
        """Take the steps of a history. With `groups`, commits become durable where the history says so."""
        self._played += 1
        self._base = self._engine.last_seq
        self._group = []
        self._expected = {}
        for number in range(len(NAMES)):
            self._engine.open_session(self._session(number))
        for event in history:
            match event:
                case Judging():
                    self._group.append(event)
                    if not groups:
                        self._submit()
                case Flushing():
                    self._submit()
                case Crashing():
                    self._group = []
                    self._engine = ShippedEngine(self._store, clock=VirtualClock())
                case Acknowledging():
                    self._engine.acknowledge(self._session(event.replica), event.local)
        self._submit()
        self._check_documents()

    def _submit(self) -> None:
        group, self._group = self._group, []
        frames = [(self._session(event.commit.replica), [self._translated(event.commit)]) for event in group]
        for event, outcome in zip(group, self._engine.submit_group(frames) if frames else [], strict=True):
            self.decisions += 1
            if isinstance(outcome, Exception):
                raise DisagreementError(f"{event.commit}: the model says {event.verdict}, the engine {outcome}")
            shipped = outcome[0]
            seq = shipped.seq - self._base if isinstance(shipped, Accepted) else 0
            if Verdict(shipped.local_seq, seq) != event.verdict:
                raise DisagreementError(f"{event.commit}: the model says {event.verdict}, the engine {shipped}")
            if seq:
                self._expected[seq] = event.commit

    def _check_documents(self) -> None:
        for path in PATHS:
            writes = [str(self._expected[seq]) for seq in sorted(self._expected) if self._expected[seq].writes == path]
            value = self._engine.read(self._document(path)).value
            if value != (tuple(writes) or ABSENT):
                raise DisagreementError(f"{path} should hold {writes} and holds {value!r}")

    # ---- the same things in the protocol's words -------------------------------------------------

    def _session(self, replica: int) -> str:
        return f"{NAMES[replica]}{self._played}"

    def _document(self, path: str) -> DocKey:
        return DocKey(SPACE_SCOPE, f"{path}{self._played}")

    def _translated(self, commit: Commit) -> protocol.Commit:
        layers = tuple((layer, layer) for layer in commit.layers)
        reads = [
            protocol.Read(self._document(path), (), Depth.DEEP, self._base + commit.basis, layers)
            for path in commit.reads
        ]
        write = protocol.Operation(self._document(commit.writes), (append((), [str(commit)]),))
        return protocol.Commit(commit.local, (write,), tuple(reads))
