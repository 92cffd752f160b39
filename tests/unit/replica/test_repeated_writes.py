"""What a transaction wrote is there if it landed, also where a layer under it had said the same and fell.

A write that repeats what is shown changes nothing that can be seen. But what is shown may stand on a pending commit
of the same session; if that one is rejected, the repetition is all that is left, or must fall and be made again.
"""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.patch import (
    Patch,
    PatchError,
    add,
    append,
    increment,
    remove,
    remove_value,
    replace,
    splice,
)
from headwater.data.path import Path
from headwater.data.value import MaybeValue, equal, lookup
from headwater.replica.transaction import Transaction
from tests.counts import scaled
from tests.unit.replica.kit import Client, Told, Work, World, bump, doc, putting, together

D = doc("d")
BEFORE = {"x": 0, "m": {"k": 0}, "l": [0]}


def two() -> tuple[World, Client]:
    """A world in which whatever reads z next will be rejected."""
    world = World("a", "b")
    a, b = world.clients
    for client in (a, b):
        client.watch("d", "z")
    world.settle()
    a.do(together(putting("d", replace((), BEFORE)), putting("z", replace((), {"n": 0}))))
    world.settle()
    b.do(bump("z"))
    b.send()
    return world, a


def doomed(*patches: Patch) -> Work:
    def work(transaction: Transaction) -> None:
        transaction.read(doc("z"), ("n",))
        for patch in patches:
            transaction.write(D, patch)

    return work


def put_there(transaction: Transaction, written: list[Path]) -> dict[Path, MaybeValue]:
    return {path: lookup(transaction.peek(D), path) for path in written}


def missing(world: World, wanted: dict[Path, MaybeValue]) -> list[str]:
    found = world.value("d")
    return [
        f"{path}: {lookup(found, path)!r}, not {value!r}"
        for path, value in wanted.items()
        if repr(lookup(found, path)) != repr(value) and not equal(lookup(found, path), value)
    ]


@pytest.mark.parametrize(
    ("under", "over"),
    [
        (replace(("x",), 5), replace(("x",), 5)),
        (add(("new",), 1), add(("new",), 1)),
        (add(("m", "j"), 1), replace(("m",), {"k": 0, "j": 1})),
        (replace(("l",), [1, 2]), replace(("l",), [1, 2])),
        (append(("l",), [1]), replace(("l",), [0, 1])),
        (increment(("x",), 5), replace(("x",), 5)),
        (replace((), {"y": 1}), replace((), {"y": 1})),
        (add(("new",), 1), replace((), {**BEFORE, "new": 1})),
        (remove(("m", "k")), replace(("m",), {})),
        (remove(("m",)), replace((), {"x": 0, "l": [0]})),
    ],
    ids=lambda patch: f"{patch.kind}{patch.path}",
)
def test_a_repeated_write_outlives_the_layer_that_had_said_it_or_falls_with_it(under: Patch, over: Patch) -> None:
    world, a = two()
    rejected = a.do(doomed(under))
    transaction = a.replica.begin()
    transaction.write(D, over)
    wanted = put_there(transaction, [over.path])
    told = Told()
    a.replica.commit(transaction, told)
    world.settle()
    assert not rejected.landed
    assert len(told.calls) == 1
    if told.landed:
        assert missing(world, wanted) == []
    assert a.shows("d") == world.value("d")
    assert a.mirror.differences() == []


def test_plain_write_of_an_object_over_an_undecided_one_keeps_keys_that_its_writer_did_not_see() -> None:
    world, a = two()
    b = world.clients[1]
    a.do(putting("d", remove(("m",))))
    a.do(putting("d", add(("m",), {"k": 1})))
    a.send()
    b.hear()
    b.do(putting("d", add(("m", "q"), 9)))
    b.send()
    transaction = a.replica.begin()
    transaction.reads_back = False
    transaction.write(D, replace(("m",), {"k": 2}))
    told = Told()
    a.replica.commit(transaction, told)
    world.settle()
    assert not told.landed
    assert lookup(world.value("d"), ("m",)) == {"k": 1, "q": 9}
    assert a.shows("d") == world.value("d")


@pytest.mark.random
def test_whatever_was_written_plainly_is_there_if_it_landed() -> None:
    for seed in range(scaled(1_500)):
        random = Random(seed)
        world, a = two()
        a.do(lambda t, r=random: some_writes(t, r, plain=False))  # type: ignore[misc]
        transaction = a.replica.begin()
        written = some_writes(transaction, random, plain=True)
        wanted = put_there(transaction, written)
        told = Told()
        a.replica.commit(transaction, told)
        world.settle()
        if told.landed:
            assert missing(world, wanted) == [], seed
        assert a.shows("d") == world.value("d"), seed
        assert a.mirror.differences() == [], seed


def some_writes(transaction: Transaction, random: Random, *, plain: bool) -> list[Path]:
    """One or two patches that fit; those of the first transaction stand on a read that will be rejected."""
    if not plain:
        transaction.read(doc("z"), ("n",))
    written = []
    for _ in range(random.randrange(1, 3)):
        patch = some_patch(random, plain)
        try:
            transaction.write(D, patch)
        except PatchError:
            continue
        written.append(patch.path)
    return written


def some_patch(random: Random, plain: bool) -> Patch:
    number = random.randrange(3)
    patches = [
        replace((), {"x": number, "m": {"k": random.randrange(3)}, "l": [random.randrange(2)]}),
        replace((), {"x": 0}),
        add(("x",), random.choice((0, {"k": number}, [1], [1, 2]))),
        add(("m",), {"k": number, "j": random.randrange(2)}),
        add(("m", "k"), number),
        remove(("m", "k")),
        remove(("x",)),
        replace(("l",), [random.randrange(2) for _ in range(number)]),
        replace(("l", 0), number),
    ]
    if not plain:
        patches += [append(("l",), [9]), increment(("m", "k")), remove_value(("l",), 1), splice(("l",), 0, 1, [7])]
    return random.choice(patches)
