"""What a transaction reads inside its own writes, and what it says of arrays that it did not read (C1)."""

from __future__ import annotations

import pytest

from headwater.data.address import Depth, DocKey
from headwater.data.patch import Patch, replace
from headwater.protocol.commit import Read
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica

D, E = DocKey("space", "d"), DocKey("space", "e")


def holding(**values: object) -> Replica:
    replica = Replica()
    for id, value in values.items():
        document = replica.confirmed.put(DocKey("space", id), value, 1)  # type: ignore[arg-type]
        document.value = value  # type: ignore[assignment]
    replica.confirmed.move_to(1)
    return replica


def committed(replica: Replica, transaction: object) -> Layer:
    layer = replica.commit(transaction)  # type: ignore[arg-type]
    assert isinstance(layer, Layer)
    return layer


def test_what_a_write_repeats_without_saying_it_is_read() -> None:
    """The whole is written, a part is read, and the commit says only what differs: the part is somebody else's, too."""
    replica = holding(d={"a": 1, "b": 1}, e=0)
    transaction = replica.begin()
    transaction.write(D, replace((), {"a": 1, "b": 2}))
    transaction.write(E, replace((), transaction.read(D, ("a",))))
    commit = committed(replica, transaction).commit
    assert commit.reads == (Read(D, ("a",), Depth.DEEP, 1),)


def test_what_a_write_says_is_not_read() -> None:
    replica = holding(d={"a": 1, "b": 1}, e=0)
    transaction = replica.begin()
    transaction.write(D, replace((), {"a": 1, "b": 2}))
    transaction.write(E, replace((), transaction.read(D, ("b",))))
    assert committed(replica, transaction).commit.reads == ()


@pytest.mark.parametrize("derived", [True, False], ids=["derived", "authored"])
def test_there_and_back_again_is_a_read_where_it_is_derived_and_told_where_it_is_not(derived: bool) -> None:
    replica = holding(d={"x": 1}, e=0)
    transaction = replica.begin(derived=derived)
    transaction.write(D, replace(("x",), 2))
    transaction.write(D, replace(("x",), 1))
    transaction.write(E, replace((), transaction.read(D, ("x",))))
    commit = committed(replica, transaction).commit
    assert commit.reads == ((Read(D, ("x",), Depth.DEEP, 1),) if derived else ())
    assert [operation.doc for operation in commit.operations] == ([E] if derived else [D, E])


@pytest.mark.parametrize("first", [replace((), {"l": (9, 2, 3)}), replace(("l",), (9, 2, 3))])
def test_an_array_that_was_written_as_a_whole_is_said_as_a_whole(first: Patch) -> None:
    replica = holding(d={"l": (1, 2, 3)})
    transaction = replica.begin()
    transaction.write(D, first, replace(("l", 1), 7))
    (operation,) = committed(replica, transaction).commit.operations
    assert operation.patches == (replace(("l",), (9, 7, 3)),)


def test_what_is_derived_without_the_right_to_write_does_not_pile_up() -> None:
    replica = holding(d={"n": 0}, e={"n": 0})
    replica.may_write = False
    replica.on_layer = replica.pending.keep_here
    ended: list[int] = []
    for number in range(1, 101):
        transaction = replica.begin(derived=True, node="both")
        transaction.write(D, replace(("n",), number))
        transaction.write(E, replace(("n",), -number))
        replica.commit(transaction, lambda layer, rejection: ended.append(layer.local_seq))
    assert replica.visible(D) == {"n": 100}
    assert replica.visible(E) == {"n": -100}
    assert len(replica.pending.local()) == 1
    assert ended == list(range(1, 100))  # each once, when another one took its place
