"""What is kept about many layers says the same as the naive definition, which looks at each of them (C3, C4, C9)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

import pytest

from headwater.data.address import Depth
from headwater.data.patch import PatchError, add, append, apply, increment, remove, replace
from headwater.data.path import Path, starts_with
from headwater.data.reader_trie import Spot
from headwater.data.value import ABSENT, MaybeValue, Value, equal
from headwater.protocol.commit import Read
from headwater.protocol.messages import Own, Sync
from headwater.protocol.verdict import RuleRefused
from headwater.replica import number_ranges as spans_module
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.limits import LayerLimits
from headwater.replica.number_ranges import Named, NumberRanges, ranges, united, without
from headwater.replica.pending import Fate, Layer
from headwater.replica.replica import Replica
from tests.counts import scaled, seldom
from tests.unit.replica.histories import DOCS, PLACES, History
from tests.unit.replica.kit import doc, holding

NO = RuleRefused("rule", "no")
LOOKED_AT: tuple[Path, ...] = (*PLACES, ("m",), ("m", "j"), ("l", 1), ("nothing", "there"))


# ---- the naive definition --------------------------------------------------------------------------


def outside_arrays(path: Path) -> Path:
    return path[: next((place for place, step in enumerate(path) if isinstance(step, int)), len(path))]


def overlaps(layer: Layer, document: Document, path: Path) -> bool:
    whole = outside_arrays(path)
    return any(starts_with(each, whole) or starts_with(whole, each) for each in layer.written(document.key))


def folded(document: Document) -> tuple[MaybeValue, list[Layer]]:
    """What is shown, and the layers that show something: one that does not fit shows nothing.

    Except under one that says all of the document, where it makes no difference.
    """
    assert document.confirmed is not NOT_HERE
    value, showing = document.confirmed, []
    for layer in document.layers:
        patches = [patch for op in layer.commit.operations if op.doc == document.key for patch in op.patches]
        after = value
        try:
            for each in patches:
                after = apply(after, each)[0]
        except PatchError:
            continue
        value = after
        if [(each.kind, each.path) for each in patches] == [("add", ())]:
            showing = [other for other in document.layers if other.local_seq < layer.local_seq]
        showing.append(layer)
    return value, showing


def numbers(spans: tuple[tuple[int, int], ...]) -> set[int]:
    return {number for first, last in spans for number in range(first, last + 1)}


def differences(replica: Replica, *, exact: bool) -> list[str]:
    """Where what the replica keeps differs from the definition. Not exact: it may name more of what is shown."""
    found = []
    live = set(replica.pending.live_layers)
    if replica.pending.first_live() != min(live, default=None):
        found.append(f"the oldest is {replica.pending.first_live()}, alive are {live}")
    for document in replica.documents.held():
        if [each.local_seq for each in document.layers] != sorted(each.local_seq for each in document.layers):
            found.append(f"{document}: {document.layers} are not in order")
        if document.confirmed is NOT_HERE or document.value is NOT_HERE or not document.layers:
            continue
        value, showing = folded(document)
        if not equal(value, document.value):
            found.append(f"{document} is {document.value!r}, with its layers it is {value!r}")
        for path in LOOKED_AT:
            under = replica.pending.under(document, path, replica.next_local_seq)
            sent = [each for each in showing if each.fate is not Fate.LOCAL]
            right = {each.local_seq for each in sent if overlaps(each, document, path)}
            named = numbers(under.spans)
            hidden = {each.local_seq for each in document.layers if each not in showing}
            if exact and named != right:
                found.append(f"{document}{path} names {named}, not {right}")
            if not right <= named <= live - hidden:
                found.append(f"{document}{path} names {named}: it stands on {right}, shown are {live - hidden}")
            if list(under.spans) != united([under.spans]):
                found.append(f"{document}{path}: {under.spans} are not in order, or meet")
            is_repeated, below = replica.pending.repeated(document, path, replica.next_local_seq)
            falling = [layer for layer in showing if layer.fate is not Fate.ACCEPTED]
            written = {outside_arrays(each) for layer in falling for each in layer.written(document.key)}
            above = any(starts_with(outside_arrays(path), place) for place in written)
            right_below = set() if above else {place for place in written if starts_with(place, outside_arrays(path))}
            if exact and (is_repeated, set(below)) != (above, right_below):
                found.append(f"{document}{path} repeats {is_repeated, below}, not {above, right_below}")
    return found


@contextmanager
def few_ranges() -> Iterator[None]:
    """Ranges are joined as soon as there are three."""
    with patch.object(spans_module, "LAYER_LIMITS", LayerLimits(separate_spans=2, exact_spans=1)):
        yield


# ---- random histories ------------------------------------------------------------------------------


class Deep(History):
    """More is written than is heard, so that layers pile up; some of it as a whole, with what a node reads."""

    def step(self) -> None:
        client = self.random.choice(self.clients)
        for _ in range(self.random.randrange(4)):
            self.transact(client)
            document = client.replica.documents.of(doc(self.random.choice(DOCS)))
            if self.random.random() < 0.3 and document.value is not NOT_HERE and document.value is not ABSENT:
                number = self.random.randrange(4)
                whole: Value = {"x": number, "y": 0, "l": (number,), "m": {"k": 0}}
                value = whole if self.random.random() < 0.8 else number
                client.replica.write_whole(document, value, ())
        super().step()


@pytest.mark.random
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "joined"])
def test_layers_are_named_and_shown_as_the_definition_says_after_every_step(exact: bool) -> None:
    for seed in range(seldom(400)):
        if exact:
            play(seed, exact=True)
        else:
            with few_ranges():
                play(seed, exact=False)


def play(seed: int, *, exact: bool) -> None:
    history = Deep(seed, clients=2)
    for step in range(40):
        history.step()
        assert history.found == [], (seed, step)
        for client in history.clients:
            assert differences(client.replica, exact=exact) == [], (seed, step, client.session.key)
    history.finish()
    assert history.problems() == [], seed


@pytest.mark.random
def test_what_stays_here_is_no_name_and_what_it_read_is() -> None:
    """The same with layers that stay here, which no history of a hub without access control has."""
    for seed in range(scaled(400)):
        random = Random(seed)
        replica = Replica()
        keys = [doc(id) for id in DOCS]
        for key in keys:
            replica.confirmed.put(key, {"x": 0, "m": {}, "l": ()}, 1)
            replica.documents.of(key).value = replica.confirmed.value(key)
        replica.on_layer = lambda layer, r=replica, d=random: keep_or_send(r, layer, d)  # type: ignore[misc]
        for _ in range(30):
            some_step(replica, random)
            assert differences(replica, exact=True) == [], seed


def keep_or_send(replica: Replica, layer: Layer, random: Random) -> None:
    if random.random() < 0.4:
        replica.pending.keep_here(layer)


def some_step(replica: Replica, random: Random) -> None:
    key = doc(random.choice(DOCS))
    number = random.randrange(3)
    replica.may_write = random.random() < 0.5
    chosen = random.random()
    if chosen < 0.3:
        replica.write_whole(replica.documents.of(key), {"x": number, "m": {}, "l": ()}, ())
    elif chosen < 0.8:
        transaction = replica.begin()
        transaction.read(key, random.choice(LOOKED_AT))
        patches = [add(("x",), number), add(("m", "k"), number), append(("l",), [number]), remove(("m",))]
        patches += [increment(("x",)), replace((), {"x": 0, "m": {}, "l": ()})]
        try:
            transaction.write(key, random.choice(patches))
        except PatchError:
            replica.drop(transaction)
        else:
            replica.commit(transaction)
    elif chosen < 0.9:
        live = replica.pending.live()
        if live:
            replica.rejected(random.choice(live).local_seq, NO)
    else:
        replica.revert_local()


# ---- ranges ----------------------------------------------------------------------------------------


@pytest.mark.random
def test_ranges_hold_what_was_put_into_them() -> None:
    for seed in range(scaled(2_000)):
        random = Random(seed)
        given = sorted(random.sample(range(1, 60), random.randrange(1, 40)))
        holes = [number for number in range(1, 60) if number not in given and random.random() < 0.3]
        low, high = random.randrange(60), random.randrange(1, 61)
        exact = NumberRanges()
        for number in given:
            exact.add(number, holes)
        with few_ranges():
            joined = NumberRanges()
            for number in given:
                joined.add(number, holes)
        right = {number for number in given if low <= number < high}
        assert numbers(tuple(exact.within(low, high))) == right, seed
        assert exact.is_any_within(low, high) == bool(right), seed
        more = numbers(tuple(joined.within(low, high)))
        assert right <= more, seed
        assert not more & set(holes), seed
        cut = without(joined.within(low, high), sorted(random.sample(given, len(given) // 2)))
        assert list(ranges(sorted(numbers(tuple(cut))))) == united([cut]), seed
        other = sorted(random.sample(range(1, 60), 10))
        both = united([ranges(given), ranges(other)])
        assert tuple(both) == ranges(sorted({*given, *other})), seed
        named = Named([ranges(given), ranges(other), ranges(given)])
        assert list(named) == sorted({*given, *other}), seed
        assert [number in named for number in range(61)] == [number in {*given, *other} for number in range(61)]
        assert named.first == min(*given, *other)
        assert named.one_of(holes) == next((number for number in holes if number in named), None)


# ---- commits that are made later than their layers ---------------------------------------------------


def test_whole_write_names_the_layers_of_its_time_after_they_are_confirmed() -> None:
    """C3: its basis is the seq of its time, at which a layer that has become confirmed state is not in the log."""
    replica = holding(1, x=0, d=0)
    transaction = replica.begin()
    transaction.write(doc("x"), replace((), 1))
    under = replica.commit(transaction)
    assert isinstance(under, Layer)
    spot = Spot(replica.documents.of(doc("x")), (), Depth.DEEP)
    layer = replica.write_whole(replica.documents.of(doc("d")), 5, [spot])
    assert layer is not None
    replica.pending.accepted(under, 2)
    replica.integrate(Sync(2, (Own(doc("x"), 2, under.local_seq),)))
    assert layer.commit.reads == (Read(doc("x"), (), Depth.DEEP, 1, ((under.local_seq, under.local_seq),)),)


def test_work_to_name_the_layers_under_many_places_of_a_wide_write_grows_with_their_number() -> None:
    def steps(width: int) -> int:
        replica = holding(d={})
        transaction = replica.begin()
        for number in range(width):
            transaction.write(doc("d"), add((f"k{number}",), number))
        layer = replica.commit(transaction)
        assert isinstance(layer, Layer)
        document, count = replica.documents.of(doc("d")), 0

        def heard(_: object, event: str, __: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(heard)
        try:
            found = [replica.pending.under(document, (f"k{number}",), layer.local_seq + 1) for number in range(width)]
        finally:
            sys.setprofile(None)
        assert {each.spans for each in found} == {((layer.local_seq, layer.local_seq),)}
        return count

    assert steps(400) < 4.4 * steps(100)
