"""Names that nothing uses any more are swept, some rows at a time; what is used is never lost by it."""

from __future__ import annotations

from dataclasses import replace as with_
from pathlib import Path

import pytest

from headwater.clock import Random
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.observations.codec import first_of, forms_of
from headwater.engine.store.port import Part
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_file
from headwater.errors import StorageError
from headwater.protocol.commit import Commit
from tests.unit.engine.kit import open_engine, open_store, write
from tests.unit.engine.observing_kit import Runner, clean, looked, node, observed

FEW = with_(DEFAULT_LIMITS, swept_rows=7)


def names(store: SqliteStore) -> int:
    return int(store.meta("names_made") or 0)


def started(engine: Engine) -> Runner:
    runner = Runner(engine)
    runner.send(Commit(1, (write("a", replace((), 1)),)))
    return runner


def renewed(runner: Runner, times: int, *, nodes: int = 10) -> None:
    """Programs come and go: each has other code for every node."""
    for time in range(times):
        for number in range(nodes):
            runner.observe(runner.run(f"p{number}.n", looked("a", seq=1), fingerprint=f"{time}-{number}"))


class TestSweeping:
    def test_fingerprints_of_former_programs_do_not_stay(self) -> None:
        store = open_store()
        engine = open_engine(store, limits=FEW)
        runner = started(engine)
        most = 0
        for _ in range(20):
            renewed(runner, 10)
            most = max(most, names(store))
        assert most < 2 * (DEFAULT_LIMITS.unswept_names + 2 * 10), "2,000 fingerprints were told, ten are in use"
        assert sorted(each.fingerprint for each in observed(engine)) == sorted(f"9-{number}" for number in range(10))
        assert set(clean(engine).values()) == {True}
        store.check(Part.NAMES)

    def test_a_few_names_are_not_swept(self) -> None:
        store = open_store()
        engine = open_engine(store, limits=FEW)
        renewed(started(engine), 5)
        assert names(store) > 50

    def test_one_transaction_looks_at_a_few_rows(self) -> None:
        store = open_store()
        engine = open_engine(store, limits=FEW)
        runner = started(engine)
        renewed(runner, 25)
        visited = store.visited
        costs = []
        for time in range(600):
            before = visited.statements
            runner.observe(runner.run("p0.n", looked("a", seq=1), fingerprint=f"x{time}"))
            costs.append(visited.statements - before)
        assert max(costs) <= min(costs) + 12, "however many names there are"

    def test_what_is_used_meanwhile_is_kept(self) -> None:
        """Also what was said long ago and comes back while it is being swept, by whom it is remembered."""
        store = open_store()
        engine = open_engine(store, limits=FEW)
        runner = started(engine)
        random = Random(7)
        for time in range(2_000):
            number = random.randrange(10)
            which = random.choice(("old", f"{time}"))
            runner.observe(
                runner.run(
                    node(f"p{number}.n{random.randrange(3)}", scope="user", principal=f"u{random.randrange(3)}"),
                    looked("a", seq=1),
                    fingerprint=which,
                    failed=random.choice(("", f"error {random.randrange(400)}")),
                )
            )
        check_whole(store)
        assert names(store) < 1_200

    def test_a_number_that_is_given_again_means_its_new_name(self) -> None:
        store = open_store()
        engine = open_engine(store, limits=FEW)
        runner = started(engine)
        runner.observe(runner.run(node("late.n", generation=9), looked("a", seq=1)))
        runner.observe(runner.run("late.", gone=True))
        renewed(runner, 60)
        for number in range(400):
            runner.observe(runner.run(node(f"piece{number}.n", generation=1), looked("a", seq=1)))
        assert len(observed(engine)) == 410, "the generation of a piece that is gone is nobody else's"

    def test_a_sweep_that_was_interrupted_is_begun_anew(self, tmp_path: Path) -> None:
        path = tmp_path / "s.space"
        for time in range(40):
            store = open_store(path)
            engine = Engine(store, limits=FEW)
            runner = Runner(engine, f"s{time}")
            if not time:
                runner.send(Commit(1, (write("a", replace((), 1)),)))
            for number in range(40):
                runner.observe(runner.run(f"p{number % 10}.n", looked("a", seq=1), fingerprint=f"{time}-{number}"))
            check_whole(store)
            engine.close()
        store = open_store(path)
        engine = open_engine(store)
        assert names(store) < 2 * (DEFAULT_LIMITS.unswept_names + 20)
        engine.close()
        assert verify_file(path).ok

    def test_a_transaction_that_fails_while_names_are_dropped_leaves_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = open_store()
        engine = open_engine(store, limits=FEW)
        runner = started(engine)
        failed = 0
        commit = SqliteStore.commit

        def fails(self: SqliteStore) -> None:
            nonlocal failed
            if runner.order % 3 == 0 and failed < 100:
                failed += 1
                raise StorageError("the disk is full")
            commit(self)

        monkeypatch.setattr(SqliteStore, "commit", fails)
        monkeypatch.setattr(SqliteStore, "reopen", SqliteStore.rollback)
        for time in range(1_000):
            run = runner.run(f"p{time % 10}.n", looked("a", seq=1), fingerprint=f"{time}")
            try:
                runner.observe(run)
            except StorageError:
                runner.observe(runner.run(f"p{time % 10}.n", looked("a", seq=1), fingerprint=f"{time} again"))
        assert failed == 100
        check_whole(store)


def check_whole(store: SqliteStore) -> None:
    """Every number that is used has its name, and all rows are as they were written."""
    for part in (Part.NAMES, Part.OBSERVATIONS, Part.READERS):
        store.check(part)
    for row in store.observations_after(first_of(1, 0), 10_000):
        forms = forms_of(row)
        assert forms is not None
        state = forms[0]
        for number in (row.piece, row.member, row.scope, state.kind, state.fingerprint, state.gate, state.failed):
            assert not number or store.name_of(number) is not None, f"{number} has no name"
