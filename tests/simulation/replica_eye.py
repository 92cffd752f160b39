"""Watches one of several runtimes from outside, and says by naive definitions where an invariant does not hold.

It knows what rules read, because they read through it, and hears every notification, every verdict and the trace. Who
ought to run, and why, is derived from that alone: what the scheduler keeps in its indexes is not asked. Changes
nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.data.path import Path
from headwater.data.trace import Exhausted, PassEnded, Removed, RunStarted, Suspended, TraceEvent
from headwater.data.value import equal
from headwater.protocol.verdict import Rejection
from headwater.replica import NOT_HERE, Document, Kind, Layer, Notification, TierEntry
from headwater.scheduler import Node, NodeKind
from tests.simulation.replica_expected import Expected
from tests.simulation.replica_rules import Look, Place, said, walk

if TYPE_CHECKING:
    from tests.simulation.replica_runtime import Runtime

Address = tuple[str, Path]


@dataclass
class Reading:
    """What one attempt looked at."""

    told: dict[Look, object] = field(default_factory=dict)
    places: dict[Place, None] = field(default_factory=dict)


@dataclass
class Known:
    """What is known of one node, by identity."""

    node: Node
    kept: Reading | None = None  # its last completed run
    stopped: dict[Place, None] = field(default_factory=dict)  # what attempts looked at that were stopped since
    why: dict[Address, None] = field(default_factory=dict)  # read by its last run, and shown differently since
    maybe: dict[Address, None] = field(default_factory=dict)  # the same of attempts that were stopped
    own: bool = False  # its last run changed something that it had read itself
    owns: bool = False  # the same of the run under way
    found: frozenset[str] = frozenset()  # the result that its last run found in place and did not write
    made: frozenset[str] = frozenset()  # the result of its last run, whether or not it wrote it
    rejections: int = 0  # since its last completed run
    waits_for: tuple[str, ...] = ()
    is_new: bool = False  # made by a demanded run, in a pass that is not over


@dataclass(frozen=True)
class Wrote:
    """What a run's commit has to say of itself."""

    node: str
    outputs: frozenset[str]
    must: frozenset[Address]
    may: frozenset[Address]
    entry: TierEntry | None = None  # None: a layer, or a result that is the same as the one before


class Eye:
    """Everything that happens to the nodes of one runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.problems: list[tuple[str, str]] = []  # (invariant, what is wrong)
        self.known: dict[str, Known] = {}  # by id: whoever is registered
        self.wrote: dict[int, Wrote] = {}  # by local_seq
        self.results: dict[str, list[Wrote]] = {}  # by node, in order
        self.reading: Reading | None = None
        self.running: str | None = None
        self.waiting: list[tuple[str, Reading]] = []  # attempts that wait where they are for the one that is running
        self.attempts = 0
        self.query_observations = 0
        self.wanted: dict[str, None] = {}  # documents that an attempt read or was to write
        self.rejected = 0
        self.overwritten = 0  # results under which another session wrote something else
        self.runs: Counter[str] = Counter()
        self.order: list[str] = []  # who ran in this pass
        self.heights: dict[str, int] = {}  # and how high each was when its turn came
        self.arrivals = 0  # things that came from outside in this pass
        self.exhausted: Counter[str] = Counter()
        self.done: Counter[str] = Counter()  # what there was to check

    def join(self) -> None:
        """Begin to watch: before anything is registered."""
        replica, scheduler = self.runtime.replica, self.runtime.kernel.scheduler
        replica.feed.subscribe(self._heard)
        scheduler.faults.subscribe(self._heard)
        scheduler.introspection.on_ran(self._ran)
        scheduler.set_trace(self)
        replica.on_rejected(self._rejected)
        replica.on_overwritten(self._overwritten)

    def wrong(self, invariant: str, what: str) -> None:
        self.problems.append((invariant, f"{invariant}: runtime {self.runtime.home}: {what}"))

    # ---- who there is --------------------------------------------------------------------------------

    def entered(self, node: Node) -> None:
        known = self.known.get(node.id)
        if self.running is None:
            self._came()
        if known is None or known.node is not node:
            known = self.known[node.id] = Known(node)
            known.is_new = self.running is not None and self.running in self.demanded()

    def demanded(self, *, by_runs: bool = False) -> set[str]:
        """Whoever an effect needs, directly or through others, or somebody's attempt waits for. The naive way (I2).

        `by_runs`: only what completed runs have read counts, of nodes that wait for nothing.
        """
        writers: dict[str, list[str]] = {}
        for name, known in self.known.items():
            for document in known.node.outputs:
                writers.setdefault(document.key.id, []).append(name)
        under_way: dict[str, Reading] = {} if by_runs else dict(self.waiting)
        waiting = [
            name for name, known in self.known.items() if known.node.kind is not NodeKind.COMPUTATION or known.is_new
        ]
        found = set(waiting)
        while waiting:
            known = self.known[waiting.pop()]
            if by_runs and known.node.loading is not None:
                continue
            places = known.kept.places if known.kept is not None else {}
            looked = under_way[known.node.id].places if known.node.id in under_way else {}
            read = {place.name for place in (places if by_runs else (*places, *known.stopped, *looked))}
            needed = [writer for name in read for writer in writers.get(name, ())]
            for name in needed if by_runs else (*needed, *known.waits_for):
                if name not in found and name in self.known:
                    found.add(name)
                    waiting.append(name)
        return found

    # ---- what rules read -----------------------------------------------------------------------------

    def looks(self, look: Look) -> None:
        """An attempt is about to look somewhere."""
        assert self.reading is not None
        self.query_observations += 1
        places = walk(look, self.runtime.shown)[0]
        self.reading.places.update(places)
        self.wanted.update(dict.fromkeys(place.name for place in places))

    def told(self, look: Look, told: object) -> None:
        """And was told this."""
        if self.reading is not None:  # Otherwise it was removed meanwhile, by itself.
            self.reading.told[look] = told

    # ---- what is heard -------------------------------------------------------------------------------

    def _heard(self, notification: Notification) -> None:
        """I3, I8: whoever read something that is shown differently has a reason to run, and nobody else."""
        if self.running is None:
            self._came()
        for change in notification.changes:
            name = change.document.key.id
            for id, known in self.known.items():
                is_own = id == self.running
                places = known.kept.places if known.kept is not None and not is_own else {}
                if is_own and self.reading is not None:
                    places = self.reading.places
                for place in places:
                    if place.name == name and (not change.known_before or place.differs(change.before, change.after)):
                        if is_own:
                            known.owns = True
                        else:
                            known.why[place.name, place.path] = None
                for place in known.stopped:
                    if place.name == name:
                        known.maybe[place.name, place.path] = None

        if notification.kind is not Kind.COMMIT:
            changed = {change.document.key.id for change in notification.changes}
            self._taken_away(changed, is_heard=notification.kind is not Kind.REVERT)

    def _taken_away(self, changed: set[str], *, is_heard: bool) -> None:
        """A result counts as read, if nothing else makes its node run anyway.

        What is taken back counts only where it was found in place: otherwise it may be the node's own commit.
        """
        for known in self.known.values():
            gone = (known.made if is_heard else known.found) & changed
            if gone:  # Of several that go at once, one is named.
                is_open = known.why or known.rejections or len(gone) > 1
                (known.maybe if is_open else known.why).update(dict.fromkeys((name, ()) for name in sorted(gone)))

    def _overwritten(self, document: Document, *_: object) -> None:
        """Another session wrote something else to the output of a node, under the result of that node."""
        self._came()
        self.overwritten += 1
        self._taken_away({document.key.id}, is_heard=True)

    def _came(self) -> None:
        """Something came from outside. It counts from the first run of a pass on."""
        self.arrivals += bool(self.order)

    def _rejected(self, layer: Layer, rejection: Rejection | None) -> None:
        node = layer.source
        if isinstance(node, Node):
            self.rejected += 1
            self._came()
            known = self.known.get(node.id)
            wrote = self.wrote.get(layer.local_seq)
            if known is not None and known.node is node and wrote is not None:
                known.rejections += 1
                known.why.update(dict.fromkeys(wrote.must))
                known.maybe.update(dict.fromkeys(wrote.may))

    # ---- the trace -----------------------------------------------------------------------------------

    def emit(self, event: TraceEvent) -> None:
        match event:
            case RunStarted(node):
                self._started(node)
            case Suspended(node, waits_for):
                known = self.known[node]
                known.waits_for = waits_for
                if self.reading is not None:
                    known.stopped.update(self.reading.places)
                self._ended()
            case Removed(node):
                self._removed(node)
            case Exhausted(node):
                self.exhausted[node] += 1
            case PassEnded():
                self._pass_ended()
            case _:
                pass

    def _started(self, name: str) -> None:
        self.attempts += 1
        known = self.known[name]
        known.waits_for, known.owns = (), False
        if self.running is not None and self.reading is not None:
            self.waiting.append((self.running, self.reading))
        if name not in self.demanded():
            self.wrong("I2", f"{name} is run and nobody demands it")
        self.wanted.update(dict.fromkeys(document.key.id for document in known.node.outputs))
        self.running, self.reading = name, Reading()
        self.heights[name] = known.node.height

    def _ended(self) -> None:
        """An attempt is over: whoever waited for it goes on."""
        self.running, self.reading = self.waiting.pop() if self.waiting else (None, None)

    def _removed(self, name: str) -> None:
        gone = self.known.pop(name)
        if self.running is None:
            self._came()
        elif name == self.running:
            self._ended()
        elif any(name == waiting for waiting, _ in self.waiting):
            self.waiting = [each for each in self.waiting if each[0] != name]
        elif name in self.order:
            self._check_turns(self.known[self.running].node, gone.node)

    def _pass_ended(self) -> None:
        twice = [name for name, runs in Counter(self.order).items() if runs > 1 + self.arrivals]
        if twice and not self.runtime.flavour.cycles:
            self.wrong("I9", f"{twice} ran more than once in a pass: {self.order}")
        self.done["interrupted"] += self.arrivals > 0 and len(self.order) > 1
        self.order.clear()
        self.arrivals = 0
        for known in self.known.values():
            if known.node.runs:
                known.is_new = False

    # ---- a completed run -----------------------------------------------------------------------------

    def _ran(self, node: Node, made: Layer | TierEntry | None) -> None:
        known, reading = self.known[node.id], self.reading
        assert known.node is node
        assert reading is not None
        self._ended()
        if known.kept is not None and not known.why and not known.rejections:
            if known.own:
                self.wrong("I5", f"{node.id} was woken by what it wrote itself")
            elif not known.maybe:
                self.wrong("I3", f"{node.id} ran again for nothing")
        self.done["runs again"] += known.kept is not None
        self.done["own"] += known.owns
        for child in node.children or ():
            if child.id in self.order:
                self._check_turns(node, child)
        outputs = frozenset(document.key.id for document in node.outputs)
        may = frozenset(known.why) | frozenset(known.maybe)
        if isinstance(made, Layer):
            self.wrote[made.local_seq] = Wrote(node.id, outputs, frozenset(known.why), may)
        elif node.returns:
            # A result that is never accepted hands its causes on to the next one. The same value counts as a result,
            # too: it is sent if the former one is superseded.
            before = self.results.setdefault(node.id, [])
            may |= before[-1].may if before else frozenset()
            before.append(Wrote(node.id, outputs, frozenset(known.why), may, made))
        if not self.runtime.flavour.cycles:
            self._check_state(node, reading)
        self.runs[node.id] += 1
        self.order.append(node.id)
        known.kept, known.stopped = reading, {}
        known.why, known.maybe = {}, {}
        known.rejections, known.own = 0, known.owns
        known.found = outputs if made is None else frozenset()
        known.made = known.found or (frozenset({node.outputs[0].key.id}) if node.returns else frozenset())

    def _check_turns(self, parent: Node, child: Node) -> None:
        """I9: on ties parents come first, so that a child that its parent removes does not run before.

        A child that computes is read by its parent, and runs before it for that reason.
        """
        if child.kind is NodeKind.COMPUTATION:
            return
        is_tie = self.heights[parent.id] == self.heights[child.id]
        if is_tie and not self.arrivals and parent.id not in self.order:
            self.wrong("I9", f"{child.id} had its turn before its parent {parent.id}: {self.order}")

    def _check_state(self, node: Node, reading: Reading) -> None:
        """I1, I9: one state, in which every result is what its rule makes of the cells that are shown."""
        expected = Expected(self.runtime.plan, self.runtime.shown_before, self.known)
        own = {document.key.id for document in node.outputs}
        read = {place.name for place in reading.places} - own
        for name, known in self.known.items():
            has_to_run = known.node is not node and (known.kept is None or bool(known.why))
            if has_to_run and any(document.key.id in read for document in known.node.outputs):
                self.wrong("I9", f"{node.id} ran before {name}, which writes what it reads and has to run")
        for look, told in reading.told.items():
            if look.name in own:
                continue
            stored = expected.stored(look)
            if stored is not NOT_HERE and said(look, stored) != told:
                self.wrong("I9", f"{node.id} was told {told!r} of {look}, not {said(look, stored)!r}")

    def at_rest(self) -> None:
        """I1: nothing is left to run, so that every last run saw what is shown now, and shows what comes of it."""
        demanded = self.demanded(by_runs=True)
        settled = {name for name, known in self.known.items() if known.node.loading is None}
        expected = Expected(self.runtime.plan, self.runtime.shown_before, settled)
        for name in demanded:
            known = self.known[name]
            if known.node.loading is not None:
                continue  # It waits for a document, or for whoever won against it.
            if known.kept is None:
                self.wrong("I1", f"{name} is demanded and never ran")
                continue
            own = {document.key.id for document in known.node.outputs}
            for look, told in known.kept.told.items():
                stored = expected.stored(look)
                if look.name not in own and stored is not NOT_HERE and said(look, stored) != told:
                    self.wrong("I1", f"{name} last saw {told!r} of {look}, which is {said(look, stored)!r}")
            for document in known.node.outputs:
                shows, should = document.value, expected.shown(document.key.id)
                if shows is NOT_HERE or should is NOT_HERE:
                    continue
                if not equal(shows, should):
                    self.wrong("I1", f"{name} shows {shows!r}, not {should!r}")

    def calm_at_rest(self) -> None:
        """I6: whoever reads no result is never kept waiting by those that do not come to an end."""
        for name in self.demanded():
            known = self.known[name]
            if known.kept is None or known.node.loading is not None:
                continue
            for look, told in known.kept.told.items():
                stored = walk(look, self.runtime.shown)[1]
                results = [place for place in known.kept.places if place.name.startswith(("node", "side"))]
                if not results and stored is not NOT_HERE and said(look, stored) != told:
                    self.wrong("I6", f"{name} last saw {told!r} of {look}, which is {said(look, stored)!r}")
