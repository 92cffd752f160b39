"""Random writes through handles against plain Python: values, and which readers run.

Every reader looks at one place in its own way. After each step it must have seen what is there now, and it must have
run exactly as often as what it sees differed; and once more at most when a default was stored, or is one again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import pytest

from headwater.cells.model import Json, Model
from headwater.data.value import ABSENT
from headwater.errors import AbsentError
from tests.counts import scaled
from tests.unit.cells.handle_kit import Hand


class Inner(Model):
    count: int = 0
    tags: tuple[str, ...] = ()


class Item(Model):
    title: str
    inner: Inner = Inner()
    marks: frozenset[str] = frozenset()


KEYS = ("a", "b", "c")
Plain = dict[str, Any]


def plain(items: Any) -> Plain:
    return {
        key: {
            "title": item.title,
            "inner": {"count": item.inner.count, "tags": item.inner.tags},
            "marks": item.marks,
        }
        for key, item in items.items()
    }


def fresh(title: str) -> Plain:
    return {"title": title, "inner": {"count": 0, "tags": ()}, "marks": frozenset()}


def made(of: Plain) -> Item:
    return Item(title=of["title"], inner=Inner(count=of["inner"]["count"], tags=of["inner"]["tags"]), marks=of["marks"])


class Play:
    """One history: handles on one side, a dictionary on the other."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.hand = Hand()
        self.default: Plain = random.choice([{}, {"a": fresh("default")}])
        self.cell = self.hand.cell(
            Mapping[str, Item],
            default={key: made(item) for key, item in self.default.items()},
        )
        self.raw = self.hand.cell(Mapping[str, Json], id=self.cell.document.key.id)
        self.olds = 0  # how often something was written as an older program stores it
        self.state: Plain | None = None  # None: nothing was written

    @property
    def shown(self) -> Plain:
        return self.default if self.state is None else self.state

    def keys(self) -> object:
        """What a reader may hear of although it sees the same: that something is stored,
        and, where a default may come back, which keys are."""
        return self.state is not None and (not self.default or sorted(self.state))

    def step(self) -> None:
        key = self.random.choice(KEYS)
        item = self.cell.key(key)
        word = self.random.choice("xyz")
        acts: list[Callable[[], None]] = [
            lambda: self.whole(key, word),
            lambda: self.part(key, lambda: item.at(lambda c: c.title).set(word), lambda s: s.update(title=word)),
            lambda: self.part(key, lambda: item.at(lambda c: c.inner.count).increment(2), count_up),
            lambda: self.part(key, lambda: item.at(lambda c: c.inner.tags).push(word, keep=3), tag(word)),
            lambda: self.part(key, lambda: item.at(lambda c: c.marks).add(word), mark(word)),
            lambda: self.unmark(key, word),
            lambda: self.part(key, lambda: item.update(lambda i: Item(title=i.title + word)), retitle(word)),
            lambda: self.old(key, word),
            lambda: self.gone(key),
            self.nothing,
        ]
        self.random.choice(acts)()

    def begin(self) -> Plain:
        """What a write below the cell stands on: the default becomes stored."""
        if self.state is None:
            self.state = copy.deepcopy(self.default)
        return self.state

    def whole(self, key: str, word: str) -> None:
        self.cell.key(key).set(Item(title=word))
        self.begin()[key] = fresh(word)

    def old(self, key: str, word: str) -> None:
        """As a program stores it that knows no field but the title."""
        if self.state is not None:
            self.olds += 1
            self.raw.key(key).set({"title": word})
            self.begin()[key] = fresh(word)

    def part(self, key: str, act: Callable[[], None], change: Callable[[Plain], object]) -> None:
        if key in self.shown:
            act()
            change(self.begin()[key])
        else:
            with pytest.raises(AbsentError):
                act()

    def unmark(self, key: str, word: str) -> None:
        act = partial(self.cell.key(key).at(lambda c: c.marks).discard, word)
        if self.state is None and key in self.shown and not self.shown[key]["marks"]:
            act()  # There is nothing to take it out of, and nothing is stored for that.
        else:
            self.part(key, act, unmark(word))

    def gone(self, key: str) -> None:
        there = key in self.shown
        self.cell.key(key).delete()
        if there:
            del self.begin()[key]

    def nothing(self) -> None:
        self.cell.delete()
        self.state = copy.deepcopy(self.default)


def count_up(item: Plain) -> None:
    item["inner"]["count"] += 2


def tag(word: str) -> Callable[[Plain], None]:
    def change(item: Plain) -> None:
        item["inner"]["tags"] = (*item["inner"]["tags"], word)[-3:]

    return change


def mark(word: str) -> Callable[[Plain], None]:
    return lambda item: item.update(marks=item["marks"] | {word})


def unmark(word: str) -> Callable[[Plain], None]:
    return lambda item: item.update(marks=item["marks"] - {word})


def retitle(word: str) -> Callable[[Plain], None]:
    return lambda item: item.update(fresh(item["title"] + word))


def readers(cell: Any) -> dict[str, tuple[Callable[[], Any], Callable[[Plain], Any]]]:
    """How it is looked at, and what should be seen there."""
    looks: dict[str, tuple[Callable[[], Any], Callable[[Plain], Any]]] = {
        "all": (lambda: plain(cell.get()), lambda s: s),
        "keys": (lambda: sorted(cell.view()), sorted),
        "length": (lambda: len(cell.view()), len),
    }
    for key in KEYS:
        looks.update(readers_of(cell, key))
    return looks


def readers_of(cell: Any, key: str) -> dict[str, tuple[Callable[[], Any], Callable[[Plain], Any]]]:
    item = cell.key(key)

    def if_there(pick: Callable[[Plain], Any]) -> Callable[[Plain], Any]:
        return lambda state: pick(state[key]) if key in state else None

    return {
        f"{key} exists": (item.exists, lambda state: key in state),
        f"{key} title": (lambda: item.at(lambda c: c.title).get(None), if_there(lambda i: i["title"])),
        f"{key} count": (lambda: item.at(lambda c: c.inner.count).get(None), if_there(lambda i: i["inner"]["count"])),
        f"{key} view of tags": (
            lambda: tuple(cell.view()[key].inner.tags) if key in cell.view() else None,
            if_there(lambda i: i["inner"]["tags"]),
        ),
    }


@pytest.mark.random
@pytest.mark.parametrize("seed", range(scaled(4_000)))
def test_handles_do_what_a_dictionary_does_and_wake_whom_it_concerns(seed: int) -> None:
    random = Random(seed)
    play = Play(random)
    looks = readers(play.cell)
    seen = {name: play.hand.seen(look) for name, (look, _) in looks.items()}
    last = {name: copy.deepcopy(expect(play.shown)) for name, (_, expect) in looks.items()}
    reasons = dict.fromkeys(looks, 1)  # to run: the first time, and whenever what is seen differs
    for _ in range(25):
        keys = play.keys()
        play.step()
        for name, (_, expect) in looks.items():
            now = copy.deepcopy(expect(play.shown))
            reasons[name] += now != last[name] or keys != play.keys()
            last[name] = now
        if random.random() < 0.7:
            play.hand.settle()
            for name in looks:
                assert seen[name][-1] == last[name], name
                assert play.olds or len(seen[name]) <= reasons[name], name
    play.hand.settle()
    assert plain(play.cell.get()) == play.shown
    assert (play.hand.stored(play.cell) is ABSENT) is (play.state is None)
    assert not play.hand.errors
