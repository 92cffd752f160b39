"""The bytes in a space's file have one form per schema version, so the version alone says whether they can be read.

A change of any of these bytes is a new version of the schema, so that another Headwater refuses the file by name
instead of calling it damaged. Then pin the new bytes.
"""

from __future__ import annotations

import msgspec

from headwater.data.address import Depth, DocKey, Link
from headwater.data.patch import Touch, append, replace
from headwater.data.value import Value
from headwater.engine.log.heads import restored, snapshot_of
from headwater.engine.log.write_index import WriteIndex
from headwater.engine.observations.codec import (
    Body,
    NodeState,
    StoredRead,
    decode_body,
    decode_state,
    encode_form,
    number_of_absent,
)
from headwater.engine.store.row_checksum import observation_seal, row_seal
from headwater.engine.store.schema import SCHEMA_VERSION
from headwater.protocol.commit import (
    Commit,
    Declared,
    Delivered,
    EntityAbsent,
    LeaseHeld,
    NodeResult,
    Operation,
    OriginCommitted,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
    decode_commit,
    encode_commit,
)
from headwater.protocol.log_record import decode_record, encode_record
from headwater.protocol.observations import ForeignRead

VERSION = 1
A = DocKey("space", "a")
VALUE: Value = {"n": (None, True, -1, 1.5, "é", b"\x00", Link(None, "space", "b", ("x", 0)))}
EVERYTHING = Commit(
    7,
    (Operation(A, (replace(("k", 0), VALUE), append((), ("y",)))),),
    (Read(A, ("k",), Depth.SHAPE, 3, ((4, 5),)), Read(A, (), Depth.DEEP, 0)),
    (OriginCommitted(6), EntityAbsent(A), LeaseHeld("lease", 9)),
    "side",
    (SentEvent("e", "stream", VALUE, 11),),
    (TopicRecord("topic", "key", None, "p"),),
    Provenance("node", "print", ((A, ("k",)),), derived=True),
    (NodeResult(Provenance("n"), 1, (0, 1), (2,)),),
    ("f",),
    (Delivered("r", "key", 3, 1),),
    (Declared("r", "topic", "beginning", "lane", 2),),
)
PARTS: dict[type[msgspec.Struct], str] = {
    Commit: "local_seq operations reads preconditions branch events records provenance results handled delivered "
    "declared",
    NodeResult: "provenance operations reads after",
    Operation: "doc patches",
    Read: "doc path depth seq layers",
    OriginCommitted: "local_seq",
    EntityAbsent: "doc",
    LeaseHeld: "name token",
    SentEvent: "id stream payload due_us",
    TopicRecord: "topic key payload source",
    Delivered: "reaction key seq ordinal keeps",
    Declared: "reaction topic since lane priority",
    Provenance: "node fingerprint causes derived hops",
}

RECORD = (
    "92929c07919292a57370616365a1619293a77265706c61636592a16b0081a16e97c0c3ffcb3ff8000000000000a2c3a9c401"
    "00c70e0194c0a57370616365a16292a1780093a6617070656e64909291a179c0929592a57370616365a16191a16b01039192"
    "04059592a57370616365a161900000909392b06f726967696e5f636f6d6d69747465640692ad656e746974795f616273656e"
    "7492a57370616365a16193aa6c656173655f68656c64a56c6561736509a4736964659194a165a673747265616d81a16e97c0"
    "c3ffcb3ff8000000000000a2c3a9c40100c70e0194c0a57370616365a16292a178000b9194a5746f706963a36b6579c0a170"
    "95a46e6f6465a57072696e74919292a57370616365a16191a16bc300919495a16ea090c20001920001910291a1669195a172"
    "a36b65790301c29195a172a5746f706963a9626567696e6e696e67a46c616e65029105939c08909090a46d61696e909095a0"
    "a090c200909090909092c40372756ec4046d6f7265"
)
SNAPSHOT = "e942a5b881a16e97c0c3ffcb3ff8000000000000a2c3a9c40100c70e0194c0a57370616365a16292a17800"
STATE = "9b01020300092829054d9292a57370616365a16191a16b9197a17892a57370616365a16191a16b0104c0a46d61696e"
BODY = "9292930792a16b00009392a57370616365a161900191a163"
ABSENT_A = -1193986764472149394
MARKS = (
    "95930301009304020393000000009192a16b9593000000930402039303010000929200959303010093030100930000000090"
    "92a178959304020093040200930000000090"
)


def test_the_forms_below_are_those_of_this_schema_version() -> None:
    assert SCHEMA_VERSION == VERSION, "look whether the forms below changed, then write the new version here"


def test_a_commit_has_the_parts_it_had() -> None:
    """A part added at the end, with a default, changes no bytes below; an older version cannot read it all the same."""
    for struct, names in PARTS.items():
        assert [field.name for field in msgspec.structs.fields(struct)] == names.split()


def test_the_record_of_a_frame() -> None:
    entries = [(encode_commit(EVERYTHING), (5,)), (encode_commit(Commit(8)), ())]
    assert encode_record(entries, {1: [b"run", b"more"]}).hex() == RECORD
    first, second = decode_record(bytes.fromhex(RECORD))
    assert (decode_commit(first.commit), first.previous) == (EVERYTHING, (5,))
    assert (decode_commit(second.commit), second.previous) == (Commit(8), ())
    assert (first.observed, second.observed) == ((), (b"run", b"more"))


def test_a_snapshot() -> None:
    row = snapshot_of(1, 2, 3, 4, VALUE)
    assert row.body.hex() == SNAPSHOT
    assert restored(row._replace(body=bytes.fromhex(SNAPSHOT))) == VALUE


def test_a_write_index() -> None:
    marks = WriteIndex(0, 100)
    marks.record((Touch(("k", 0), True), Touch((), False)), 3, 1)
    marks.record((Touch(("k", "x"), False),), 4, 2)
    assert marks.encode().hex() == MARKS
    again = WriteIndex.decode(bytes.fromhex(MARKS), 100)
    assert again.encode().hex() == MARKS
    assert [again.latest(("k",), Depth.DEEP, by) for by in (0, 1, 2)] == [4, 4, 3]


def test_an_observation() -> None:
    """What is stored of a node, and of what another space reads."""
    state = NodeState(
        1, 2, 3, 0, 9, 40, 41, 5, 77, (("space", "a"), ("k",)), (ForeignRead("x", A, ("k",), Depth.SHAPE, 4),)
    )
    body = Body((StoredRead(7, ("k", 0)), StoredRead(("space", "a"), (), 1)), ("c",))
    assert encode_form(state).hex() == STATE
    assert encode_form(body).hex() == BODY
    assert decode_state(bytes.fromhex(STATE)) == state
    assert decode_body(bytes.fromhex(BODY)) == body
    assert number_of_absent(*A) == ABSENT_A
    assert observation_seal(1, 2, 3, 4, "\u00e4", 5, b"state", b"body") == 730827777


def test_the_seal_of_a_row() -> None:
    assert row_seal(7, "space", "ä") == 2_277_278_272
    assert row_seal(1, "key", "ann", 5, True, "", 2) == row_seal(1, "key", "ann", 5, 1, "", 2) == 1_627_596_384
