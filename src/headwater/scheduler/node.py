"""The node: everything the scheduler knows about one computation or effect, in one record.

Each field says when it changes and what always holds of it; `check_node` is that, for tests. Nothing else keeps state
of a node. It decides nothing.

Time that keeps a node from running: one record for debounce, throttle and backoff. Read through `Gates`.

How far a change came over other sessions before it was shown here. Decides nothing; spec 001, I6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.data.value import MaybeValue
from headwater.errors import InvariantViolation
from headwater.protocol.hop_counts import Ways
from headwater.protocol.observations import About, Observed
from headwater.replica.document import Document
from headwater.replica.feed import Changed, Notification
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica

UNKNOWN: Final = -1
"""In the place of hops: a document arrived as a whole, or something was taken back."""


def hops_of(change: Changed, ways: object | None) -> int:
    """How far a change came that nobody here wrote."""
    way = ways.get(change.document.key) if isinstance(ways, Ways) else None
    return UNKNOWN if way is None else way.hops


@dataclass(slots=True, eq=False)
class Gate:
    """Everything about one node's time. All times are microseconds of the monotonic clock."""

    debounce_us: int = 0  # quiet time that its invalidations must leave
    throttle_us: int = 0  # from the start of one run to the next
    is_auto: bool = False  # the debounce was chosen because its runs are slow
    no_auto: bool = False  # its author said that no debounce may be chosen
    debounce_until: int = 0  # moves with every invalidation
    throttle_until: int = 0  # moves with every run
    backoff_until: int = 0  # moves when its runs do not come to an end
    input_until: int = 0  # a peer's result came, perhaps before what that was made of; ends when it is invalidated
    exhaustions: int = 0  # how often in a row it spent its runs
    is_held: bool = False  # it spent its runs and had none since
    is_forgiven: bool = False  # it came to an end since; `exhaustions` counts on unless something comes from outside
    is_far: bool = False  # what it is to run for came a long way over other sessions, and it has not paused for that
    goes_round: bool = False  # its last run was for such a thing: clean, it still may be on a cycle through others
    waits_for: int = 0  # what the wake timer knows it to wait for; 0: nothing
    spent_us: int = 0  # by its runs, for the automatic debounce
    timed_runs: int = 0

    @property
    def eligible_at(self) -> int:
        return max(self.debounce_until, self.throttle_until, self.backoff_until, self.input_until)


NEVER_RAN: Final = 0
"""No run of it was ever completed: it has no reads to go by."""
CLEAN: Final = 1
"""Nothing that it read has changed since its last completed run began."""
INVALID: Final = 2
"""Something that it read has changed, or its commit was rejected."""

STATUS: Final = ("never-ran", "clean", "invalid")


class Marks:
    """How often any node was made invalid. What was seen to be fresh stays so while this stands still."""

    __slots__ = ("beside", "count", "impulse", "running", "taken")

    def __init__(self) -> None:
        self.count = 0
        self.beside = 0  # how often something else changed during an attempt than what that wrote
        self.impulse = 0  # how often something came from outside; what comes before anybody runs for it is one thing
        self.taken = 0  # the newest of these that somebody ran for
        self.running: Node | None = None  # whose attempt is under way: what is done meanwhile comes from it

    def cause(self) -> int:
        """What is done now is done for this: what the attempt under way runs for, or something new from outside."""
        if self.running is not None:
            return self.running.impulse
        if self.impulse == self.taken:
            self.impulse += 1
        return self.impulse


class Account(Protocol):
    """What is told of the runs of one node (`persistence`)."""

    def ran(
        self,
        node: Node,
        layer: Layer | None,
        causes: Mapping[Spot, object] | None,
        failure: Exception | None,
        took_us: int,
    ) -> None:
        """A run came to its end."""

    def waits(self) -> bool:
        """Whether what it read elsewhere may still be taken back."""

    def again(self, node: Node) -> None:
        """What it read elsewhere is confirmed by now."""

    def rejected(self, local_seq: int) -> None:
        """Its commit will not land."""

    def forget(self) -> None:
        """Its code may be another from now on."""

    def gone(self, node: Node) -> None:
        """The node is no more."""

    def said(self) -> About:
        """Which node it is, and what its code does."""

    def because(self, observed: Observed) -> None:
        """What it read was written since this was observed: it runs for that."""


class NodeKind(Enum):
    """What a run of the node is for."""

    COMPUTATION = "computation"  # its result is written to its output; runs while somebody reads that
    EFFECT = "effect"  # something happens here; runs whenever what it reads has changed
    MATERIALIZER = "materializer"  # writes anywhere in its envelope; runs when nothing else has to


class Remembered(NamedTuple):
    """The last run of a node, in a process before this one, as it was observed."""

    cause: tuple[DocKey, Path] | None  # one of the changes that made it run; None: it ran because it was demanded
    changed_at: int  # the last commit that wrote its outputs; 0: none is known
    verified_at: int  # what it read held at this seq
    took_us: int


@dataclass(slots=True, eq=False)
class Node:
    """One node. Compared by identity only (P5)."""

    # ---- fixed at registration ----
    id: str  # durable identity; also what messages and traces call it
    kind: NodeKind
    fn: Callable[[], object]
    order: int  # rises with registration; breaks ties
    home: Replica  # the space that its transactions write
    outputs: tuple[Document, ...] = ()  # primary output first; then static side-write targets (P4)
    returns: bool = True  # whether what `fn` returns is written to the primary output
    encode: Callable[[object, MaybeValue], MaybeValue] | None = None  # result -> value; None: it is one already
    envelope: tuple[tuple[Document, Path], ...] = ()  # materializers only; never marks anybody
    declared: tuple[Document, ...] = ()  # named in its code or by its author; ordering hints, never edges
    parent: Node | None = None  # whose run created it
    rank: int = 0  # its depth below the outermost parent; parents come before children on ties
    transient: tuple[type[Exception], ...] = ()  # errors after which another try is worth it
    fingerprint: str = ""  # of the code behind `fn`; every commit of its runs says it (I8)
    account: Account | None = None  # what is told of its runs; None: nothing is
    opaque: str = ""  # why nobody can know what its code does, so that no start finds it clean; empty: somebody can
    # ---- what it read ----
    reads: Sequence[Spot | None] = (None,)  # registered; each once; ends with None; replaced, never changed in place
    expect: Sequence[Spot | None] = (None,)  # `reads`, or (None,) to look at each read anew
    retried: Sequence[Spot | None] | None = None  # what its stopped attempt had found fresh, in order; ends with None
    retried_at: int = 0  # the count of marks at which it had
    # ---- validity ----
    status: int = NEVER_RAN
    causes: dict[Spot, Notification] | None = None  # why it is invalid; empty when it is clean; bounded by its reads
    last_causes: dict[Spot, Notification] | None = None  # why its last run was
    as_of: int = 0  # it came back without a run, with reads that held at this seq; 0: it ran here, or never
    elsewhere: dict[Replica, int] | None = None  # the same for its reads of other spaces, each with its own seq
    hops: int = 0  # the longest way that any of its causes came over other sessions (I6); 0 when it is clean
    last_hops: int = 0  # of its last run: what its commit says, and how long a way is taken to be that nobody knows
    error: Exception | None = None  # what its last completed run raised; readers of its output get it
    # ---- demand ----
    live: bool = False  # `rooted`, provisional, or read by a live node: equals a full rebuild after every mutation
    live_refs: int = 0  # how many (live node, spot of one of the outputs) pairs there are, itself left out
    rooted: bool = False  # a demand source: effects, materializers, pulls
    provisional: bool = False  # created in a live run; until the later of its first run and that pass's end
    # ---- order ----
    height: int = 0  # above every node whose output it reads, but for edges that close a cycle
    low: int = 0  # the part of its turn that does not depend on its height
    queued: int = -1  # its turn while it waits to run; -1: it does not wait
    suspended: bool = False  # an attempt of it waits for others to run
    verified: int = -1  # the count of marks at which nothing above it was known to be invalid
    loading: Document | None = None  # what its last attempt waits for; as long as it does, it does not run
    # ---- bounds ----
    gate: Gate | None = None  # None: no time ever kept it from running
    pass_runs: int = 0  # runs since something came from outside, or since it was held back
    due: int = 0  # the newest thing from outside that it is to run for, directly or through others
    impulse: int = 0  # the one that `pass_runs` counts from; what its writes make others due for
    failures: int = 0  # transient failures in a row
    # ---- for people ----
    runs: int = 0  # completed runs, failed ones included
    remembered: Remembered | None = None  # its last run before this process, if it came back without one
    attempts: int = 0  # all, suspended ones included
    wrote: int = 0  # the local_seq of the commit of its last completed run; 0: it changed nothing
    found: tuple[tuple[Document, Path], ...] = ()  # materializers: where that run wrote what was there; counts as read
    cleanup: Callable[[], object] | None = None  # what an effect's last run returned; called before its next attempt
    children: dict[Node, None] | None = None  # nodes that its last run created
    kept: dict[str, Node] | None = None  # nodes that its stopped attempt registered; the next one takes them on
    stops: int = 0  # attempts that were stopped since its last run
    removed: bool = False

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.id} {STATUS[self.status]}{' live' if self.live else ''}>"

    @property
    def turn(self) -> int:
        """Where its turn is in a sweep: by height, then parents before children, then as they were registered."""
        return (self.height << 44) + self.low

    @property
    def is_known(self) -> bool:
        """Whether it has made what is stored of it: here, or in a process before this one."""
        return self.runs > 0 or self.as_of > 0

    def held_until(self, home: Replica) -> int:
        """Up to which seq of a space its reads there are known to hold, once it came back. -1: it had none there."""
        # fault foreign_reads.own_seq_compared: if True:
        if home is self.home:
            return self.as_of
        return -1 if self.elsewhere is None else self.elsewhere.get(home, -1)

    @property
    def is_runnable(self) -> bool:
        """Invalid and live; whether its time has come is the gates' to say."""
        return self.status != CLEAN and self.live and not self.removed and self.loading is None


def check_node(node: Node) -> None:
    """What holds of every node between two steps. For tests: it costs the node's reads."""
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
