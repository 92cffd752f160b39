"""Heads come from memory or from the disk, and nobody can tell which; memory has a bound."""

from __future__ import annotations

from pathlib import Path
from random import Random

import apsw
import pytest

from headwater.data.address import DocKey
from headwater.data.codec import encode
from headwater.data.patch import append, increment, remove, replace
from headwater.data.value import ABSENT, MaybeValue, equal
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.log.heads import snapshot_of
from headwater.errors import CorruptionError, InvalidValueError, ProtocolError
from headwater.protocol.commit import Commit, Read
from tests.counts import scaled
from tests.unit.engine.kit import DEEP, Writer, doc, open_engine, value_of, write
from tests.unit.engine.messages import forge


def test_a_current_value_is_handed_out_shared_and_not_copied() -> None:
    engine = open_engine()
    Writer(engine, "ann").lands(write("d", replace((), {"a": [1, 2, 3]})))
    assert value_of(engine, "d") is value_of(engine, "d")


def test_a_value_that_was_handed_out_never_changes() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), {"a": [1], "b": {"c": 1}})))
    before = value_of(engine, "d")
    ann.lands(write("d", append(("a",), [2]), replace(("b", "c"), 2)))
    assert before == {"a": (1,), "b": {"c": 1}}
    after = value_of(engine, "d")
    assert after == {"a": (1, 2), "b": {"c": 2}}


@pytest.mark.random
def test_dropping_everything_from_memory_at_any_time_changes_no_answer() -> None:
    for seed in range(scaled(60)):
        random = Random(seed)
        limits = Limits(
            snapshot_patches=random.choice((1, 3, 100)),
            snapshots_fresh=random.choice((1, 3)),
            heads_commits=random.choice((1, 5, 1_000)),
            marks_patches=random.choice((1, 4, 1_000)),
            cache_bytes=random.choice((1, 10**8)),
        )
        engine, mirror = open_engine(limits=limits), open_engine()
        writers = [Writer(each, "ann") for each in (engine, mirror)]
        for step in range(40):
            id = random.choice("abc")
            if value_of(mirror, id) is ABSENT:
                patch = replace((), {"l": [], "n": 0})
            else:
                patch = random.choice(
                    (append(("l",), [step], keep=4), increment(("n",)), replace(("n",), step), remove(()))
                )
            basis = random.randrange(mirror.last_seq + 1)
            reads = [Read(doc(random.choice("abc")), random.choice(((), ("n",), ("l", 0))), DEEP, basis)]
            verdicts = [each.send(write(id, patch), reads=reads) for each in writers]
            assert verdicts[0] == verdicts[1], (seed, step)
            if random.random() < 0.2:
                engine.drop_caches()
            for name in "abc":
                assert equal(value_of(engine, name), value_of(mirror, name)), (seed, step)


class TestMemory:
    """`cache_bytes` bounds what documents take, whatever is done with them."""

    LIMITS = Limits(cache_bytes=200_000)

    @staticmethod
    def filled(limits: Limits, documents: int = 400) -> Engine:
        engine = open_engine(limits=limits)
        ann = Writer(engine, "ann")
        for number in range(documents):
            ann.lands(write(f"d{number}", replace((), "x" * 1_000)))
        return engine

    def test_writing_many_documents_stays_within_the_bound(self) -> None:
        engine = self.filled(self.LIMITS)
        assert engine.bytes_held <= 2 * self.LIMITS.cache_bytes

    def test_reading_many_documents_stays_within_the_bound(self) -> None:
        engine = self.filled(self.LIMITS)
        engine.drop_caches()
        assert engine.bytes_held == 0
        for number in range(400):
            assert value_of(engine, f"d{number}") == "x" * 1_000
            assert engine.bytes_held <= 2 * self.LIMITS.cache_bytes

    def test_listing_many_documents_stays_within_the_bound(self) -> None:
        engine = self.filled(self.LIMITS)
        for start in range(0, 400, 50):
            engine.documents("space", after=f"d{start}", limit=50)
        assert engine.bytes_held <= 2 * self.LIMITS.cache_bytes

    def test_reads_of_documents_that_do_not_exist_stay_within_the_bound(self) -> None:
        engine = open_engine(limits=self.LIMITS)
        ann = Writer(engine, "ann")
        for number in range(200):
            ann.lands(reads=[Read(doc(f"none{number}-{n}"), (), DEEP, 0) for n in range(20)])
        assert engine.bytes_held <= 2 * self.LIMITS.cache_bytes

    def test_a_name_too_long_for_any_document_is_refused_and_not_remembered(self) -> None:
        engine = open_engine(limits=self.LIMITS)
        ann = Writer(engine, "ann")
        for number in range(20):
            long = doc(f"{number:0100000}")
            with pytest.raises(InvalidValueError, match="characters long"):
                engine.read(long)
            with pytest.raises(ProtocolError, match="read a document whose name is over 256 long"):
                engine.submit("ann", Commit(1, reads=(Read(long, (), DEEP, 0),)))
        assert engine.bytes_held == 0
        ann.lands()

    def test_what_is_used_stays_and_what_is_not_goes(self) -> None:
        limits = Limits(cache_bytes=50_000)
        engine = self.filled(limits, documents=5)
        hot = value_of(engine, "d0")
        ann = Writer(engine, "bob")
        for number in range(100):
            ann.lands(write(f"e{number}", replace((), "x" * 1_000)))
            assert value_of(engine, "d0") is hot  # the very same object: it never left memory


class TestBranches:
    def test_a_branch_reads_through_to_its_ancestors_at_their_forks(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(write("d", replace((), "m1")))
        engine.fork("b")
        ann.lands(write("d", replace((), "m2")))
        engine.fork("c", parent="b")
        ann.lands(write("d", replace((), "b1")), branch="b")
        assert [value_of(engine, "d", branch=name) for name in ("main", "b", "c")] == ["m2", "b1", "m1"]
        engine.drop_caches()
        assert [value_of(engine, "d", branch=name) for name in ("main", "b", "c")] == ["m2", "b1", "m1"]

    def test_a_first_write_on_a_branch_builds_on_what_it_inherited(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(write("d", replace((), [1])))
        engine.fork("b")
        ann.lands(write("d", append((), [2])), branch="b")
        engine.drop_caches()
        ann.lands(write("d", append((), [3])), branch="b")
        engine.drop_caches()
        assert value_of(engine, "d", branch="b") == (1, 2, 3)


class TestDamage:
    """A snapshot or a commit that is not what the head says is damage, found when the document is rebuilt."""

    @staticmethod
    def space(path: Path, commits: int = 5) -> None:
        engine = open_engine(path, limits=Limits(snapshot_patches=2, snapshot_share=1_000))
        ann = Writer(engine, "ann")
        for number in range(commits):
            ann.lands(write("d", append((), [number])))
        engine.close()

    @staticmethod
    def execute(path: Path, sql: str, *values: object) -> None:
        connection = apsw.Connection(str(path))
        connection.cursor().execute(sql, values)
        connection.close()

    def test_a_missing_snapshot(self, tmp_path: Path) -> None:
        path = tmp_path / "s.space"
        self.space(path)
        self.execute(path, "DELETE FROM snapshots WHERE seq=4")
        with pytest.raises(CorruptionError, match="the snapshot of space:d at seq 4 is missing"):
            value_of(open_engine(path), "d")

    def test_a_snapshot_that_cannot_be_read(self, tmp_path: Path) -> None:
        path = tmp_path / "s.space"
        self.space(path)
        self.execute(path, "UPDATE snapshots SET body=? WHERE seq=4", b"\xc1")
        with pytest.raises(CorruptionError, match="the snapshot of document 1 at seq 4 cannot be read"):
            value_of(open_engine(path), "d")

    def test_a_snapshot_that_was_edited(self, tmp_path: Path) -> None:
        path = tmp_path / "s.space"
        self.space(path)
        self.execute(path, "UPDATE snapshots SET body=CAST(substr(body,1,4)||? AS BLOB) WHERE seq=4", encode((9,)))
        with pytest.raises(CorruptionError, match=r"the snapshot of document 1 at seq 4 .* not match its checksum"):
            value_of(open_engine(path), "d")

    def test_a_write_index_that_cannot_be_read(self, tmp_path: Path) -> None:
        path = tmp_path / "s.space"
        engine = open_engine(path, limits=Limits(marks_patches=1))
        ann = Writer(engine, "ann")
        for number in range(5):
            ann.lands(write("d", append((), [number])))
        engine.close()
        for body in (b"\xc1", b"\x93\x01\x02\x03", encode({"at": 1})):
            forge(path, f"UPDATE marks SET body=X'{body.hex()}'")
            engine = open_engine(path)
            with pytest.raises(CorruptionError, match="the write index of space:d cannot be read"):
                engine.submit("ann", Commit(6, reads=(Read(doc("d"), (), DEEP, 2),)))
            engine.close()

    def test_a_commit_that_no_longer_applies(self, tmp_path: Path) -> None:
        path = tmp_path / "s.space"
        self.space(path)
        number = snapshot_of(1, 1, 4, 1, 1).body  # sealed, where an array was
        self.execute(path, "UPDATE snapshots SET body=? WHERE seq=4", number)
        with pytest.raises(CorruptionError, match=r"commit 5 no longer applies to space:d: .*array"):
            value_of(open_engine(path), "d")


def test_a_mirror_of_a_document_with_unicode_names_is_found_again() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    names = ["ä", "a\u0308", "日本", "😀", "A", "a"]
    for name in names:
        ann.lands(write(name, replace((), name)))
    engine.drop_caches()
    found: dict[str, MaybeValue] = {name: engine.read(DocKey("space", name)).value for name in names}
    assert found == {name: name for name in names}
