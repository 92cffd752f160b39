"""One of the many documents of a large commit costs what that document needs, however large the commit was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Raw

from headwater.clock import VirtualClock
from headwater.data.patch import Patch, append, increment, replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.log import log as log_module
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit, decode_commit
from headwater.protocol.log_record import CommitOutline, decode_outline, decode_patches
from tests.unit.engine.kit import Writer, conflict_of, open_engine, open_store, read, value_of, write

MANY = 1_000


class Work:
    """What was decoded: whole commits, outlines of commits, operations."""

    def __init__(self) -> None:
        self.commits = self.outlines = self.operations = 0

    def counts(self) -> tuple[int, int, int]:
        counts = (self.commits, self.outlines, self.operations)
        self.commits = self.outlines = self.operations = 0
        return counts


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    work = Work()

    def counted_commit(data: bytes | Raw) -> Commit:
        work.commits += 1
        return decode_commit(data)

    def counted_outline(data: bytes | Raw) -> CommitOutline:
        work.outlines += 1
        return decode_outline(data)

    def counted_patches(data: Raw) -> tuple[Patch, ...]:
        work.operations += 1
        return decode_patches(data)

    with monkeypatch.context() as patched:
        patched.setattr(log_module, "decode_commit", counted_commit)
        patched.setattr(log_module, "decode_outline", counted_outline)
        patched.setattr(log_module, "decode_patches", counted_patches)
        yield work


def number_of(engine: Engine, id: str) -> object:
    value = value_of(engine, id)
    assert isinstance(value, dict)
    return value["n"]


def filled(engine: Engine) -> Writer:
    ann = Writer(engine, "ann")
    operations = [write(f"d{n}", replace((), {"n": n, "items": ["x"] * 20})) for n in range(MANY)]
    ann.lands(*operations, node="import")
    engine.drop_caches()
    return ann


def test_a_cold_read_decodes_the_operation_of_its_document_only(work: Work) -> None:
    engine = open_engine()
    filled(engine)
    work.counts()
    assert value_of(engine, "d7") == {"n": 7, "items": ("x",) * 20}
    assert work.counts() == (0, 1, 1)


def test_reading_all_documents_of_a_large_commit_looks_through_it_once(work: Work) -> None:
    store = open_store()
    engine = open_engine(store)
    filled(engine)
    work.counts()
    before = store.visited.rows
    for n in range(MANY):
        assert number_of(engine, f"d{n}") == n
    assert work.counts() == (0, 1, MANY)
    assert store.visited.rows - before <= 3 * MANY  # a name and a head each, and the row of the log


def test_documents_that_were_written_since_do_not_look_through_it_again(work: Work) -> None:
    engine = open_engine()
    ann = filled(engine)
    for n in range(50):
        ann.lands(write(f"d{n}", increment(("n",))))
    engine.drop_caches()
    work.counts()
    for n in range(50):
        assert number_of(engine, f"d{n}") == n + 1
    assert work.counts() == (0, 50, 100)  # of the large one there is still the outline that the increments needed


def test_a_read_in_the_past_and_the_write_index_decode_one_operation_of_it(work: Work) -> None:
    engine = open_engine()
    ann = filled(engine)
    ann.lands(write("d3", append(("items",), ["y"])))
    engine.drop_caches()
    work.counts()
    assert value_of(engine, "d3", at=1) == {"n": 3, "items": ("x",) * 20}
    _, _, operations = work.counts()
    assert operations == 2  # the way back from now, and the value then
    ann.lands(write("d3", increment(("n",))), reads=[read("d3", ("n",), seq=1)])
    commits, _, operations = work.counts()
    assert (commits, operations) == (0, 4)  # now, and the index from the beginning


def test_who_won_a_conflict_is_told_without_decoding_what_it_wrote(work: Work) -> None:
    engine = open_engine()
    filled(engine)
    work.counts()
    conflict = conflict_of(Writer(engine, "bob").send(write("d5", replace((), 1)), reads=[read("d5", seq=0)]))
    assert [(each.seq, each.session, each.node) for each in conflict.collisions] == [(1, "ann", "import")]
    commits, outlines, operations = work.counts()
    assert commits == 0
    assert outlines <= 2
    assert operations <= 2


def test_outlines_are_kept_up_to_a_number_of_bytes_and_none_of_a_small_commit(work: Work) -> None:
    engine = open_engine(limits=Limits(outline_bytes=50_000))  # 20 operations take 300 bytes each, and their row
    ann = Writer(engine, "ann")
    for number in range(20):
        ann.lands(*[write(f"c{number}.{n}", replace((), n)) for n in range(20)])
    ann.lands(write("small", replace((), 1)))
    engine.drop_caches()
    for number in range(20):
        for n in range(20):
            assert value_of(engine, f"c{number}.{n}") == n
    assert value_of(engine, "small") == 1
    engine.drop_caches()
    work.counts()
    for number in reversed(range(20)):
        assert value_of(engine, f"c{number}.0") == 0
        assert work.counts() == (0, 0 if number >= 13 else 1, 1), "the newest seven are kept"
    for _ in range(2):
        engine.drop_caches()
        assert value_of(engine, "small") == 1
        assert work.counts() == (0, 1, 1), "of few operations, it is looked through each time"


def test_outlines_of_large_rows_make_room_for_one_another(work: Work) -> None:
    engine = open_engine(limits=Limits(outline_bytes=32_000))
    ann = Writer(engine, "ann")
    for number in range(4):
        ann.lands(*[write(f"c{number}.{n}", replace((), "x" * 400)) for n in range(20)])
    engine.drop_caches()
    for number in range(4):
        assert value_of(engine, f"c{number}.0") == "x" * 400
    work.counts()
    for number, again in ((3, 0), (2, 0), (1, 1), (0, 1)):  # of more than 14,000 bytes each
        assert value_of(engine, f"c{number}.1") == "x" * 400
        assert work.counts() == (0, again, 1)


def test_what_a_failed_group_would_have_written_is_not_remembered(work: Work) -> None:
    """An outline is of a row that is in the log; what is only admitted may yet be taken back."""
    engine = open_engine(limits=Limits(cache_bytes=1))
    ann = Writer(engine, "ann")
    operations = [write(f"d{n}", replace((), n)) for n in range(20)]
    engine.submit(
        "ann",
        Commit(1, tuple(operations)),
        Commit(2, (write("d1", increment(())),), reads=(read("d1", seq=0, layers=((1, 1),)),)),
    )
    work.counts()
    ann.next = 3
    assert value_of(engine, "d1") == 2
    _, outlines, _ = work.counts()
    assert outlines == 2, "both rows are looked through: nothing was remembered of the first one"


def test_recovery_still_decodes_every_commit_that_it_takes_up(work: Work, tmp_path: Path) -> None:
    """Damage after the last write-back is found at open, wherever in a commit it is."""
    store = SqliteStore(tmp_path / "s.space", synchronous="OFF")
    ann = Writer(Engine(store, clock=VirtualClock()), "ann")
    for number in range(3):
        ann.lands(*[write(f"d{n}", replace((), number)) for n in range(30)])
    store.close()  # as if killed
    work.counts()
    engine = open_engine(tmp_path / "s.space")
    assert work.counts() == (3, 0, 0)
    engine.close()
