"""The store port: the rows of a space and everything the engine asks of a database. Decides nothing.

One store holds one space. All methods are synchronous and are called from one thread. Between `begin` and `commit` all
writes belong to one transaction; `savepoint` opens the part of one commit inside it. A method that fails raises
`StorageError`; after a failed `commit` the fate of the transaction is unknown and the store must be reopened before
anything else is asked of it (C7). Reading a row of a `Part` that was edited outside raises `CorruptionError`, since
nothing else in the space would tell. Rows that only save work (snapshots, pages of heads, `meta`) are checked by
`check`.

`DeliveryStore` is the part of the port about reactions: subscriptions, targets, parked records and attempts. The next
targets of a claim are found by due time: none of its questions costs more because there are more targets.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from headwater.data.address import DocKey
from headwater.data.value import MAX_INT

HEADS_SEQ: Final = "heads_seq"
DOCUMENTS_MADE: Final = "documents_made"
"""Meta key: how many documents there were when heads were last written back. The log names those made since."""


class Part(Enum):
    """Rows that are stored so that an edited one is found; by the name of the rule that it would break."""

    DOCUMENTS = "documents"
    SESSIONS = "session"
    BRANCHES = "branch"
    MARKS = "marks"
    EVENTS = "events"
    RECORDS = "records"
    HEADS = "heads"
    SNAPSHOTS = "snapshot"
    META = "meta"
    NAMES = "names"
    OBSERVATIONS = "observations"
    READERS = "readers"
    SUBSCRIPTIONS = "subscriptions"
    TARGETS = "targets"
    PARKED = "parked"
    ATTEMPTS = "attempts"


class LogRow(NamedTuple):
    """One accepted frame: `commits` commits with seqs from `seq` on; `chain` continues the previous row's."""

    seq: int
    commits: int
    session: int
    local_seq: int  # of its first commit
    local_last: int  # of its last commit
    branch: int
    at_us: int
    chain: int
    body: bytes


class HeadRow(NamedTuple):
    """The latest write to a document on a branch, and how far it is from its last snapshot.

    Rows are written back now and then, not with every commit: together they describe the log up to the seq in `meta`
    under `HEADS_SEQ`. Later writes are found in the log when the space is opened.
    """

    branch: int
    doc: int
    seq: int
    base_seq: int  # seq of the newest snapshot, 0 if there is none
    base_bytes: int  # encoded size of that snapshot
    patches: int  # commits since that snapshot
    patch_bytes: int  # their encoded size
    ordinal: int  # number of snapshots ever made of it


class SnapshotRow(NamedTuple):
    """A whole document on a branch, as it was at `seq`."""

    branch: int
    doc: int
    seq: int
    ordinal: int
    present: bool  # False: the document was absent at `seq`
    body: bytes


class MarksRow(NamedTuple):
    """The write index of a document as it was at `seq`."""

    branch: int
    doc: int
    seq: int
    body: bytes


class BranchRow(NamedTuple):
    """A branch, with its parent and the seq of the parent at which it started. A deleted branch keeps its row."""

    branch: int
    name: str
    parent: int  # 0 for the main branch
    fork_seq: int
    created_us: int
    deleted: bool
    merged_seq: int  # its last merge brought the parent everything up to this seq


class SessionRow(NamedTuple):
    """A session of a replica: its user, the verdicts that it was given, and the commits that it acknowledged."""

    session: int
    key: str
    principal: str
    opened_us: int
    closed: bool
    judged: int  # commits up to this local_seq have a verdict, as far as the disk knows
    resume: str  # digest of the one token that may take the session up again; empty: any connection may
    acked: int  # the client will neither replay nor name a commit up to this local_seq


class EventRow(NamedTuple):
    """An event that was sent and is not handled yet."""

    id: str
    seq: int
    stream: str
    due_us: int
    payload: bytes
    branch: int = 1  # of the commit that sent it
    stored_us: int = 0  # when that was accepted
    session: int = 0  # its sender; 0: not known


class RecordRow(NamedTuple):
    """A record that was emitted. It stays after it was delivered."""

    seq: int
    ordinal: int
    topic: str
    key: str
    payload: bytes
    source: str = ""  # the emitter, as the record says
    branch: int = 1  # of its commit
    emitted_us: int = 0  # when that was accepted; 0: not known


class NodeNumbers(NamedTuple):
    """A node on a branch: its `NodeKey` with names as numbers. Rows come in this order."""

    branch: int
    piece: int
    generation: int
    member: int
    child: str
    scope: int  # the name of a scope and a principal; 0: the space's


class ObservationRow(NamedTuple):
    """The last run of a node. `engine.observations.codec` describes its bytes."""

    branch: int
    piece: int
    generation: int
    member: int
    child: str
    scope: int
    state: bytes
    body: bytes

    @property
    def key(self) -> NodeNumbers:
        return NodeNumbers._make(self[:6])


class ReaderRow(NamedTuple):
    """How many nodes of a piece read a document: by its number, or a negative one that stands for its name."""

    doc: int
    branch: int
    piece: int
    nodes: int


@dataclass(slots=True)
class Visited:
    """Counts of rows that the store touched so far. Tests gate on differences of these counts, never on seconds."""

    statements: int = 0
    rows: int = 0
    bytes: int = 0


class DroppedEvent(NamedTuple):
    """What is left of a deleted event: the seq of its commit, its seal, its time, and the session that sent it."""

    seq: int
    seal: int
    due_us: int
    session: int


class Store(Protocol):
    """One space's database (`sqlite.SqliteStore`; simulations wrap it)."""

    @property
    def visited(self) -> Visited: ...

    @property
    def changes_made(self) -> int:
        """Rises with every row that is written: as long as it is the same, so is all that was read."""

    @property
    def delivery(self) -> DeliveryStore:
        """The part of the store about reactions."""

    # transactions; one that is not `synced` survives a crash of the process, and one of the machine once a later one is
    # synced
    def begin(self, *, synced: bool = True) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def savepoint(self) -> None: ...
    def release(self) -> None: ...
    def rollback_to_savepoint(self) -> None: ...
    def reopen(self) -> None: ...
    def close(self) -> None: ...

    # settings of the space
    def meta(self, key: str) -> str | None: ...
    def put_meta(self, key: str, value: str) -> None: ...

    # the log
    def append(self, row: LogRow) -> None: ...
    def last_row(self) -> LogRow | None: ...
    def row_at(self, seq: int) -> LogRow | None: ...
    def rows_after(self, seq: int, limit: int) -> list[LogRow]: ...
    def row_of_session(self, session: int, local_seq: int) -> LogRow | None: ...
    def drop_rows(self, before_seq: int) -> int: ...

    # documents, heads, snapshots, marks
    def count_documents(self, scope: str, most: int) -> int: ...
    def doc_of(self, key: DocKey) -> int | None: ...
    def key_of(self, doc: int) -> DocKey | None: ...
    def docs_of(self, keys: Iterable[DocKey]) -> dict[DocKey, int]: ...
    def put_docs(self, rows: Iterable[tuple[int, DocKey]]) -> None: ...
    def last_doc(self) -> int: ...
    def docs_of_scope(self, scope: str, after: str, limit: int) -> list[tuple[int, str]]: ...
    def head(self, branch: int, doc: int) -> HeadRow | None: ...
    def put_heads(self, rows: Iterable[HeadRow]) -> None: ...
    def heads_of_branch(self, branch: int, after_doc: int, limit: int) -> list[HeadRow]: ...
    def put_snapshot(self, row: SnapshotRow) -> None: ...
    def snapshot_at_or_before(self, branch: int, doc: int, seq: int) -> SnapshotRow | None: ...
    def snapshot_seq_after(self, branch: int, doc: int, seq: int) -> int | None: ...
    def docs_with_snapshots(self, branch: int, after_doc: int, limit: int) -> list[int]: ...
    def snapshot_seqs(self, branch: int, doc: int) -> list[tuple[int, int]]: ...
    def older_snapshot(self, branch: int, doc: int, than: int) -> tuple[int, int] | None: ...
    def drop_snapshot(self, branch: int, doc: int, seq: int) -> None: ...
    def marks(self, branch: int, doc: int) -> MarksRow | None: ...
    def put_marks(self, row: MarksRow) -> None: ...

    # branches
    def branches(self) -> list[BranchRow]: ...
    def put_branch(self, row: BranchRow) -> None: ...
    def drop_branch_data(self, branch: int) -> None: ...

    # sessions
    def session_of(self, key: str) -> SessionRow | None: ...
    def session(self, session: int) -> SessionRow | None: ...
    def put_session(self, row: SessionRow) -> None: ...
    def last_session(self) -> int: ...

    # rows edited outside
    def check(self, part: Part) -> None: ...
    def sum_before(self, seq: int) -> int: ...

    # events, topic records
    def event(self, id: str) -> EventRow | None: ...
    def put_events(self, rows: Iterable[EventRow]) -> None: ...
    def events_after(self, after: tuple[int, str], limit: int) -> list[EventRow]: ...
    def events_due(self, branch: int, due_by_us: int, after: tuple[int, str], limit: int) -> list[EventRow]: ...
    def next_due(self, branch: int, after_us: int) -> int | None: ...
    def last_event(self, branch: int) -> int: ...
    def drop_event(self, branch: int, id: str) -> DroppedEvent | None: ...
    def count_events(self, principal: str) -> tuple[int, int]: ...
    def drop_events(self, branch: int, before_seq: int) -> int: ...
    def put_records(self, rows: Iterable[RecordRow]) -> None: ...
    def records_after(self, topic: str, after: tuple[int, int], limit: int) -> list[RecordRow]: ...

    # observations; a row that was edited is left out of lists, as if it were not there
    def name_of(self, number: int) -> str | None: ...
    def number_of(self, name: str) -> int | None: ...
    def add_name(self, name: str) -> int: ...
    def drop_names(self, after: int, limit: int, used: Container[int]) -> tuple[int | None, int]: ...
    def observation(self, key: NodeNumbers) -> ObservationRow | None: ...
    def observations_after(self, after: NodeNumbers, limit: int, *, in_piece: bool = False) -> list[ObservationRow]: ...
    def put_observations(self, rows: Iterable[ObservationRow], added: int) -> None: ...
    def drop_observations(self, keys: Iterable[NodeNumbers]) -> None: ...
    def newest_generation(self, branch: int, piece: int) -> int | None: ...
    def observed_pieces(self, branch: int, after: int, limit: int) -> list[int]: ...
    def observations_of(self, branch: int, member: int, pieces: Iterable[int]) -> list[ObservationRow]: ...
    def observations_holding(
        self, branch: int, pieces: Iterable[int], limit: int, holds: Sequence[bytes]
    ) -> list[ObservationRow]: ...
    def counted_readers(self, doc: int, branch: int, pieces: Iterable[int]) -> dict[int, int]: ...
    def numbers_of(self, names: Iterable[str]) -> dict[str, int]: ...
    def names_of(self, numbers: Iterable[int]) -> dict[int, str]: ...
    def written_of(self, branch: int, scope: str, ids: Iterable[str]) -> dict[str, int]: ...
    def readers_met(self, branch: int, after: int) -> dict[int, int]: ...
    def reader(self, doc: int, branch: int, piece: int) -> int: ...
    def counts_of_readers(self, branch: int, piece: int, docs: Iterable[int]) -> dict[int, int]: ...
    def put_readers(self, rows: Iterable[ReaderRow], added: int) -> None: ...
    def readers_of(self, doc: int, branch: int, after: int, limit: int) -> list[int]: ...
    def has_absent_readers(self) -> bool: ...
    def count_readers(self, branch: int) -> int: ...
    def rename_readers(self, renamed: Mapping[int, int]) -> None: ...
    def drop_observed_branch(self, branch: int) -> None: ...
    def keys_of(self, docs: Iterable[int]) -> dict[int, DocKey]: ...
    def head_seqs(self, branch: int, docs: Iterable[int] | None, after: int = 0) -> dict[int, int]: ...


NEVER: Final = MAX_INT
"""The due time of a target that is not to be claimed. Indexes leave it out."""

CLAIMS_EPOCH: Final = "claims_epoch"
"""Meta key: how often the space was opened by an engine that gave targets away. Tokens begin with it."""

Place = tuple[int, int]
"""Where a record is: the seq of its commit, and its number there."""


class SubscriptionState(IntEnum):
    """The state of a subscription."""

    LIVE = 0
    PAUSED = 1  # targets are made, and not given away
    RETIRED = 2  # no targets are made any more


class TargetPhase(IntEnum):
    """How a target is."""

    IDLE = 0  # everything was delivered
    DUE = 1  # there is something, now or later
    LEASED = 2  # a worker has it until it is due again
    BLOCKED = 3  # an operator is needed; an index names the number


class ParkedState(IntEnum):
    """Why a record was passed over, or that it is not any more."""

    PARKED = 0
    SKIPPED = 1
    REPLAY = 2


class SubscriptionRow(NamedTuple):
    """A reaction that was declared to a topic, and how far the records of the topic have their targets."""

    reaction: int
    name: str
    topic: str
    state: int  # a SubscriptionState
    lane: str
    priority: int
    start_seq: int  # where a new target begins: after this record
    start_ordinal: int
    cursor_seq: int  # records up to this one have their targets,
    cursor_ordinal: int
    until_seq: int  # and those after this commit were given them when they were emitted
    made_us: int

    @property
    def start(self) -> Place:
        return self.start_seq, self.start_ordinal

    @property
    def cursor(self) -> Place:
        return self.cursor_seq, self.cursor_ordinal

    @property
    def is_filling(self) -> bool:
        return self.cursor < (self.until_seq, MAX_INT) and self.state != SubscriptionState.RETIRED


class TargetRow(NamedTuple):
    """One reaction and one key: its position in the records, its lease and its attempts."""

    reaction: int
    key: str
    seq: int  # its position: the last record that was delivered or passed over
    ordinal: int
    state: int  # a TargetPhase
    due_us: int  # when it may be claimed
    attempt: int  # the number of the next attempt at its next record
    failures: int  # of those before it, how many failed,
    lost: int  # and how many ended with their lease
    replays: int  # records before its position that are to be tried again
    token: int  # of its last lease
    holder: str  # the worker that holds it
    since_us: int  # since when it has had something to deliver
    began_us: int  # when it was claimed last, or let go to be due again
    fingerprint: str  # of its last failure

    @property
    def position(self) -> Place:
        return self.seq, self.ordinal


class ParkedRow(NamedTuple):
    """A record that the position of its target passed without a delivery."""

    reaction: int
    key: str
    seq: int
    ordinal: int
    state: int  # a ParkedState
    at_us: int
    fingerprint: str


class AttemptRow(NamedTuple):
    """An attempt to deliver a record that failed or lost its lease. The last ones of a record are kept."""

    reaction: int
    key: str
    seq: int
    ordinal: int
    slot: int  # a later attempt takes the place of the one so many before
    attempt: int
    how: int  # 0: it failed, 1: its lease was lost
    began_us: int
    ended_us: int
    error: str
    message: str
    fingerprint: str


class DeliveryStore(Protocol):
    """The tables of reactions. Writes belong to the open transaction."""

    def subscriptions(self) -> list[SubscriptionRow]: ...
    def put_subscription(self, row: SubscriptionRow) -> None: ...

    def target(self, reaction: int, key: str) -> TargetRow | None: ...
    def add_targets(self, rows: list[TargetRow]) -> None: ...
    def put_targets(self, rows: Iterable[TargetRow]) -> None:
        """In place of those with their names, which are there."""

    def claimable(self, reaction: int, now_us: int, limit: int) -> list[TargetRow]:
        """Targets that are due, the earliest first."""

    def leased_by_others(self, reaction: int, owner: str, after_us: int, limit: int) -> list[TargetRow]:
        """Targets that a worker of another owner process (`OWNER/WORKER`) holds, with leases that end after a time."""

    def next_due(self, reaction: int) -> int | None:
        """When the first is due, or was."""

    def last_known(self, reaction: int, among: int) -> int:
        """When something was last stored of the first and the last so many that are due, as far as they say; or 0."""

    def is_behind(self, reaction: int, topic: str, branch: int, through: int) -> bool:
        """Whether one of those that are due has a record up to that commit to deliver, or again."""

    def targets_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]: ...
    def due_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]: ...
    def blocked_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]: ...
    def count_due(self, reaction: int, most: int) -> int: ...
    def count_blocked(self, reaction: int, most: int) -> int: ...
    def count_parked(self, reaction: int, most: int) -> int: ...
    def oldest(self, reaction: int, among: int) -> int | None:
        """Since when one of the first so many that are due has had something to deliver."""

    def records_of(self, topic: str, branch: int, key: str, after: Place, limit: int) -> list[RecordRow]:
        """The records of a key, in their order."""

    def has_record(self, topic: str, branch: int, key: str, after: Place) -> bool: ...
    def next_emitted(self, topic: str, branch: int, key: str, after: Place) -> int | None:
        """When the next record of a key was emitted. None: there is none."""

    def record(self, topic: str, place: Place) -> RecordRow | None: ...
    def parked(self, reaction: int, key: str, place: Place) -> ParkedRow | None: ...
    def put_parked(self, row: ParkedRow) -> None: ...
    def drop_parked(self, row: ParkedRow) -> None: ...
    def drop_failures(self, reaction: int, key: str) -> None:
        """Drop all parked records and attempts of a target."""

    def parked_after(self, reaction: int, after: tuple[str, int, int], limit: int) -> list[ParkedRow]: ...
    def parked_of(self, reaction: int, key: str, state: int, limit: int) -> list[ParkedRow]: ...
    def put_attempt(self, row: AttemptRow) -> None: ...
    def drop_attempts(self, reaction: int, key: str, place: Place) -> None:
        """Those of records up to this one that were not passed over."""

    def attempts_after(self, reaction: int, after: tuple[str, int, int, int], limit: int) -> list[AttemptRow]: ...
