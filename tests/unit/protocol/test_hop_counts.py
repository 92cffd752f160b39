"""How far a change has come: counted at each crossing, said in both encodings, bounded whatever a peer says (I6)."""

from __future__ import annotations

import msgspec
import pytest

from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.data.value import MAX_INT
from headwater.errors import ProtocolError
from headwater.protocol.commit import (
    NO_PROVENANCE,
    Commit,
    Operation,
    Provenance,
    decode_commit,
    decode_frame,
    encode_commit,
)
from headwater.protocol.hop_counts import AUTHORED, hops_of_change, longest_hops, make_patched
from headwater.protocol.messages import (
    Encoding,
    Own,
    Patched,
    Sync,
    Transact,
    Way,
    Whole,
    decode_from_engine,
    decode_from_replica,
    encode,
    whole_of,
)

D = DocKey("space", "d")
E = DocKey("space", "e")
NAMED_HOPS = 6
WRITE = Operation(D, (replace((), 1),))


def derived(hops: int) -> Provenance:
    return Provenance("node", "", (), True, hops)


def commit_of(provenance: Provenance) -> Commit:
    return Commit(1, (WRITE,), provenance=provenance)


def test_what_is_authored_has_gone_nowhere_whatever_it_says() -> None:
    assert make_patched(WRITE, 3, NO_PROVENANCE, "s", NAMED_HOPS) == Patched(D, 3, WRITE.patches)
    assert make_patched(WRITE, 3, Provenance("handler", hops=7), "s", NAMED_HOPS).way is None


def test_what_is_derived_has_gone_one_step_further_and_names_its_writer_when_it_looks_like_a_cycle() -> None:
    assert make_patched(WRITE, 3, derived(0), "s", NAMED_HOPS).way == Way(1)
    assert make_patched(WRITE, 3, derived(NAMED_HOPS - 2), "s", NAMED_HOPS).way == Way(NAMED_HOPS - 1)
    assert make_patched(WRITE, 3, derived(NAMED_HOPS - 1), "s", NAMED_HOPS).way == Way(NAMED_HOPS, "node", "s")


def test_a_count_at_its_end_stays_there() -> None:
    told = make_patched(WRITE, 3, derived(MAX_INT), "s", NAMED_HOPS)
    assert told.way == Way(MAX_INT, "node", "s")
    assert decode_from_engine(encode(Sync(3, (told,)))) == Sync(3, (told,))


def test_of_several_changes_the_longest_way_counts() -> None:
    changes = (
        Patched(D, 1, ()),
        Patched(D, 2, (), Way(3)),
        Patched(D, 3, (), Way(2)),
        Own(E, 4, 1),
        Whole(DocKey("space", "f"), 5, False),
        Patched(DocKey("space", "g"), 6, ()),
    )
    assert longest_hops(changes) == {D: Way(3), DocKey("space", "g"): AUTHORED}
    assert hops_of_change(Whole(D, 5, False, None, Way(4))) == Way(4)


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_both_encodings_say_it(encoding: Encoding) -> None:
    sync = Sync(3, (Patched(D, 3, (), Way(9, "node", "s")), whole_of(E, 3, None, Way(2)), whole_of(E, 3, 1)))
    assert decode_from_engine(encode(sync, encoding), encoding) == sync
    transact = Transact((commit_of(derived(5)),))
    assert decode_from_replica(encode(transact, encoding), encoding) == transact


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_what_an_older_peer_says_has_no_hops(encoding: Encoding) -> None:
    patched, whole = ["patched", ["space", "d"], 3, []], ["whole", ["space", "e"], 3, True, 1]
    older = ["sync", 3, [patched, whole]]
    data = msgspec.msgpack.encode(older) if encoding == "msgpack" else msgspec.json.encode(older)
    assert decode_from_engine(data, encoding) == Sync(3, (Patched(D, 3, ()), Whole(E, 3, True, 1)))


def test_a_commit_that_was_stored_before_there_were_hops_has_none() -> None:
    stored = msgspec.msgpack.decode(encode_commit(commit_of(derived(5))))
    stored[7] = stored[7][:4]
    assert decode_commit(msgspec.msgpack.encode(stored)) == commit_of(derived(0))


@pytest.mark.parametrize("hops", [-1, MAX_INT + 1, "many", 1.5, None])
def test_hops_that_are_no_count_are_refused(hops: object) -> None:
    frame = msgspec.msgpack.decode(msgspec.msgpack.encode([msgspec.to_builtins(commit_of(derived(0)))]))
    frame[0][7][4] = hops
    with pytest.raises(ProtocolError, match="not a sequence of commits"):
        decode_frame(msgspec.msgpack.encode(frame))
