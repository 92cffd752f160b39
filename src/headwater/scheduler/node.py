"""The node: one record with everything the scheduler knows about one computation, effect or materializer.

Each field's comment says when the field changes and which property always holds; `check_node` checks these properties
in tests. No other module keeps state of a node, and this module decides nothing.

`Gate` is the record of the times that keep a node from running (debounce, throttle, backoff); `Gates` reads and moves
them. `hops_of` says how far a change came over other sessions (I6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.data.value import MaybeValue
from headwater.errors import InvariantViolation
from headwater.protocol.hop_counts import Ways
from headwater.replica.document import Document
from headwater.replica.feed import Changed, Notification
from headwater.replica.replica import Replica

if TYPE_CHECKING:
    from headwater.scheduler.run_reporter import RunReporter

UNKNOWN: Final = -1
"""Stands for the number of hops when a document arrived as a whole, or a commit was reverted."""

AFRESH: Final[Sequence[Spot | None]] = (None,)
"""The expected reads of a run that checks every read."""


def hops_of(change: Changed, ways: object | None) -> int:
    """Return the number of hops of a change that this runtime did not write, or UNKNOWN."""
    way = ways.get(change.document.key) if isinstance(ways, Ways) else None
    return UNKNOWN if way is None else way.hops


@dataclass(slots=True, eq=False)
class Gate:
    """The times of one node. All times are microseconds of the monotonic clock."""

    debounce_us: int = 0  # quiet time required after the last invalidation
    throttle_us: int = 0  # from the start of one run to the next
    is_auto: bool = False  # the debounce was chosen by the scheduler because the runs are slow
    no_auto: bool = False  # the author forbade an automatic debounce
    debounce_until: int = 0  # moves with every invalidation
    throttle_until: int = 0  # moves with every run
    backoff_until: int = 0  # moves when the node is exhausted or fails transiently
    input_until: int = 0  # a peer's result may have come before its inputs; 0 again at the next invalidation
    exhaustions: int = 0  # how often in a row the node used all its runs
    is_held: bool = False  # the node used all its runs and has not been attempted since
    is_forgiven: bool = False  # a pass left the node clean since; the next external change resets `exhaustions`
    is_far: bool = False  # a cause came over too many sessions, and the node has not paused for it
    goes_round: bool = False  # the last run was for such a cause: the node may be on a cycle through other runtimes
    waits_for: int = 0  # the moment the wake timer has for the node; 0: none
    spent_us: int = 0  # total time of timed runs, for the automatic debounce
    timed_runs: int = 0

    @property
    def eligible_at(self) -> int:
        return max(self.debounce_until, self.throttle_until, self.backoff_until, self.input_until)


NEVER_RAN: Final = 0
"""No run of the node was ever completed, so that its reads are not known."""
CLEAN: Final = 1
"""No value that the node read has changed since its last completed run began."""
INVALID: Final = 2
"""A value that the node read has changed, or its commit was rejected."""

STATUS: Final = ("never-ran", "clean", "invalid")


class Marks:
    """Counters of invalidations. A node that was verified to be fresh stays fresh while `count` is unchanged."""

    __slots__ = ("beside", "count", "impulse", "running", "taken")

    def __init__(self) -> None:
        self.count = 0
        self.beside = 0  # changes during an attempt that the attempt itself did not write
        self.impulse = 0  # number of the last external impulse; changes before the next run share one number
        self.taken = 0  # the newest impulse that a node ran for
        self.running: Node | None = None  # the node whose attempt is in progress: changes made now come from it

    def cause(self) -> int:
        """Return the impulse of a change made now: that of the attempt in progress, or else a new external one."""
        if self.running is not None:
            return self.running.impulse
        if self.impulse == self.taken:
            self.impulse += 1
        return self.impulse


class Guard(Protocol):
    """A condition beside the reads of some nodes, on which their results depend."""

    document: Document  # decides the condition

    @property
    def spot(self) -> Spot | None:
        """The place of the condition, which sent results name among their reads. None: there is no condition so far."""

    def awaited(self) -> Document | None:
        """Return the document that a run has to wait for. None: the condition can be decided."""

    def is_passed(self) -> bool:
        """True if the nodes may run, and their results may be sent."""

    def refusal(self) -> Exception:
        """Return the failure of a run that did not pass."""


class NodeKind(Enum):
    """The purpose of a node's runs."""

    COMPUTATION = "computation"  # its result is written to its output; runs while the output has a reader
    EFFECT = "effect"  # acts outside of the data; runs whenever an input has changed
    MATERIALIZER = "materializer"  # writes anywhere in its envelope; runs when no other node has to


class Remembered(NamedTuple):
    """The last run of a node in an earlier process, as it was observed."""

    cause: tuple[DocKey, Path] | None  # one of the changes that made it run; None: it ran because it was demanded
    changed_at: int  # seq of the last commit that wrote its outputs; 0: none is known
    verified_at: int  # its reads held at this seq
    took_us: int


@dataclass(slots=True, eq=False)
class Node:
    """One node. Compared by identity only (P5)."""

    # ---- fixed at registration ----
    id: str  # durable identity; messages and traces use it as the name
    kind: NodeKind
    fn: Callable[[], object]
    order: int  # rises with registration; breaks ties
    home: Replica  # the space that its transactions write
    outputs: tuple[Document, ...] = ()  # primary output first; then static side-write targets (P4)
    returns: bool = True  # True if the result of `fn` is written to the primary output
    encode: Callable[[object, MaybeValue], MaybeValue] | None = None  # result -> value; None: it is a value already
    envelope: tuple[tuple[Document, Path], ...] = ()  # materializers only; marks no reader by itself
    declared: tuple[Document, ...] = ()  # named in its code or by its author; ordering hints, never edges
    parent: Node | None = None  # the node whose run created this node
    rank: int = 0  # depth below the outermost parent; parents come before children on ties
    transient: tuple[type[Exception], ...] = ()  # error types after which the run is retried
    fingerprint: str = ""  # of the code behind `fn`; every commit of its runs carries it (I8)
    owns_outputs: bool = False  # no other node writes any of its two outputs: they are one result
    # The result on the view of a transaction, without a change of the node or its piece; None: `fn` does that.
    apart: Callable[[], object] | None = None
    # its parent, if that decides whether this node exists: it is demanded with this node, and runs before it
    keeper: Node | None = None
    guard: Guard | None = None  # a condition of its runs and results beside its reads
    reporter: RunReporter | None = None  # reporter of its runs; None: runs are not reported
    opaque: str = ""  # why its code cannot be fingerprinted, so that it is never resumed as clean; empty: it can be
    # ---- reads ----
    reads: Sequence[Spot | None] = (None,)  # registered spots, each once; ends with None; replaced, never mutated
    # the same with the spot of its guard, as its results are sent; made for the reads `sent_for`
    sent: Sequence[Spot | None] = (None,)
    sent_for: Sequence[Spot | None] | None = None
    expect: Sequence[Spot | None] = (None,)  # `reads`, or AFRESH to check each read anew
    retried: Sequence[Spot | None] | None = None  # reads that its stopped attempt found fresh, in order; ends with None
    retried_at: int = 0  # the count of marks when `retried` was recorded
    # ---- validity ----
    status: int = NEVER_RAN
    causes: dict[Spot, Notification] | None = None  # why it is invalid; empty when clean; bounded by its reads
    last_causes: dict[Spot, Notification] | None = None  # the causes of its last run
    as_of: int = 0  # seq at which its reads held when it was resumed without a run; 0: it ran here, or never
    elsewhere: dict[Replica, int] | None = None  # the same for its reads of other spaces, each with its own seq
    hops: int = 0  # the most hops of any of its causes over other sessions (I6); 0 when clean
    last_hops: int = 0  # hops of its last run: sent with its commit, and used in place of UNKNOWN hops
    error: Exception | None = None  # raised by its last completed run; readers of its output get it
    # ---- demand ----
    # `rooted`, provisional, or read by a live node, or its keeper: equals a full rebuild after every mutation
    live: bool = False
    live_refs: int = 0  # number of (other live node, spot in one of the outputs) pairs, and of live nodes that it keeps
    # a live reader that demands it, and that it does not support itself; None: it is rooted, provisional, not live, in
    # doubt, or the graph has no cycle
    support: Node | None = None
    rooted: bool = False  # a demand source: effects, materializers, pulls
    provisional: bool = False  # created in a live run; ends at the later of its first run and the end of that pass
    # ---- order ----
    height: int = 0  # above every node whose output it reads, except for edges that close a cycle
    low: int = 0  # the part of its turn that does not depend on its height
    queued: int = -1  # its turn while it waits to run; -1: it does not wait
    suspended: bool = False  # an attempt of it waits for other nodes to run
    verified: int = -1  # the count of marks at which no node above it was known to be invalid
    loading: Document | None = None  # awaited by its last attempt; the node does not run until it arrives
    # ---- bounds ----
    gate: Gate | None = None  # None: no time ever kept it from running
    pass_runs: int = 0  # runs since the last external impulse, or since it was held back
    due: int = 0  # the newest external impulse that it has to run for, directly or through other nodes
    impulse: int = 0  # the impulse that `pass_runs` counts from; its writes pass it on to readers
    failures: int = 0  # transient failures in a row
    began_us: int = (
        -1
    )  # when its last run began, by the monotonic clock, for effects and nodes with a gate; -1: unknown
    # ---- for people ----
    runs: int = 0  # completed runs, failed ones included
    remembered: Remembered | None = None  # its last run in an earlier process, if it was resumed without a run
    attempts: int = 0  # all attempts, suspended ones included
    wrote: int = 0  # the local_seq of the commit of its last completed run; 0: that run changed nothing
    # materializers: where that run wrote the value already there; counts as read
    found: tuple[tuple[Document, Path], ...] = ()
    cleanup: Callable[[], object] | None = None  # returned by an effect's last run; called before the next attempt
    children: dict[Node, None] | None = None  # nodes that its last run created
    kept: dict[str, Node] | None = None  # nodes that its stopped attempt registered; the next attempt adopts them
    stops: int = 0  # stopped attempts since its last run
    removed: bool = False

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.id} {STATUS[self.status]}{' live' if self.live else ''}>"

    @property
    def turn(self) -> int:
        """Position in a sweep: by height, then parents before children, then registration order."""
        return (self.height << 44) + self.low

    @property
    def shows_results(self) -> bool:
        """True if its runs make results, which are sent in waves; otherwise each run that writes is a commit."""
        return self.owns_outputs or (self.returns and len(self.outputs) == 1 and not self.envelope)

    @property
    def is_known(self) -> bool:
        """True if the node's stored result is its own: it ran here, or was resumed from an earlier process."""
        return self.runs > 0 or self.as_of > 0

    def held_until(self, home: Replica) -> int:
        """Return the seq of a space up to which a resumed node's reads there hold. -1: it has no reads there."""
        # fault foreign_reads.own_seq_compared: if True:
        if home is self.home:
            return self.as_of
        return -1 if self.elsewhere is None else self.elsewhere.get(home, -1)

    @property
    def is_runnable(self) -> bool:
        """True if the node is invalid, live and not waiting for a document. Gates may still delay it."""
        return self.status != CLEAN and self.live and not self.removed and self.loading is None


def check_node(node: Node) -> None:
    """Raise `InvariantViolation` unless the node's fields are consistent. For tests: costs the node's reads."""
    problems = []
    spots = node.reads[:-1]
    if node.reads[-1] is not None or node.expect[-1] is not None:
        problems.append("its reads do not end with None")
    if len(set(spots)) != len(spots):
        problems.append("it reads a spot twice")
    if any(spot is None or node not in spot.readers or spot.twig is None for spot in spots):
        problems.append("a spot that it reads does not know of it")
    if node.expect is not node.reads and tuple(node.expect) != (None,):
        problems.append("it expects reads that are not its own")
    if node.status == CLEAN and node.causes:
        problems.append("it is clean and has causes")
    if node.as_of and node.status == NEVER_RAN:
        problems.append("it came back and never ran")
    if node.status == CLEAN and node.hops:
        problems.append("it is clean and has hops")
    if node.causes and len(node.causes) > max(len(spots), 1) + 8:
        problems.append("it has more causes than reads")
    if node.live is not (node.rooted or node.provisional or node.live_refs > 0) and not node.removed:
        problems.append(f"live is {node.live} with {node.live_refs} live readers")
    if node.removed and (spots or node.live_refs or node.children):
        problems.append("it was removed and left something behind")
    if node.kind is NodeKind.EFFECT and node.outputs:
        problems.append("an effect has no outputs")
    if node.envelope and node.kind is not NodeKind.MATERIALIZER:
        problems.append("only a materializer has an envelope")
    if problems:
        raise InvariantViolation(f"{node!r}: {'; '.join(problems)}")
