"""Opening a space brings its head rows up to the end of its log, however the last process ended."""

from __future__ import annotations

from pathlib import Path
from random import Random

import apsw
import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import append, increment, remove, replace
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.port import HeadRow
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import CorruptionError
from tests.counts import scaled
from tests.unit.engine.kit import Writer, open_engine, value_of, write


def abandoned(path: Path, limits: Limits) -> tuple[Engine, SqliteStore]:
    """An engine whose process will end without closing it."""
    store = SqliteStore(path, synchronous="OFF")
    return Engine(store, clock=VirtualClock(), limits=limits), store


def heads(store: SqliteStore, branches: int = 3) -> list[HeadRow]:
    return [row for branch in range(1, branches + 1) for row in store.heads_of_branch(branch, 0, 100)]


@pytest.mark.random
def test_recovered_heads_are_those_of_a_space_that_was_closed(tmp_path: Path) -> None:
    for seed in range(scaled(60)):
        random = Random(seed)
        limits = Limits(
            heads_commits=random.choice((1, 4, 1_000)),
            snapshot_patches=random.choice((1, 3, 100)),
            snapshots_fresh=random.choice((1, 4)),
        )
        paths = [tmp_path / f"{seed}-{name}.space" for name in ("abandoned", "closed")]
        stores = [SqliteStore(path, synchronous="OFF") for path in paths]
        engines = [Engine(store, clock=VirtualClock(), limits=limits) for store in stores]
        writers = [Writer(engine, "ann") for engine in engines]
        for engine in engines:
            engine.fork("b")
        for step in range(random.randrange(1, 30)):
            id, branch = random.choice("abc"), random.choice(("main", "b"))
            absent = value_of(engines[0], id, branch=branch) is ABSENT
            patch = (
                replace((), {"n": 0, "l": []})
                if absent
                else random.choice((increment(("n",)), append(("l",), [step]), remove(())))
            )
            for writer in writers:
                writer.lands(write(id, patch), branch=branch)
        stores[0].close()  # without the engine: nothing is written back
        engines[1].close()
        found = []
        for path in paths:
            store = SqliteStore(path, synchronous="OFF")
            engine = Engine(store, clock=VirtualClock(), limits=limits)
            values: list[MaybeValue] = [value_of(engine, id, branch=b) for id in "abc" for b in ("main", "b")]
            found.append((heads(store), values, engine.last_seq))
            engine.close()
        assert found[0] == found[1], seed


def test_opening_reads_a_bounded_part_of_the_log_however_long_it_is(tmp_path: Path) -> None:
    limits = Limits(heads_commits=16)
    visited = []
    for length in (20, 2_000):
        path = tmp_path / f"{length}.space"
        engine, store = abandoned(path, limits)
        writer = Writer(engine, "ann")
        for _ in range(length):
            writer.lands(write("d", increment(())))
        store.close()
        store = SqliteStore(path, synchronous="OFF")
        engine = Engine(store, clock=VirtualClock(), limits=limits)
        visited.append(store.visited.rows)
        assert value_of(engine, "d") == length
        engine.close()
    assert max(visited) <= min(visited) + limits.heads_commits * 2


def test_a_clean_close_leaves_nothing_to_recover(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = open_engine(path)
    writer = Writer(engine, "ann")
    for _ in range(500):
        writer.lands(write("d", increment(())))
    engine.close()
    store = SqliteStore(path, synchronous="OFF")
    Engine(store, clock=VirtualClock())
    assert store.visited.rows < 40
    store.close()


def test_commits_on_a_branch_that_was_deleted_meanwhile_are_passed_over(tmp_path: Path) -> None:
    engine, store = abandoned(tmp_path / "s.space", Limits())
    writer = Writer(engine, "ann")
    engine.fork("b")
    writer.lands(write("d", replace((), 1)), branch="b")
    engine.delete_branch("b")
    writer.lands(write("d", replace((), 2)))
    store.close()
    engine, store = abandoned(tmp_path / "s.space", Limits())
    assert value_of(engine, "d") == 2
    assert heads(store)[0].branch == 1
    store.close()


def test_a_commit_that_writes_a_document_without_a_name_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine, store = abandoned(path, Limits())
    Writer(engine, "ann").lands(write("d", replace((), 1)))
    store.close()
    connection = apsw.Connection(str(path))
    connection.cursor().execute("DELETE FROM documents")
    connection.close()
    with pytest.raises(CorruptionError, match="commit 1 writes space:d, which is not among the documents"):
        open_engine(path)
