"""Costs stay flat as history grows, counted in rows and bytes and never in seconds.

One document of about 1 KiB gets 10, 1,000 and 10,000 one-leaf patches. What the store visits for a commit, an
admission of a read with an old basis and a current read stays within 1.5 times what it is at 10 patches, and a
read in the past within 4 times: with everything in memory, and in an engine that has just opened the file.
Each figure is a mean over two periods of snapshots and of stored indexes: what a cold engine folds depends on
how far the last of them is away, and on nothing else.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import replace
from headwater.engine import DEFAULT_LIMITS, Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit
from tests.unit.engine.kit import doc, read, seq_of, write

SIZES = (10, 1_000, 10_000)
SAMPLES = 2 * max(DEFAULT_LIMITS.snapshot_patches, DEFAULT_LIMITS.marks_patches)
KEYS = 16
FLAT, PAST = 1.5, 4.0

Cost = dict[str, float]


class Space:
    """A space with one long document, whose store counts what it visits."""

    def __init__(self, path: Path, patches: int, *, sent: int = 0) -> None:
        self.path = path
        self.patches = patches
        self.sent = sent
        self.random = Random(patches)
        self.readers = 0
        self.open()

    def fill(self) -> None:
        self.engine.open_session("s")
        self.engine.open_session("reader")
        start = {f"k{n}": "x" * 48 for n in range(KEYS)} | {"old": "untouched"}
        self.engine.submit("s", self.commit_of(write("d", replace((), start))))
        batch = [("s", (self.next_patch(),)) for _ in range(self.patches)]
        for first in range(0, len(batch), 500):
            self.engine.submit_group(batch[first : first + 500])
        assert self.engine.last_seq == self.patches + 1

    def copy_to(self, path: Path) -> Space:
        """Copy a space that is closed, and open the copy with everything in memory that a commit and a read need."""
        copied = Space(Path(shutil.copy(self.path, path)), self.patches, sent=self.sent)
        copied.commit()
        copied.read_now()
        return copied

    def open(self) -> None:
        self.store = SqliteStore(self.path, synchronous="OFF")
        self.engine = Engine(self.store, clock=VirtualClock())

    def reopen(self) -> None:
        self.engine.close()
        self.open()

    def commit_of(self, *operations: object) -> Commit:
        self.sent += 1
        return Commit(self.sent, operations)  # type: ignore[arg-type]

    def next_patch(self) -> Commit:
        place = (f"k{self.sent % KEYS}",)
        return self.commit_of(write("d", replace(place, f"{self.sent:048}")))

    # what is measured

    def commit(self) -> None:
        self.engine.submit("s", self.next_patch())

    def admit_an_old_basis(self) -> None:
        """A read of what nobody touched, from the beginning of history."""
        self.readers += 1
        verdict = self.engine.submit("reader", Commit(self.readers, reads=(read("d", ("old",), seq=1),)))[0]
        assert seq_of(verdict)

    def read_now(self) -> None:
        assert self.engine.read(doc("d")).value

    def read_the_past(self) -> None:
        at = self.random.randrange(1, self.engine.last_seq)
        assert self.engine.read(doc("d"), at=at).value

    def cost(self, action: Callable[[], None], *, cold: bool) -> Cost:
        rows = bytes_ = 0
        for _ in range(SAMPLES):
            if cold:
                self.reopen()
            visited = self.store.visited
            before = (visited.rows, visited.bytes)
            action()
            rows += visited.rows - before[0]
            bytes_ += visited.bytes - before[1]
            if action != self.commit:
                self.commit()  # so that the samples fall on every distance from the last snapshot
        return {"rows": rows / SAMPLES, "bytes": bytes_ / SAMPLES}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Space]:
    folder = tmp_path_factory.mktemp("flat")
    made = {size: Space(folder / f"{size}.space", size) for size in SIZES}
    for space in made.values():
        space.fill()
        space.engine.close()
    return made


@pytest.fixture
def spaces(filled: dict[int, Space], tmp_path: Path) -> Iterator[dict[int, Space]]:
    copies = {size: space.copy_to(tmp_path / f"{size}.space") for size, space in filled.items()}
    yield copies
    for space in copies.values():
        space.engine.close()


def costs(spaces: dict[int, Space], action: str, cold: bool) -> dict[int, Cost]:
    return {size: space.cost(getattr(space, action), cold=cold) for size, space in spaces.items()}


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize(
    ("action", "bound"),
    [
        ("commit", FLAT),
        ("admit_an_old_basis", FLAT),
        ("read_now", FLAT),
        ("read_the_past", PAST),
    ],
)
def test_what_is_visited_does_not_grow_with_history(
    spaces: dict[int, Space], action: str, bound: float, cold: bool
) -> None:
    found = costs(spaces, action, cold)
    least = found[SIZES[0]]
    for size in SIZES[1:]:
        for unit in ("rows", "bytes"):
            # One row or a hundred bytes more than nothing is not growth.
            slack = 1 if unit == "rows" else 100
            allowed = bound * least[unit] + slack
            assert found[size][unit] <= allowed, f"{action}, {unit} at {size} patches: {found}"
    periods = DEFAULT_LIMITS.marks_patches + 4 * DEFAULT_LIMITS.snapshot_patches
    assert all(cost["rows"] <= periods for cost in found.values()), found


def test_a_warm_read_visits_nothing_at_all(spaces: dict[int, Space]) -> None:
    for space in spaces.values():
        space.read_now()
        assert space.cost(space.read_now, cold=False) == {"rows": 0, "bytes": 0}


def test_a_fork_visits_as_little_in_a_long_history_as_in_a_short_one(spaces: dict[int, Space]) -> None:
    visited = []
    for size, space in spaces.items():
        counters = space.store.visited
        before = (counters.statements, counters.rows, counters.bytes)
        space.engine.fork(f"b{size}")
        after = (counters.statements, counters.rows, counters.bytes)
        visited.append([now - then for now, then in zip(after, before, strict=True)])
    assert visited[0] == visited[1] == visited[2]


def test_a_replay_is_found_without_walking_the_history(spaces: dict[int, Space]) -> None:
    for space in spaces.values():
        known = Commit(2, (write("d", replace(("k1",), f"{1:048}")),))
        space.reopen()
        rows = space.store.visited.rows
        (verdict,) = space.engine.submit("s", known)
        assert seq_of(verdict) == 2
        assert space.store.visited.rows - rows <= 5
