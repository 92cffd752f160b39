"""The messages between a replica and an engine, and their two encodings.

A connection speaks either MessagePack or JSON from its first byte to its last. Every message is a tagged array; a field
can be added at its end with a default. `decode_*` check everything: a decoded message is well formed and every value in
it is frozen. docs/PROTOCOL.md says in which order messages may come.

Stored events were sent by a commit and handled by none. An event belongs to the branch of the commit that sent it. A
session that may write the space may read its stored events and be notified of new ones; a runtime takes up the events
of another runtime this way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import msgspec

from headwater.data.address import DocKey
from headwater.data.codec import from_json, record_decoder, record_encoder, record_to_json
from headwater.data.limits import DEFAULT_VALUE_LIMITS, STORED_VALUE_LIMITS, ValueLimits
from headwater.data.patch import Patch, validate_patch
from headwater.data.value import ABSENT, MAX_INT, Absent, MaybeValue, freeze
from headwater.errors import InvalidValueError, ProtocolError
from headwater.protocol.commit import MAIN, Commit, checked_frame
from headwater.protocol.message import Message, Number
from headwater.protocol.observations import (
    AffectedNodes,
    Backlog,
    CleanPieces,
    DocumentsWritten,
    Observation,
    Observations,
    OutdatedReads,
    QueryAffectedNodes,
    QueryBacklog,
    QueryCleanPieces,
    QueryCurrent,
    QueryNodes,
    QueryObservations,
    QueryReaders,
    QueryWrittenDocuments,
    Readers,
    WatchWrittenDocuments,
    WrittenDocuments,
)
from headwater.protocol.reactions import (
    Claimed,
    Delivering,
    Delivers,
    TargetsDue,
    WatchTargets,
    frozen_claimed,
    frozen_due,
)
from headwater.protocol.verdict import Verdict


class QueryEvents(Message, frozen=True, tag="query_events"):
    """Read stored events of the session's branch once, in the order of the log: those due at `due_by_us` or before.

    `after` is the `next` of the page before. For sessions that may write the space.
    """

    id: Number
    due_by_us: Number = MAX_INT
    after: tuple[Number, str] = (0, "")
    limit: Number = 100


class WatchEvents(Message, frozen=True, tag="watch_events"):
    """Tell which commit stored the newest event of the session's branch, now and when others store more.

    For sessions that may write the space. The last message counts; `on` False ends the watch.
    """

    id: Number
    on: bool = True


class StoredEvent(Message, frozen=True):
    """An event that was stored with the commit at `seq`, made at `stored_us`, and that no commit has handled yet."""

    id: str
    seq: Number
    stream: str
    payload: Any
    due_us: Number
    stored_us: Number
    principal: str = ""  # of the session that sent it; empty: one of this process, or unknown
    session: str = ""  # the key of that session; empty: unknown


class StoredEvents(Message, frozen=True, tag="events"):
    """The events that a query asked for, as of `seq`; `next` continues a page.

    `next_due_us` is when the first of those becomes due that were not asked for. None: there is none.
    """

    id: Number
    seq: Number
    events: tuple[StoredEvent, ...]
    next: tuple[Number, str] | None = None
    next_due_us: Number | None = None


class EventsStored(Message, frozen=True, tag="events_stored"):
    """The newest stored event of the session's branch that others sent is of the commit at `newest`; 0: there is none.

    The answer to `WatchEvents`, where it counts one's own as well, and from then on whenever others stored more.
    """

    id: Number
    newest: Number


def frozen_events(message: StoredEvents, limits: ValueLimits) -> StoredEvents:
    """The same with every payload checked and frozen. InvalidValueError: no document can hold one of them."""
    events = tuple(
        StoredEvent(e.id, e.seq, e.stream, freeze(e.payload, limits), e.due_us, e.stored_us, e.principal, e.session)
        for e in message.events
    )
    return StoredEvents(message.id, message.seq, events, message.next, message.next_due_us)


VERSION: Final = 1
Encoding = Literal["msgpack", "json"]


# ---- from the replica ------------------------------------------------------------------------------


class Hello(Message, frozen=True, tag="hello"):
    """The first message: which versions and capabilities the replica speaks, and who it is."""

    versions: tuple[int, ...]
    capabilities: tuple[str, ...] = ()
    token: str = ""


class Open(Message, frozen=True, tag="open"):
    """Open a session in a space, or resume one.

    `resume` is the token that the last `Open` chose as `following`, and is good once. `seen` is the seq of the
    replica's confirmed state, and `chain` the engine's name of its log there; `sent` are commits on the wire without a
    verdict, and the newest one that landed and is not covered by `seen`; verdicts up to `acked` have arrived, and no
    commit up to it will be sent or named again. Watches not in `watching`, if it is given, are over.
    """

    space: str
    session: str
    resume: str = ""
    following: str = ""
    branch: str = MAIN
    seen: Number = 0
    sent: tuple[Number, ...] = ()
    acked: Number = 0
    watching: tuple[Number, ...] | None = None
    chain: Number | None = None


class Transact(Message, frozen=True, tag="transact"):
    """One frame of commits, and observations of nodes: of the runs that made them, and of some earlier runs.

    A frame without commits is answered, too, with no verdict.
    """

    commits: tuple[Commit, ...]
    observations: tuple[Observation, ...] = ()


class Selector(Message, frozen=True):
    """A document to watch, and whether to watch the targets of its links as well."""

    doc: DocKey
    follow: bool = False


class Watch(Message, frozen=True, tag="watch"):
    """Send these documents now and every change of them from then on."""

    id: Number
    selectors: tuple[Selector, ...]


class Unwatch(Message, frozen=True, tag="unwatch"):
    """Forget the watch with this id."""

    id: Number


class Query(Message, frozen=True, tag="query"):
    """Read documents once: one by name, or a page of a scope; now or at a seq."""

    id: Number
    scope: str
    doc: str = ""
    at: Number | None = None
    after: str = ""
    limit: Number = 100


class Ack(Message, frozen=True, tag="ack"):
    """Confirmed state is at `seq`: more may be sent. Verdicts up to `local_seq` will not be asked for again."""

    seq: Number
    local_seq: Number = 0


class Bye(Message, frozen=True, tag="bye"):
    """The session is over for good: everything it sent has its verdict."""

    acked: Number = 0


class Renew(Message, frozen=True, tag="renew"):
    """Another access token of the same user, before the time of the one in use is over."""

    token: str


class ClaimCode(Message, frozen=True, tag="claim_code"):
    """Ask to run this code under this name. Both are texts that programs choose; equal code has an equal text.

    The first code under a name is granted, and every later claim of the same code. Another code is granted when no
    other session of the branch that is connected has a claim. A claim ends with its connection.
    """

    id: Number
    name: str
    code: str


Nodes = (
    QueryObservations
    | QueryNodes
    | QueryCleanPieces
    | QueryAffectedNodes
    | QueryBacklog
    | QueryReaders
    | QueryWrittenDocuments
)
ObservationQuestion = Nodes | QueryCurrent
Watching = WatchEvents | WatchWrittenDocuments | WatchTargets
Asks = Query | QueryEvents | Watching | ObservationQuestion | Delivers | ClaimCode
FromReplica = Hello | Open | Transact | Watch | Unwatch | Asks | Ack | Bye | Renew

# ---- from the engine -------------------------------------------------------------------------------


class State(Message, frozen=True):
    """A whole document: the commit that wrote it last, and its value (`present` tells null from nothing)."""

    doc: DocKey
    seq: Number
    present: bool
    value: Any = None

    def get(self) -> MaybeValue:
        return self.value if self.present else ABSENT


class Way(Message, frozen=True):
    """How a derived change came here: over so many sessions, this step included, each time through a derived commit.

    Who wrote it last is said where it begins to look like a cycle (I6, `protocol.ways`).
    """

    hops: Number
    node: str = ""
    session: str = ""


class Patched(Message, frozen=True, tag="patched"):
    """A commit of another session changed a document. Without a `way` it is authored."""

    doc: DocKey
    seq: Number
    patches: tuple[Patch, ...]
    way: Way | None = None


class Own(Message, frozen=True, tag="own"):
    """A commit of this very session changed a document: the replica has its patches."""

    doc: DocKey
    seq: Number
    local_seq: Number


class Whole(Message, frozen=True, tag="whole"):
    """A document changed more often than is worth telling one by one. Without a `way` its hops are unknown."""

    doc: DocKey
    seq: Number
    present: bool
    value: Any = None
    way: Way | None = None

    def get(self) -> MaybeValue:
        return self.value if self.present else ABSENT


DocChange = Patched | Own | Whole


class Welcome(Message, frozen=True, tag="welcome"):
    """The version and capabilities that both speak."""

    version: int
    capabilities: tuple[str, ...] = ()


class Opened(Message, frozen=True, tag="opened"):
    """The session is open. `landed` says which of the commits in `Open.sent` were accepted, and where.

    `resumed` False: the engine knows no watch of this session, so the replica sends its watches again. Otherwise
    `following` are the documents that it watches because links lead to them. `superseded` are the results of landed
    waves that were not accepted: the number of each wave, with their places.
    """

    session: str
    seq: Number
    resumed: bool
    landed: tuple[tuple[Number, Number], ...] = ()
    judged: Number = 0
    following: tuple[DocKey, ...] = ()
    superseded: tuple[tuple[Number, tuple[Number, ...]], ...] = ()


class Verdicts(Message, frozen=True, tag="verdicts"):
    """The answers to one frame, in the order of its commits. Leaves before any `Sync` that covers them."""

    verdicts: tuple[Verdict, ...]


class Watched(Message, frozen=True, tag="watched"):
    """The documents of a watch, all of them as they were at `seq`."""

    id: Number
    seq: Number
    documents: tuple[State, ...]
    chain: Number | None = None  # names the log up to `seq`: a replica sends it when it reconnects


class Sync(Message, frozen=True, tag="sync"):
    """Everything that happened to watched documents up to `seq`, in causal order."""

    seq: Number
    changes: tuple[DocChange, ...]
    arrived: tuple[State, ...] = ()  # documents that a followed link leads to since
    arrived_by: tuple[Number, ...] = ()  # the watch that brings each of them
    left: tuple[DocKey, ...] = ()  # documents that no link leads to any more: no longer watched
    turn: Number | None = None  # after a conflict: how many others try again before this session; 0: it should, now
    chain: Number | None = None  # as in `Watched`


class Answer(Message, frozen=True, tag="answer"):
    """The answer to a query, as of `seq`; `next` continues a page."""

    id: Number
    seq: Number
    documents: tuple[State, ...]
    next: str | None = None


class Problem(Message, frozen=True, tag="problem"):
    """The replica sent a message that is wrong. `fatal`: the connection is closed after this."""

    code: str
    message: str
    fatal: bool = True
    id: Number = 0


class Renewed(Message, frozen=True, tag="renewed"):
    """The token that `Renew` brought counts from now on."""


class CodeClaimed(Message, frozen=True, tag="code_claimed"):
    """The answer to `ClaimCode`. Not granted: connected sessions run another code under that name."""

    id: Number
    is_granted: bool


ObservationAnswer = Observations | CleanPieces | AffectedNodes | Backlog | Readers | WrittenDocuments | OutdatedReads
News = EventsStored | DocumentsWritten | TargetsDue
Told = Answer | StoredEvents | News | ObservationAnswer | Delivering | CodeClaimed
FromEngine = Welcome | Opened | Verdicts | Watched | Sync | Told | Problem | Renewed

# ---- bytes -----------------------------------------------------------------------------------------

T = TypeVar("T")
_encoder = record_encoder()
_from_replica: msgspec.msgpack.Decoder[FromReplica] = record_decoder(FromReplica)  # type: ignore[arg-type]
_from_engine: msgspec.msgpack.Decoder[FromEngine] = record_decoder(FromEngine)  # type: ignore[arg-type]


def encode(message: FromReplica | FromEngine, encoding: Encoding = "msgpack") -> bytes:
    return _encoder.encode(message) if encoding == "msgpack" else record_to_json(message)


def decode_from_replica(
    data: bytes, encoding: Encoding = "msgpack", limits: ValueLimits = DEFAULT_VALUE_LIMITS
) -> FromReplica:
    """Decode a message from a peer that is not trusted. Raises ProtocolError that names the mistake."""
    message: FromReplica = _decoded(data, encoding, _from_replica.decode, FromReplica)
    if isinstance(message, Transact):
        return Transact(checked_frame(message.commits, limits), message.observations)
    return message


def decode_from_engine(
    data: bytes, encoding: Encoding = "msgpack", limits: ValueLimits = DEFAULT_VALUE_LIMITS
) -> FromEngine:
    """A message from the engine: checked all the same, since a wrong value here would be believed."""
    message: FromEngine = _decoded(data, encoding, _from_engine.decode, FromEngine)
    try:
        match message:
            case Watched(id, seq, documents, chain):
                return Watched(id, seq, _frozen_states(documents, limits), chain)
            case Answer(id, seq, documents, after):
                return Answer(id, seq, _frozen_states(documents, limits), after)
            case StoredEvents():
                return frozen_events(message, limits)
            case Claimed():
                return frozen_claimed(message, limits)
            case TargetsDue():
                return frozen_due(message, limits) if message.grants else message
            case Sync(seq, changes, arrived, by, left, turn, chain):
                frozen = tuple(_frozen_change(change, limits) for change in changes)
                return Sync(seq, frozen, _frozen_states(arrived, limits), by, left, turn, chain)
            case _:
                return message
    except InvalidValueError as error:
        raise ProtocolError(f"the engine sent a value that no document can hold: {error}") from error


def _decoded(data: bytes, encoding: Encoding, decode: Callable[[bytes], Any], kind: Any) -> Any:
    try:
        if encoding == "msgpack":
            return decode(data)
        # The message around a value is not the value: its own depth and size are checked where it is taken out.
        return msgspec.convert(from_json(data, STORED_VALUE_LIMITS), kind, builtin_types=(bytes,))
    except (msgspec.MsgspecError, InvalidValueError, ValueError, RecursionError) as error:
        raise ProtocolError(f"this is not a message of the protocol: {error}") from error


def _frozen_states(states: tuple[State, ...], limits: ValueLimits) -> tuple[State, ...]:
    return tuple(State(s.doc, s.seq, s.present, freeze(s.value, limits)) for s in states)


def _frozen_change(change: DocChange, limits: ValueLimits) -> DocChange:
    match change:
        case Patched(doc, seq, patches, way):
            return Patched(doc, seq, tuple(validate_patch(patch, limits) for patch in patches), way)
        case Whole(doc, seq, present, value, way):
            return Whole(doc, seq, present, freeze(value, limits), way)
        case Own():
            return change


def state_of(doc: DocKey, seq: int, value: MaybeValue) -> State:
    present = not isinstance(value, Absent)
    return State(doc, seq, present, value if present else None)


def whole_of(doc: DocKey, seq: int, value: MaybeValue, way: Way | None = None) -> Whole:
    present = not isinstance(value, Absent)
    return Whole(doc, seq, present, value if present else None, way)
