"""Opening a space brings its head rows up to the end of its log, however the last process ended."""

from __future__ import annotations

from pathlib import Path
from random import Random

import apsw
import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import append, increment, remove, replace
from headwater.data.value import ABSENT, MaybeValue, equal
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.port import HEADS_SEQ, HeadRow
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_file
from headwater.errors import CorruptionError, StorageError
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Accepted
from tests.counts import scaled
from tests.unit.engine.faults import faulty
from tests.unit.engine.kit import Writer, conflict_of, open_engine, read, value_of, write


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


def test_a_long_tail_of_the_log_is_followed_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine, store = abandoned(path, Limits(heads_commits=100_000))
    writer = Writer(engine, "ann")
    for number in range(700):  # more rows than are read at once
        writer.lands(write(f"d{number % 7}", append((), [number])))
    store.close()
    engine, store = abandoned(path, Limits())
    assert [value_of(engine, f"d{n}") for n in range(7)] == [tuple(range(n, 700, 7)) for n in range(7)]
    assert store.meta(HEADS_SEQ) == "700"
    store.close()


@pytest.mark.parametrize("point", ["begin", "put_heads", "put_meta", "commit"])
@pytest.mark.parametrize("after", [False, True])
def test_an_opening_that_fails_while_it_recovers_changes_nothing_for_the_next(
    tmp_path: Path, point: str, after: bool
) -> None:
    path = tmp_path / "s.space"
    engine, inner = abandoned(path, Limits())
    writer = Writer(engine, "ann")
    for number in range(5):
        writer.lands(write("d", append((), [number])))
    inner.close()
    inner = SqliteStore(path, synchronous="OFF")
    store, faults = faulty(inner)
    faults.fail_on, faults.after = point, after
    with pytest.raises(StorageError, match="planted"):
        Engine(store, clock=VirtualClock())
    inner.close()
    engine = open_engine(path)
    assert value_of(engine, "d") == (0, 1, 2, 3, 4)
    engine.close()
    assert verify_file(path).ok


class TestWritingBack:
    """Heads are written back now and then, inside the transaction of some accepted frame, and never otherwise."""

    @staticmethod
    def space(path: Path, limits: Limits) -> tuple[Engine, SqliteStore, Writer]:
        engine, store = abandoned(path, limits)
        return engine, store, Writer(engine, "ann")

    def test_it_happens_after_so_many_commits(self, tmp_path: Path) -> None:
        _, store, ann = self.space(tmp_path / "s.space", Limits(heads_commits=4))
        seen = []
        for number in range(12):
            ann.lands(write("d", append((), [number])))
            seen.append(int(store.meta(HEADS_SEQ) or 0))
        assert seen == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12]
        store.close()

    def test_it_happens_earlier_when_what_changed_would_fill_half_the_cache(self, tmp_path: Path) -> None:
        limits = Limits(heads_commits=10_000, cache_bytes=100_000)
        engine, store, ann = self.space(tmp_path / "s.space", limits)
        for number in range(100):
            ann.lands(write(f"d{number}", replace((), "x" * 1_000)))
            assert engine.bytes_held <= limits.cache_bytes
        assert int(store.meta(HEADS_SEQ) or 0) > 80
        store.close()

    def test_a_group_that_accepts_nothing_writes_nothing_back(self, tmp_path: Path) -> None:
        """It is rolled back; a head that was taken for written would be read from a row that is not there."""
        keys = [f"k{n}" for n in range(200)]
        limits = Limits(heads_commits=10_000, cache_bytes=60_000)
        engine, store, ann = self.space(tmp_path / "s.space", limits)
        basis = ann.lands(write("d", replace((), dict.fromkeys(keys, 0))))
        ann.lands(write("d", *(replace((key,), 1) for key in keys)))
        engine.drop_caches()
        written = store.meta(HEADS_SEQ)
        ann.lands(write("d", replace(("k0",), 2)))  # the head is in memory only, without its write index
        stale = Writer(engine, "bob").send(reads=[read("d", ("k1",), seq=basis)])  # which this one brings in
        assert [collision.seq for collision in conflict_of(stale).collisions] == [2]
        assert store.meta(HEADS_SEQ) == written
        assert value_of(engine, "d") == dict.fromkeys(keys, 1) | {"k0": 2}
        conflict_of(Writer(engine, "cat").send(reads=[read("d", ("k0",), seq=2)]))
        store.close()

    @pytest.mark.parametrize("point", ["put_heads", "put_meta", "commit"])
    def test_one_that_fails_takes_its_commit_along_and_a_replay_brings_both(self, tmp_path: Path, point: str) -> None:
        inner = SqliteStore(tmp_path / "s.space", synchronous="OFF")
        store, faults = faulty(inner)
        engine = Engine(store, clock=VirtualClock(), limits=Limits(heads_commits=2))
        ann = Writer(engine, "ann")
        ann.lands(write("d", append((), [1])))
        second = ann.commit(write("d", append((), [2])))
        faults.fail_on = point
        with pytest.raises(StorageError, match="planted"):
            engine.submit("ann", second)
        assert (engine.last_seq, value_of(engine, "d")) == (1, (1,))
        assert engine.submit("ann", second)[0] == Accepted(2, 2)
        assert value_of(engine, "d") == (1, 2)
        engine.close()
        assert verify_file(tmp_path / "s.space").ok


@pytest.mark.random
def test_a_space_with_hardly_any_memory_that_is_killed_again_and_again_answers_like_a_roomy_one(
    tmp_path: Path,
) -> None:
    for seed in range(scaled(60)):
        random = Random(seed)
        limits = Limits(
            heads_commits=random.choice((1, 3, 1_000)),
            snapshot_patches=random.choice((1, 4)),
            snapshots_fresh=1,
            marks_patches=random.choice((1, 8)),
            marks_per_document=random.choice((1, 1_000)),
            cache_bytes=1,
            cached_sessions=1,
            session_commits=1,
        )
        path = tmp_path / f"{seed}.space"
        mirror = open_engine(limits=Limits(marks_per_document=limits.marks_per_document))
        engine, store = abandoned(path, limits)
        for each in (engine, mirror):
            each.fork("b")
        writers = {key: [Writer(each, key) for each in (engine, mirror)] for key in ("ann", "bob", "cat")}
        accepted: list[tuple[str, Commit, int]] = []
        for step in range(40):
            key, id, branch = random.choice(list(writers)), random.choice("de"), random.choice(("main", "b"))
            absent = value_of(mirror, id, branch=branch) is ABSENT
            patch = (
                replace((), {"n": 0, "l": []}) if absent else random.choice((increment(("n",)), append(("l",), [step])))
            )
            reads = [read(id, ("n",), seq=random.randrange(mirror.last_seq + 1))] if random.random() < 0.3 else []
            commits = [writer.commit(write(id, patch), reads=reads, branch=branch) for writer in writers[key]]
            verdicts = [each.submit(key, commits[0])[0] for each in (engine, mirror)]
            kinds = [isinstance(verdict, Accepted) for verdict in verdicts]
            assert kinds[0] == kinds[1], (seed, step, verdicts)
            if isinstance(verdicts[1], Accepted):
                assert verdicts[0] == verdicts[1], (seed, step)
                accepted.append((key, commits[0], verdicts[1].seq))
            if random.random() < 0.2:
                store.close()  # as if killed
                engine, store = abandoned(path, limits)
            if accepted and random.random() < 0.3:
                key, commit, seq = random.choice(accepted)
                assert engine.submit(key, commit)[0] == Accepted(commit.local_seq, seq, replayed=True), (seed, step)
            for name in "de":
                for line in ("main", "b"):
                    assert equal(value_of(engine, name, branch=line), value_of(mirror, name, branch=line)), (seed, step)
        engine.close()
        assert verify_file(path).ok, seed


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
