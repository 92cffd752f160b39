"""I7 after a kill at any statement: what comes back shows what follows from what is stored, in every space.

A process writes in several spaces, whose transactions are apart, and derives in one what it reads in the others, also
what has no verdict there yet. After every statement of any of them the files are what a kill would leave. From each of
those states a process comes back: what it shows, what its effect showed last, and what it shows after writes in other
spaces that it was away for, must be right, whatever was lost. That a commit itself is whole or not there is C7.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from headwater import effect
from tests.counts import is_exploring, scaled
from tests.invariants.i07_kit import Site, embedded, ends, killed, opened, site, stories, written
from tests.invariants.test_i07_elsewhere import HERE, RATES, STOCK, Item, Rates, Stock, View, _shown, random_change

Check = Callable[[Path], Awaitable[None]]
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
        self._is_on = False
        self._lock = threading.Lock()
        self._seen: set[bytes] = set()
        self.states: list[tuple[dict[str, bytes], list[Shown]]] = []

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Hear of the statements of all connections that are opened inside."""
        apsw.connection_hooks.append(self._connect)
        try:
            yield
        finally:
            apsw.connection_hooks.remove(self._connect)

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    def _connect(self, connection: apsw.Connection) -> None:
        if Path(connection.filename).parent == self._folder:
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._look)

    def _look(self, _: object) -> None:
        with self._lock:
            left = self._left() if self._is_on else None
            # If they differ, another space is written meanwhile: it is looked again at the end of that statement.
            if left is None or left != self._left():
                return
            digest = blake2b(repr(sorted((name, len(data)) for name, data in left.items())).encode(), digest_size=16)
            for data in left.values():
                digest.update(data)
            if digest.digest() not in self._seen:
                self._seen.add(digest.digest())
                self.states.append((left, list(SHOWN)))

    def _left(self) -> dict[str, bytes] | None:
        files = [path for path in sorted(self._folder.iterdir()) if path.name.endswith((".space", "-wal"))]
        try:
            return {path.name: path.read_bytes() for path in files}
        except FileNotFoundError:
            return None  # A space was closed meanwhile.


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


async def history(seed: int, folder: Path, check: Check) -> int:
    """Raises where something that came back is wrong. Answers how many states were tried.

    `check` is given a copy of the files of each process that came back and was closed.
    """
    rng = Random(seed)
    SHOWN.clear()
    alive = folder / "alive"
    kills = Kills(alive)
    with kills.connected():
        async with embedded(alive) as data, site(data) as first:
            await _opened(first)
            with kills.watching():
                for _ in range(6):
                    await random_change(rng, Window)(first)
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
            await _come_back(at, shown, random_change(rng, Window), check)
        except AssertionError as error:
            error.add_note(f"killed at state {place} of {len(states)}")
            raise
    return len(some)


async def _come_back(at: Path, shown: list[Shown], later: Callable[[Site], Any], check: Check) -> None:
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
        await check(killed(at, at.parent / f"{at.name} written"))
        async with site(data) as clean:
            await _opened(clean)
            assert clean.taken() == set(), "nothing was written since"


async def check_writes_elsewhere(at: Path) -> None:
    """What is written in the other spaces while the piece is away is in what it shows."""
    async with embedded(at) as data:
        await written(data, _write_elsewhere)
        async with site(data) as again:
            view = await _opened(again)
            assert await _shown(view) == await _expected(again), "it missed a write in another space"
            ran = again.taken()
            assert {f"{HERE}/v:{name}" for name in ("notes", "priced", "chosen")} <= ran, f"only {sorted(ran)} ran"


async def _write_elsewhere(one: Site) -> None:
    stock: Any = one.space(STOCK).piece(Stock, "s")
    rates: Any = one.space(RATES).piece(Rates, "r")
    flag = await stock.flag.pull()

    def act() -> None:
        stock.items.key("k0").set(Item(n=9, note="written"))
        stock.flag.set(not flag)

    await one.space(STOCK).transact(act)
    await one.space(RATES).transact(lambda: (rates.rate.set(11), rates.other.set(13)))


@pytest.mark.random
def test_what_comes_back_after_a_kill_at_any_statement_is_right(tmp_path: Path) -> None:
    seeds = scaled(20)
    assert stories(partial(history, check=check_writes_elsewhere), tmp_path, range(seeds)) >= 4 * seeds
