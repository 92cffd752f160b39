"""Random transactions that read what they have just written: what they saw is true right after them, if they landed.

That is more than what admission is asked: a place that was read, and not written again, is after the commit what the
transaction saw there, whether it saw it in the snapshot or through a write of its own.
"""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import PatchError, add, append, increment, replace
from headwater.data.path import Path, starts_with
from headwater.data.value import ABSENT, MaybeValue, Value, equal, lookup
from headwater.replica.transaction import Transaction
from tests.counts import seldom
from tests.unit.replica.kit import Told, World, doc

DOCS = ("d", "e")
PATHS: tuple[Path, ...] = ((), ("a",), ("b",), ("b", "x"), ("b", "y"), ("l",), ("l", 0), ("l", 1))
Seen = list[tuple[DocKey, Path, MaybeValue]]


class Play:
    """Two clients that read and write the same two documents, with whatever is on the way."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World("one", "other")
        self.made: list[tuple[Told, Seen]] = []
        for client in self.world.clients:
            client.watch(*DOCS, "count")
        self.world.settle()
        for id in DOCS:
            self.world.clients[0].write(id, replace((), self.some(())))
        self.world.settle()

    def few(self) -> int:
        """So few numbers that writes often say what is there already."""
        return self.random.randint(0, 2)

    def some(self, path: Path) -> Value:
        inner: Value = {"x": self.few(), "y": self.few()}
        numbers: Value = tuple([self.few() for _ in range(self.random.randint(1, 3))])
        if path == ():
            return {"a": self.few(), "b": inner, "l": numbers}
        return inner if path == ("b",) else numbers if path == ("l",) else self.few()

    def work(self, t: Transaction, seen: Seen) -> None:
        for _ in range(self.random.randint(1, 5)):
            at, path = doc(self.random.choice(DOCS)), self.random.choice(PATHS)
            if self.random.random() < 0.5:
                seen.append((at, path, t.read(at, path)))
                continue
            patch = self.random.choice(
                [replace(path, self.some(path))] * 8 + [increment(("a",), self.few()), append(("l",), (self.few(),))]
            )
            try:
                t.write(at, patch)
            except PatchError:
                continue  # There is no such place now.
            whole = patch.path[:1] if patch.path[:1] == ("l",) else patch.path
            seen[:] = [
                each
                for each in seen
                if each[0] != at or not (starts_with(each[1], whole) or starts_with(whole, each[1]))
            ]
        count = doc("count")
        t.write(count, add((), 1) if t.peek(count) is ABSENT else increment((), 1))

    def step(self) -> None:
        client, chance = self.random.choice(self.world.clients), self.random.random()
        if chance < 0.5:
            seen: Seen = []
            self.made.append((client.do(lambda t: self.work(t, seen), derived=chance < 0.15), seen))
        elif chance < 0.6:
            client.send(1)
        elif chance < 0.7:
            client.hear(1)
        elif chance < 0.75:
            client.session.flush()
        elif chance < 0.8:
            client.again()
        else:
            client.pump()

    def problems(self) -> list[str]:
        for client in self.world.clients:
            client.session.flush()
        self.world.settle()
        found = []
        for told, seen in self.made:
            ((layer, rejection),) = told.calls
            for at, path, saw in seen if rejection is None and layer.seq else ():
                now = lookup(self.world.engine.read(at, at=layer.seq).value, path)
                if not is_same(now, saw):
                    found.append(f"commit {layer.seq} saw {saw!r} at {at.id}{path}, and left {now!r} there")
        for client in self.world.clients:
            found += [
                f"{client.session.key} shows another {id}" for id in DOCS if not is_shown(client.shows(id), self, id)
            ]
        return found


def is_same(one: MaybeValue, other: MaybeValue) -> bool:
    if one is ABSENT or other is ABSENT:
        return one is other
    return equal(one, other)


def is_shown(shown: MaybeValue, play: Play, id: str) -> bool:
    return is_same(shown, play.world.value(id))


@pytest.mark.random
def test_what_a_commit_saw_and_did_not_write_again_is_true_right_after_it() -> None:
    for seed in range(seldom(3_000)):
        play = Play(seed)
        for _ in range(play.random.randint(6, 30)):
            play.step()
        assert not (problems := play.problems()), (seed, problems)
