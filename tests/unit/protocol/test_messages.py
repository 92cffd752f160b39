"""The messages in both encodings: what is written is read back, and what is no message is refused with a reason."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.address import Depth, DocKey, Link
from headwater.data.limits import DEFAULT_VALUE_LIMITS
from headwater.data.patch import Patch, add, append, increment, remove, replace, splice
from headwater.data.value import ABSENT, MAX_INT, equal, freeze
from headwater.errors import ProtocolError
from headwater.protocol.commit import (
    Commit,
    EntityAbsent,
    LeaseHeld,
    NodeResult,
    Operation,
    OriginCommitted,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
)
from headwater.protocol.messages import (
    Ack,
    Answer,
    Bye,
    ClaimCode,
    CodeClaimed,
    Encoding,
    EventsStored,
    FromEngine,
    FromReplica,
    Hello,
    Open,
    Opened,
    Own,
    Patched,
    Problem,
    Query,
    QueryEvents,
    Renew,
    Renewed,
    Selector,
    State,
    StoredEvent,
    StoredEvents,
    Sync,
    Transact,
    Unwatch,
    Verdicts,
    Watch,
    Watched,
    WatchEvents,
    Welcome,
    Whole,
    decode_from_engine,
    decode_from_replica,
    encode,
    state_of,
    whole_of,
)
from headwater.protocol.observations import (
    About,
    AffectedNodes,
    Backlog,
    CleanPiece,
    CleanPieces,
    DocumentsWritten,
    Footprint,
    ForeignRead,
    NodeKey,
    Observation,
    Observations,
    Observed,
    OutdatedReads,
    PieceBacklog,
    QueryAffectedNodes,
    QueryBacklog,
    QueryCleanPieces,
    QueryCurrent,
    QueryNodes,
    QueryObservations,
    QueryReaders,
    QueryWrittenDocuments,
    Readers,
    Touched,
    WatchWrittenDocuments,
    WrittenDocument,
    WrittenDocuments,
    encode_part,
)
from headwater.protocol.verdict import Accepted, Collision, Conflict, PreconditionFailed, Rejected, RuleRefused
from tests.counts import scaled

ENCODINGS: tuple[Encoding, ...] = ("msgpack", "json")
D = DocKey("space", "d")
ODD = freeze(
    {
        "$key": 1,
        "$$": [{"$link": 2}],
        "bytes": b"\x00\xff",
        "link": Link(space="other", id="x", path=("a", 0)),
        "numbers": [0, -1, MAX_INT, 0.5, -0.0, 1e300],
        "text": "ü\u2028😀",
        "nothing": None,
        "truth": [True, False],
        "": {},
    }
)

FULL_COMMIT = Commit(
    7,
    (Operation(D, (replace((), ODD), splice(("l",), 0, 1, [b"x"]), append(("l",), [1], keep=3), remove(("k",)))),),
    (Read(D, ("a", 0, "$b"), Depth.SHAPE, 3, ((1, 2), (5, 5))),),
    (OriginCommitted(2), EntityAbsent(D), LeaseHeld("lease", 9)),
    "dev",
    (SentEvent("e1", "stream", ODD, 5),),
    (TopicRecord("topic", "key", ODD),),
    Provenance("node", "print", ((D, ("x", 1)),), True),
    (NodeResult(Provenance("n", "p", (), True, 2), 1, (0,), (0,)),),
    ("e0", "ü"),
)

KEY = NodeKey("p\u00e4", 2, "m", "k", "user", "ann")
ELSEWHERE = ForeignRead("other", D, ("$x", 0), Depth.SHAPE, 4, 77)
RUN = Observation(
    encode_part(About(KEY, "computed", "code", "gate")),
    encode_part(Footprint((Touched(D, ("$k", 0), Depth.SHAPE), Touched(D)), ("c1",))),
    *(5, 7, 3, (((1, 2),), ()), "ValueError", (D, ("x", 1)), (ELSEWHERE,), 40),
)
OBSERVED = Observed(
    *(KEY, "computed", "code", "gate", "", (D, ("x",)), (Read(D, ("$k", 0), Depth.SHAPE, 3),), (ELSEWHERE,)),
    *(("c1",), 40, 2, 3, ((0, 8),)),
)
FROM_REPLICA: list[FromReplica] = [
    Hello((1, 2), ("waves",), "token"),
    Open("x", "session", "old", "new", "dev", 4, (5, 6), 3),
    Transact((FULL_COMMIT, Commit(8))),
    Watch(1, (Selector(D, True), Selector(DocKey("user:ann", "ü")))),
    Unwatch(3),
    Query(1, "space", "d", 4, "after", 10),
    QueryEvents(2, 7, (3, "e1"), 5),
    QueryEvents(2),
    WatchEvents(3, False),
    Transact((Commit(8),), (RUN, Observation(b"", b"", 3, gone=True))),
    Transact((), (RUN,)),
    QueryObservations(1, "p", 2, "m", "k", KEY, 5, D),
    QueryObservations(1),
    QueryBacklog(2, "p", 9),
    ClaimCode(3, "shop.Cart", "code"),
    QueryReaders(3, D, "p", 9),
    QueryWrittenDocuments(4, 17, 9),
    QueryNodes(4, (NodeKey("p", 1, "m", "k", "user", "ann"),)),
    QueryCleanPieces(4, "p", 9),
    QueryAffectedNodes(4, "p", 3, (D,), (D,), 9),
    WatchWrittenDocuments(5, False),
    QueryCurrent(6, (Read(D, ("x", 0), Depth.SHAPE, 3),), ((3, 99),)),
    Ack(4, 2),
    Bye(9),
    Renew("a token"),
]
FROM_ENGINE: list[FromEngine] = [
    Welcome(1, ("waves",)),
    StoredEvents(2, 9, (StoredEvent("e1", 3, "stream", ODD, 5, 6, "ann"),), (3, "e1"), 8),
    StoredEvents(2, 9, ()),
    EventsStored(3, 9),
    Observations(1, 9, (OBSERVED,), KEY),
    CodeClaimed(3, True),
    Backlog(2, 9, (PieceBacklog("p", 3, 2, 50, ((D, 8),)),), "p"),
    Readers(3, 9, ("p", "q"), "q"),
    WrittenDocuments(4, 9, (WrittenDocument(D, 8, ("p",), True),), 9),
    WrittenDocuments(4, 9, (), None),
    CleanPieces(4, 9, (CleanPiece("p", "code", 8, True),), "p"),
    AffectedNodes(4, 9, (OBSERVED,), False),
    DocumentsWritten(5, 9),
    OutdatedReads(6, 9, ((0, 8),)),
    Opened("session", 4, True, ((5, 9),), 6),
    Verdicts(
        (
            Accepted(1, 2, True),
            Rejected(2, Conflict((Collision(D, ("a", 0), Depth.DEEP, 1, 2, "b", "n", "why"),), (1, 2), True)),
            Rejected(3, PreconditionFailed("entity_absent", "there")),
            Rejected(4, RuleRefused("rule", "no")),
        )
    ),
    Watched(1, 4, (state_of(D, 3, ODD), state_of(D, 0, ABSENT), state_of(D, 3, None))),
    Sync(
        4,
        (Patched(D, 3, (add(("k",), ODD), increment(("n",), 0.5))), Own(D, 4, 9), whole_of(D, 4, ODD)),
        (state_of(D, 4, b"x"),),
    ),
    Answer(2, 4, (state_of(D, 3, ODD),), "more"),
    Problem("limit", "too much", False, 3),
    Renewed(),
]


def back(message: Any, encoding: Encoding) -> Any:
    data = encode(message, encoding)
    return (decode_from_replica if message in FROM_REPLICA else decode_from_engine)(data, encoding)


def name(message: object) -> str:
    return type(message).__name__


@pytest.mark.parametrize("encoding", ENCODINGS)
class TestThereAndBack:
    @pytest.mark.parametrize("message", FROM_REPLICA, ids=name)
    def test_what_a_replica_says_is_read_back_as_it_was(self, message: FromReplica, encoding: Encoding) -> None:
        assert decode_from_replica(encode(message, encoding), encoding) == message

    @pytest.mark.parametrize("message", FROM_ENGINE, ids=name)
    def test_what_an_engine_says_is_read_back_as_it_was(self, message: FromEngine, encoding: Encoding) -> None:
        assert decode_from_engine(encode(message, encoding), encoding) == message

    def test_null_and_nothing_are_told_apart(self, encoding: Encoding) -> None:
        states = (state_of(D, 1, None), state_of(D, 1, ABSENT))
        read = decode_from_engine(encode(Watched(1, 1, states), encoding), encoding)
        assert isinstance(read, Watched)
        assert [state.get() for state in read.documents] == [None, ABSENT]
        whole = decode_from_engine(encode(Sync(1, (whole_of(D, 1, ABSENT),)), encoding), encoding)
        assert isinstance(whole, Sync)
        assert isinstance(whole.changes[0], Whole)
        assert whole.changes[0].get() is ABSENT

    def test_what_comes_out_is_frozen(self, encoding: Encoding) -> None:
        commit = Transact((Commit(1, (Operation(D, (replace((), {"l": [1, {"m": [2]}]}),)),)),))
        read = decode_from_replica(encode(commit, encoding), encoding)
        assert isinstance(read, Transact)
        assert read.commits[0].operations[0].patches[0] == Patch("replace", (), {"l": (1, {"m": (2,)})})
        state = decode_from_engine(encode(Watched(1, 1, (State(D, 1, True, {"l": [[1]]}),)), encoding), encoding)
        assert isinstance(state, Watched)
        assert state.documents[0].get() == {"l": ((1,),)}

    def test_a_value_as_deep_as_values_may_be_passes(self, encoding: Encoding) -> None:
        """The message around a value is not part of it: both encodings take the same documents."""
        deep: Any = 1
        for _ in range(DEFAULT_VALUE_LIMITS.depth):
            deep = [deep]
        deep = freeze(deep)
        commit = Transact((Commit(1, (Operation(D, (replace((), deep),)),)),))
        assert decode_from_replica(encode(commit, encoding), encoding) == commit
        sync = Sync(1, (whole_of(D, 1, deep),), (state_of(D, 1, deep),))
        assert decode_from_engine(encode(sync, encoding), encoding) == sync

    def test_one_that_is_deeper_is_refused_and_says_why(self, encoding: Encoding) -> None:
        deep: Any = 1
        for _ in range(DEFAULT_VALUE_LIMITS.depth + 1):
            deep = [deep]
        commit = Transact((Commit(1, (Operation(D, (Patch("replace", (), deep),)),)),))
        with pytest.raises(ProtocolError, match=f"nested more than {DEFAULT_VALUE_LIMITS.depth} deep"):
            decode_from_replica(encode(commit, encoding), encoding)
        with pytest.raises(ProtocolError, match=f"nested more than {DEFAULT_VALUE_LIMITS.depth} deep"):
            decode_from_engine(encode(Watched(1, 1, (State(D, 1, True, deep),)), encoding), encoding)

    def test_fields_at_the_end_may_be_left_out(self, encoding: Encoding) -> None:
        """An older peer does not send what was added later."""
        for short, whole in (
            (["hello", [1]], Hello((1,))),
            (["open", "x", "s"], Open("x", "s")),
            (["transact", [[1]]], Transact((Commit(1),))),
            (["ack", 4], Ack(4)),
            (["bye"], Bye()),
            (["renew", "t"], Renew("t")),
        ):
            data = msgspec.msgpack.encode(short) if encoding == "msgpack" else json.dumps(short).encode()
            assert decode_from_replica(data, encoding) == whole


TEXT = st.characters(exclude_categories=["Cs"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INT, MAX_INT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(TEXT, max_size=5)
    | st.binary(max_size=4)
    | st.sampled_from([Link(id="x"), Link(space="other", id="y", path=("a", 1))]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(TEXT, max_size=4) | st.just("$k"), inner, max_size=3)
    ),
    max_leaves=8,
).map(freeze)


@given(value=VALUES)
def test_every_value_comes_through_every_message_that_carries_values(value: Any) -> None:
    commit = Commit(1, (Operation(D, (replace((), value),)),), events=(SentEvent("e", "s", value),))
    for encoding in ENCODINGS:
        read = decode_from_replica(encode(Transact((commit,)), encoding), encoding)
        assert isinstance(read, Transact)
        assert equal(read.commits[0].operations[0].patches[0].arg, value)
        assert equal(read.commits[0].events[0].payload, value)
        sync = decode_from_engine(
            encode(Sync(1, (whole_of(D, 1, value),), (state_of(D, 1, value),)), encoding), encoding
        )
        assert isinstance(sync, Sync)
        assert equal(sync.arrived[0].get(), value)
        assert isinstance(sync.changes[0], Whole)
        assert equal(sync.changes[0].get(), value)


WRONG: list[tuple[str, Any]] = [
    ("an unknown message", ["dance", 1]),
    ("no message", 5),
    ("an object", {"hello": [1]}),
    ("an empty array", []),
    ("a number for a tag", [1, 2]),
    ("a message of the other side", ["welcome", 1]),
    ("a missing field", ["watch", 1]),
    ("a field too many", ["unwatch", 1, 2]),
    ("a wrong type", ["unwatch", "one"]),
    ("a truth for a number", ["unwatch", True]),
    ("a fraction for a number", ["unwatch", 1.5]),
    ("a negative number", ["unwatch", -1]),
    ("a number past any seq", ["ack", 2**53]),
    ("null for text", ["open", None, "s"]),
    ("commits that are none", ["transact", [["one"]]]),
    ("a commit of null", ["transact", [None]]),
    ("an unknown kind of patch", ["transact", [[1, [[["space", "d"], [["twist", [], 1]]]]]]]),
    ("a path that is text", ["transact", [[1, [[["space", "d"], [["replace", "x", 1]]]]]]]),
    ("a negative index", ["transact", [[1, [[["space", "d"], [["replace", [-1], 1]]]]]]]),
    ("a depth that does not exist", ["transact", [[1, [], [[["space", "d"], [], 7, 0]]]]]),
    ("half a document name", ["watch", 1, [[["space"]]]]),
    ("layers that are no pairs", ["transact", [[1, [], [[["space", "d"], [], 0, 0, [[1]]]]]]]),
    ("an unknown precondition", ["transact", [[1, [], [], [["moon_is_full", 1]]]]]),
    ("an integer no value can hold", ["transact", [[1, [[["space", "d"], [["replace", [], 2**60]]]]]]]),
    ("a splice of nonsense", ["transact", [[1, [[["space", "d"], [["splice", [], [1]]]]]]]]),
    ("a path step of null", ["transact", [[1, [], [[["space", "d"], [None], 0, 0]]]]]),
]


@pytest.mark.parametrize("encoding", ENCODINGS)
class TestNoMessages:
    @pytest.mark.parametrize(("what", "raw"), WRONG, ids=[what for what, _ in WRONG])
    def test_what_is_no_message_is_a_protocol_error_that_says_something(
        self, what: str, raw: Any, encoding: Encoding
    ) -> None:
        data = msgspec.msgpack.encode(raw) if encoding == "msgpack" else json.dumps(raw).encode()
        with pytest.raises(ProtocolError) as caught:
            decode_from_replica(data, encoding)
        assert len(str(caught.value)) > 20

    @pytest.mark.parametrize(
        "raw",
        [
            ["sync", 1, [["patched", ["space", "d"], 1, [["twist", [], 1]]]]],
            ["sync", 1, [["moved", ["space", "d"], 1]]],
            ["sync", -1, []],
            ["watched", 1, 1, [[["space", "d"], 1]]],
            ["watched", 1, 1, [[["space", "d"], 1, True, {"n": 2**60}]]],
            ["verdicts", [["maybe", 1]]],
            ["verdicts", [["accepted", 1]]],
            ["opened", "s", 1, True, [[1]]],
            ["hello", [1]],
        ],
        ids=str,
    )
    def test_the_engine_is_not_believed_blindly_either(self, raw: Any, encoding: Encoding) -> None:
        data = msgspec.msgpack.encode(raw) if encoding == "msgpack" else json.dumps(raw).encode()
        with pytest.raises(ProtocolError):
            decode_from_engine(data, encoding)

    def test_nesting_without_end_is_refused(self, encoding: Encoding) -> None:
        endless = b"\x91" * 100_000 if encoding == "msgpack" else b"[" * 100_000
        for decode in (decode_from_replica, decode_from_engine):
            with pytest.raises(ProtocolError):
                decode(endless, encoding)

    def test_empty_and_cut_off_bytes_are_refused(self, encoding: Encoding) -> None:
        for message in (*FROM_REPLICA, *FROM_ENGINE):
            decode = decode_from_replica if message in FROM_REPLICA else decode_from_engine
            data = encode(message, encoding)
            for length in {0, 1, len(data) // 2, len(data) - 1}:
                with pytest.raises(ProtocolError):
                    decode(data[:length], encoding)

    def test_anything_after_the_message_is_refused(self, encoding: Encoding) -> None:
        for message in FROM_REPLICA:
            with pytest.raises(ProtocolError):
                decode_from_replica(encode(message, encoding) + encode(Bye(), encoding), encoding)


class TestNoMessagesOfOneEncoding:
    @pytest.mark.parametrize(
        "text",
        [
            b'["unwatch", 1',
            b"\xff\xfe",
            b'["open", "\\ud800", "s"]',
            b'["transact", [[1, [[["space", "d"], [["replace", [], NaN]]]]]]]',
            b'["transact", [[1, [[["space", "d"], [["replace", [], {"$bytes": "!"}]]]]]]]',
            b'["transact", [[1, [[["space", "d"], [["replace", [], {"$dance": 1}]]]]]]]',
            b'["transact", [[1, [[["space", "d"], [["replace", [], {"$link": {"id": ""}}]]]]]]]',
            b'["transact", [[1, [[["space", "d"], [["replace", [], "\\ud800"]]]]]]]',
        ],
        ids=str,
    )
    def test_json_that_holds_no_message(self, text: bytes) -> None:
        with pytest.raises(ProtocolError):
            decode_from_replica(text, "json")

    @pytest.mark.parametrize(
        "value",
        [
            msgspec.msgpack.Ext(5, b"x"),
            msgspec.msgpack.Ext(1, b"\xc1"),
            msgspec.msgpack.Ext(1, msgspec.msgpack.encode([None, "moon", "x", []])),
            msgspec.msgpack.Ext(1, msgspec.msgpack.encode([None, "space", "", []])),
            msgspec.msgpack.Ext(-1, b"\x00\x00\x00\x01"),
            {1: 2},
            {"a": {None: 1}},
            float("nan"),
            float("inf"),
        ],
        ids=["other-extension", "no-link", "no-scope", "no-id", "time", "number-key", "null-key", "nan", "infinity"],
    )
    def test_msgpack_that_holds_no_value(self, value: Any) -> None:
        raw = ["transact", [[1, [[["space", "d"], [["replace", [], value]]]]]]]
        with pytest.raises(ProtocolError):
            decode_from_replica(msgspec.msgpack.encode(raw), "msgpack")
        watched = ["watched", 1, 1, [[["space", "d"], 1, True, value]]]
        with pytest.raises(ProtocolError):
            decode_from_engine(msgspec.msgpack.encode(watched), "msgpack")

    def test_text_that_is_no_utf8_is_refused(self) -> None:
        data = encode(Open("x", "session"), "msgpack").replace(b"session", b"sess\xff\xffn")
        with pytest.raises(ProtocolError):
            decode_from_replica(data, "msgpack")


@pytest.mark.random
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_damaged_bytes_are_a_message_or_a_protocol_error_and_nothing_else(encoding: Encoding) -> None:
    random = Random(7)
    whole = [encode(message, encoding) for message in (*FROM_REPLICA, *FROM_ENGINE)]
    for _ in range(scaled(100_000)):
        data = bytearray(random.choice(whole))
        for _ in range(random.randrange(1, 4)):
            match random.randrange(3):
                case 0:
                    data[random.randrange(len(data))] = random.randrange(256)
                case 1:
                    del data[random.randrange(len(data))]
                case _:
                    data.insert(random.randrange(len(data) + 1), random.randrange(256))
        for decode in (decode_from_replica, decode_from_engine):
            try:
                decode(bytes(data), encoding)
            except ProtocolError:
                continue


@pytest.mark.random
def test_random_bytes_are_never_more_than_a_protocol_error() -> None:
    random = Random(11)
    for _ in range(scaled(50_000)):
        data = random.randbytes(random.randrange(40))
        for encoding in ENCODINGS:
            for decode in (decode_from_replica, decode_from_engine):
                try:
                    decode(data, encoding)
                except ProtocolError:
                    continue
