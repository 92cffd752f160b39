"""What a reader derives and may not write stays here: as much of it as is shown, and no more."""

from __future__ import annotations

from collections.abc import Callable

from headwater.data.address import DocKey
from headwater.data.patch import add, replace
from headwater.protocol.verdict import Conflict
from headwater.replica.transaction import Transaction
from tests.unit.replica.kit import Client, Told, World, doc

D, OUT, ACCESS = doc("d"), doc("out"), doc("$access")
OWN = doc("own", "user:bob")


def test_what_a_transaction_derives_without_the_right_to_write_does_not_pile_up() -> None:
    world = World(access=True)
    owner = world.join("owner", principal="ann")
    owner.watch(D, ACCESS)
    world.settle()
    owner.do(lambda t: t.write(D, replace((), 0)))
    world.settle()
    owner.do(lambda t: t.write(ACCESS, replace((), {"owners": ["ann"], "readers": ["bob"]})))
    world.settle()
    reader = world.join("reader", principal="bob", keeps_derived=True)
    world.settle()
    reader.watch(D, OUT)
    world.settle()

    def derive(t: Transaction) -> None:
        n = t.read(D)
        assert isinstance(n, int)
        t.write(OUT, replace((), n * 2))

    tolds: list[Told] = []
    for number in range(1, 9):
        owner.do(lambda t, n=number: t.write(D, replace((), n)))  # type: ignore[misc]
        world.settle()
        tolds.append(reader.do(derive, derived=True))
        reader.session.flush()
        world.settle()
    assert reader.shows(OUT) == 16
    assert len(reader.replica.pending.local()) == 1
    assert [len(told.calls) for told in tolds] == [1] * 7 + [0]


def reader_and_owner() -> tuple[World, Client, Client]:
    """A reader who keeps what it derives here, and the owner whose documents it looks at."""
    world = World(access=True)
    owner = world.join("owner", principal="ann")
    owner.watch(D, ACCESS)
    world.settle()
    owner.do(lambda t: t.write(D, replace((), {"n": 1, "k": 1})))
    world.settle()
    owner.do(lambda t: t.write(ACCESS, replace((), {"owners": ["ann"], "readers": ["bob"]})))
    world.settle()
    reader = world.join("reader", principal="bob", keeps_derived=True)
    world.settle()
    reader.watch(D, OUT, OWN)
    world.settle()
    reader.do(lambda t: t.write(OUT, replace((), 0)), derived=True)
    reader.session.flush()
    world.settle()
    assert not reader.replica.may_write
    return world, reader, owner


def test_what_gave_way_to_a_layer_that_shows_it_still_is_still_known_to_have_read_something() -> None:
    world, reader, owner = reader_and_owner()
    reader.do(lambda t: t.write(OUT, replace((), {"a": the_number(t, "n")})), derived=True)
    reader.do(lambda t: t.write(OUT, add(("b",), the_number(t, "k"))), derived=True)
    owner.do(lambda t: t.write(D, replace(("n",), 5)))
    told = reader.do(lambda t: t.write(OWN, replace((), the_number(t, "a", OUT))))
    owner.pump()
    world.settle()
    assert isinstance(told.rejection, Conflict)  # It is a function of n, which is another one by now.


def test_a_write_that_was_rejected_is_not_shown_by_what_was_derived_on_top_of_it() -> None:
    world, reader, owner = reader_and_owner()
    reader.do(lambda t: t.write(OWN, replace((), {"z": 0})))
    world.settle()
    owner.do(lambda t: t.write(D, replace(("n",), 5)))
    told = reader.do(lambda t: t.write(OWN, add(("a",), the_number(t, "n"))))
    reader.do(lambda t: t.write(OWN, add(("b",), the_number(t, "k"))), derived=True)
    owner.pump()
    world.settle()
    assert isinstance(told.rejection, Conflict)
    assert reader.shows(OWN) == {"z": 0, "b": 1}


def the_number(t: Transaction, key: str, of: DocKey = D) -> int:
    number = t.read(of, (key,))
    assert isinstance(number, int)
    return number


def falling(world: World, reader: Client, owner: Client) -> Callable[[], None]:
    """A commit of the reader's own on its document. Calling what is answered has the engine reject it."""
    owner.do(lambda t: t.write(D, replace(("n",), 5)))
    told = reader.do(lambda t: t.write(OWN, add(("falls",), the_number(t, "n"))))

    def fall() -> None:
        owner.pump()
        world.settle()
        assert isinstance(told.rejection, Conflict)

    return fall


def test_an_element_that_was_derived_here_is_shown_on_when_a_commit_under_it_falls() -> None:
    world, reader, owner = reader_and_owner()
    reader.do(lambda t: t.write(OWN, replace((), {"l": (1, 2, 3)})))
    world.settle()
    fall = falling(world, reader, owner)

    def derive(t: Transaction) -> None:
        assert t.read(OWN, ("l",)) == (1, 2, 3)
        t.write(OWN, replace(("l",), (1, 7, 3)))

    reader.do(derive, derived=True)
    fall()
    assert reader.shows(OWN) == {"l": (1, 7, 3)}


def test_what_was_derived_on_something_that_gave_way_is_shown_on() -> None:
    world, reader, owner = reader_and_owner()
    reader.watch(doc("more", "user:bob"))
    reader.do(lambda t: t.write(OWN, replace((), {"z": 0})))
    world.settle()
    fall = falling(world, reader, owner)

    def derive(t: Transaction) -> None:
        t.write(OWN, add(("a", "k"), 1), add(("b",), 5))
        t.write(doc("more", "user:bob"), replace((), 1))

    reader.do(lambda t: t.write(OWN, add(("a",), {"first": the_number(t, "k")})), derived=True)
    reader.do(derive, derived=True)
    reader.do(lambda t: t.write(OWN, add(("a",), {"second": the_number(t, "k")})), derived=True)
    assert reader.shows(OWN) == {"z": 0, "falls": 1, "a": {"second": 1}, "b": 5}
    fall()
    assert reader.shows(OWN) == {"z": 0, "a": {"second": 1}, "b": 5}


def test_superseding_local_layer_shows_the_order_of_keys_of_its_own_patches() -> None:
    _, reader, _ = reader_and_owner()

    def first(t: Transaction) -> None:
        t.read(D)
        t.write(D, add(("sum",), 1))
        t.write(D, add(("by",), "one"))

    def second(t: Transaction) -> None:
        t.read(D)
        t.write(D, replace(("by",), "two"))
        t.write(D, replace(("sum",), 1))

    reader.do(first, derived=True)
    reader.do(second, derived=True)
    assert len(reader.replica.pending.local()) == 1
    shown = reader.shows(D)
    assert isinstance(shown, dict)
    assert list(shown.items()) == [("n", 1), ("k", 1), ("by", "two"), ("sum", 1)]
