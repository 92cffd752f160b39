"""I7 after a kill at any statement: what comes back shows what follows from what is stored, in every space.

A process writes in several spaces, whose transactions are apart, and derives in one what it reads in the others, also
what has no verdict there yet. After every statement of any of them the files are what a kill would leave. From each of
those states a process comes back: what it shows, what its effect showed last, and what it says in other spaces of what
it reads there, must be right, whatever was lost. That a commit itself is whole or not there is C7.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater import effect
from headwater.engine.observed_form import decode_mirror
from headwater.engine.store.database import Database
from headwater.engine.store.port import LogRow
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import AbsentError
from headwater.protocol.mirrors import Mirror, Mirrored, QueryElsewhere, ReadElsewhere
from headwater.protocol.observations import ForeignRead
from headwater.replica import Document
from headwater.runtime.binding import questions
from headwater.scheduler.persistence import Account
from tests.counts import is_exploring, scaled
from tests.invariants.i07_kit import Site, asked, embedded, ends, opened, site, stories
from tests.invariants.test_i07_elsewhere import HERE, RATES, STOCK, Item, Rates, Stock, View, _change, _shown

Shown = tuple[object, ...]
SHOWN: list[Shown] = []
"""What the effect showed, whichever process it was: also what was taken back, or lost with a process."""


class Window(View, name="i07.Window"):
    @effect
    def keep(self) -> None:
        # Found by its name alone: what was shown is no part of what the effect does.
        shown: list[Shown] = vars(sys.modules["tests.invariants.test_i07_crashes"])["SHOWN"]
        shown.append((self.notes.get(), self.chosen.get(), self.near.get()))


class Kills:
    """What the files were after every statement, each once, with what had been shown by then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self._seen: set[bytes] = set()
        self.states: list[tuple[dict[str, bytes], list[Shown]]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        patch = pytest.MonkeyPatch()
        for name in ("run", "many", "commit"):
            patch.setattr(Database, name, self._watched(getattr(Database, name)))
        try:
            yield
        finally:
            patch.undo()

    def _watched(self, act: Callable[..., None]) -> Callable[..., None]:
        def watched(db: Database, *given: Any) -> None:
            with self._lock:  # Statements of several spaces come one after the other: a kill is a moment of all.
                act(db, *given)
                self._look()

        return watched

    def _look(self) -> None:
        files = [path for path in sorted(self._folder.iterdir()) if path.name.endswith((".space", "-wal"))]
        left = {path.name: path.read_bytes() for path in files}
        digest = blake2b(repr(sorted((name, len(data)) for name, data in left.items())).encode(), digest_size=16)
        for data in left.values():
            digest.update(data)
        if digest.digest() not in self._seen:
            self._seen.add(digest.digest())
            self.states.append((left, list(SHOWN)))


async def _opened(one: Site) -> Any:
    stock, rates = await opened(one, [(STOCK, Stock, "s"), (RATES, Rates, "r")])
    view = Window(items=stock.items, flag=stock.flag, many=stock.many, rate=rates.rate, other=rates.other)
    (made,) = await opened(one, [(HERE, view, "v")])
    return made


async def _expected(one: Site) -> list[object]:
    """What follows from the cells, by hand."""
    stock: Any = one.space(STOCK).piece(Stock, "s")
    rates: Any = one.space(RATES).piece(Rates, "r")
    view: Any = one.space(HERE).piece(Window, "v")
    items: dict[str, Item] = dict(await stock.items.pull())
    flag, rate, other = await stock.flag.pull(), await rates.rate.pull(), await rates.other.pull()
    own, total = await view.own.pull(), sum(item.n for item in items.values())
    priced = own * (rate if flag else 1)
    notes = "".join(items[key].note for key in sorted(items))
    lines = {key: item.n * rate for key, item in items.items()}
    return [notes, priced, priced if total > 5 else other, priced + own, False, lines]


async def _history(seed: int, folder: Path) -> int:
    """Raises where something that came back is wrong. Answers how many states were tried."""
    rng = Random(seed)
    SHOWN.clear()
    alive = folder / "alive"
    kills = Kills(alive)
    async with embedded(alive) as data, site(data) as first:
        await _opened(first)
        with kills.watching():
            for _ in range(6):
                await _change(rng, Window)(first)
                if rng.random() < 0.7:
                    await first.settled()
            await first.settled()
            await first.rt.close()
    states = kills.states
    most = len(states) if is_exploring() else max(4, scaled(40))
    some = sorted(rng.sample(range(len(states)), min(most, len(states))))
    for place in some:
        at = folder / str(place)
        at.mkdir()
        left, shown = states[place]
        for name, content in left.items():
            (at / name).write_bytes(content)
        try:
            await _come_back(at, shown, _change(rng, Window))
        except AssertionError as error:
            error.add_note(f"killed at state {place} of {len(states)}")
            raise
    return len(some)


async def _come_back(at: Path, shown: list[Shown], later: Callable[[Site], Any]) -> None:
    SHOWN[:] = shown
    async with embedded(at) as data:
        async with site(data) as again:
            view = await _opened(again)
            expected = await _expected(again)
            assert await _shown(view) == expected, "it shows what does not follow from what is stored"
            assert (expected[0], expected[2], expected[3]) in SHOWN, "its effect has never shown that"
            await later(again)
            await again.heard(await ends(data, again))
            assert await _shown(view) == await _expected(again), "it is not told of a change"
            assert not again.errors, again.errors_told
        await _check_mirrors(data)
        async with site(data) as clean:
            await _opened(clean)
            assert clean.taken() == set(), "nothing was written since"


async def _check_mirrors(data: Any) -> None:
    """Whoever writes elsewhere finds the piece by everything that it reads there."""
    answer = await asked(data, lambda engine: engine.looked(QueryElsewhere(0, "v")), HERE)
    assert isinstance(answer, ReadElsewhere)
    for name in (STOCK, RATES):
        read = {each.doc: each.seq for each in answer.docs if each.space == name}
        assert read, "it reads both"

        def mirrored(engine: Any) -> dict[Any, int]:
            rows = [engine._store.mirrors_after(1, owner, 0, 9) for owner in engine._store.mirror_owners(1)]
            return {doc: seq for found in rows for row in found for doc, seq in decode_mirror(row.body).docs}

        found = await asked(data, mirrored, name)
        assert found.keys() >= read.keys(), f"{name} does not know of {sorted(read.keys() - found.keys())}"
        assert all(found[doc] <= seq for doc, seq in read.items()), "a write that was missed would not be found"


@pytest.mark.random
def test_what_comes_back_after_a_kill_at_any_statement_is_right(tmp_path: Path) -> None:
    seeds = scaled(20)
    assert stories(_history, tmp_path, range(seeds)) >= 4 * seeds


# ---- planted bugs ----------------------------------------------------------------------------------


def _as_if_confirmed(patch: pytest.MonkeyPatch) -> None:
    """What was read elsewhere without a verdict is told as what is confirmed there."""
    seen = Account._seen_elsewhere

    def told(self: Account) -> tuple[ForeignRead, ...] | None:
        held: list[tuple[Document, list[Any]]] = []
        for spot in self._foreign:
            document: Any = spot.document
            held.append((document, document.layers))
            document.layers = []
        try:
            return seen(self)
        finally:
            for document, layers in reversed(held):
                document.layers = layers

    patch.setattr(Account, "_seen_elsewhere", told)


def _observed_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """What nodes did is on the disk before the commits that it describes."""
    append, commit = SqliteStore.append, SqliteStore.commit
    held: dict[SqliteStore, list[LogRow]] = {}

    def later(self: SqliteStore, row: LogRow) -> None:
        held.setdefault(self, []).append(row)

    def both(self: SqliteStore) -> None:
        rows = held.pop(self, [])
        if rows:
            commit(self)
            self.begin()
            for row in rows:
                append(self, row)
        commit(self)

    patch.setattr(SqliteStore, "append", later)
    patch.setattr(SqliteStore, "commit", both)


def _without_saying_it(patch: pytest.MonkeyPatch) -> None:
    """Mirrors are taken to be there."""
    answered = questions.answered

    async def lost(pieces: Any, channel: Any, question: Any) -> object:
        return Mirrored(0, 0) if isinstance(question, Mirror) else await answered(pieces, channel, question)

    patch.setattr(questions, "answered", lost)


@pytest.mark.parametrize("plant", [_as_if_confirmed, _observed_before_it_is_committed, _without_saying_it])
def test_a_planted_bug_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    monkeypatch.setenv("HEADWATER_RANDOM_SCALE", "1")
    with pytest.raises((AssertionError, ExceptionGroup, AbsentError)):  # or what is on the disk cannot be read at all
        stories(_history, tmp_path, range(12))
