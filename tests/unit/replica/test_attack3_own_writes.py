"""What a transaction reads through its own writes, where those writes, told as a difference, say nothing."""

from __future__ import annotations

from headwater.data.patch import replace
from headwater.data.value import MaybeValue, Value
from headwater.replica.transaction import Transaction
from tests.unit.replica.kit import Client, Told, World, doc

D, E = doc("d"), doc("e")


def two(start: Value) -> tuple[World, Client, Client]:
    world = World("one", "other")
    one, other = world.clients
    for client in world.clients:
        client.watch(D, E)
    world.settle()
    one.write("d", replace((), start))
    one.write("e", replace((), 0))
    world.settle()
    return world, one, other


def after_somebody(world: World, first: Client, then: Told) -> tuple[bool, MaybeValue, MaybeValue]:
    """Let one client's commit land before everybody else's. Whether the other landed, and both documents."""
    first.pump()
    world.settle()
    return then.landed, world.value(D), world.value(E)


def test_what_an_own_write_repeats_of_what_is_there_is_a_read_when_it_is_looked_at() -> None:
    world, one, other = two({"a": 1, "b": 1})
    other.do(lambda t: t.write(D, replace(("a",), 5)))

    def copy(t: Transaction) -> None:
        t.write(D, replace((), {"a": 1, "b": 2}))
        seen = t.read(D, ("a",))
        assert seen == 1
        t.write(E, replace((), seen))

    landed, d, e = after_somebody(world, other, one.do(copy))
    assert not landed or (isinstance(d, dict) and d["a"] == e)


def test_what_was_written_there_and_back_again_is_a_read_when_it_is_looked_at() -> None:
    world, one, other = two({"a": 1})
    other.do(lambda t: t.write(D, replace(("a",), 5)))

    def copy(t: Transaction) -> None:
        t.write(D, replace(("a",), 2))
        t.write(D, replace(("a",), 1))
        seen = t.read(D, ("a",))
        assert seen == 1
        t.write(E, replace((), seen))

    landed, d, e = after_somebody(world, other, one.do(copy))
    assert not landed or (isinstance(d, dict) and d["a"] == e)


def test_an_array_that_was_written_blindly_as_a_whole_and_then_inside_is_what_was_written() -> None:
    world, one, other = two({"l": (1, 2, 3)})
    other.do(lambda t: t.write(D, replace(("l",), (5, 1, 2, 3))))

    def blindly(t: Transaction) -> None:
        t.write(D, replace((), {"l": (9, 2, 3)}))
        t.write(D, replace(("l", 1), 7))

    landed, d, _ = after_somebody(world, other, one.do(blindly))
    assert not landed or d == {"l": (9, 7, 3)}
