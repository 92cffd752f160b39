"""Admission: what is rejected, for which reason, and in which words."""

from __future__ import annotations

import pytest

from headwater.clock import VirtualClock
from headwater.data.limits import ValueLimits
from headwater.data.patch import Patch, add, add_unique, append, increment, remove, replace, splice
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import ConflictError, RuleRefusedError
from headwater.protocol.commit import Operation
from headwater.protocol.verdict import Accepted, Rejected, RuleRefused, Verdict, as_error, conflict_text
from tests.unit.engine.kit import Writer, conflict_of, doc, open_engine, read, seq_of, value_of, write


def refusal(verdict: Verdict) -> RuleRefused:
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.rejection, RuleRefused)
    return verdict.rejection


class TestPatchesThatDoNotFit:
    """A patch fitted the view it was written on; where it no longer fits, the view was stale: worth a retry."""

    @pytest.mark.parametrize(
        ("patch", "reason"),
        [
            (replace(("missing",), 1), "there is nothing to replace"),
            (replace(("a", "b", "c"), 1), "holds nothing"),
            (add(("missing", "x"), 1), "there is nothing here to hold the rest of the path"),
            (append(("a",), [1]), "append"),
            (increment(("s",)), "increment"),
            (splice(("l",), 2, 5, []), "the array has 2 elements"),
            (replace(("l", 9), 1), "it has no element 9"),
        ],
    )
    def test_the_reason_is_in_the_conflict(self, patch: Patch, reason: str) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        last = ann.lands(write("d", replace((), {"a": {"b": 1}, "s": "text", "l": [1, 2]})), node="Setup")
        conflict = conflict_of(ann.send(write("d", patch)))
        (collision,) = conflict.collisions
        assert (collision.doc, collision.path, collision.seq) == (doc("d"), patch.path, last)
        assert (collision.session, collision.node) == ("ann", "Setup")
        assert f"cannot take {patch.kind!r} now: " in collision.reason
        assert reason in collision.reason
        assert value_of(engine, "d") == {"a": {"b": 1}, "s": "text", "l": (1, 2)}

    def test_stale_reads_and_misfits_are_reported_together(self) -> None:
        engine = open_engine()
        ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
        basis = ann.lands(write("d", replace((), {"x": 1})))
        bob.lands(write("d", remove(("x",))))
        verdict = ann.send(
            write("d", replace(("x",), 2)), write("e", add(("x",), 1)), reads=[read("d", ("x",), seq=basis)]
        )
        assert [(c.doc.id, bool(c.reason)) for c in conflict_of(verdict).collisions] == [
            ("d", False),
            ("d", True),
            ("e", True),
        ]

    def test_later_patches_of_an_operation_see_the_earlier_ones(self) -> None:
        engine = open_engine()
        Writer(engine, "ann").lands(write("d", replace((), {}), add(("a",), {}), add(("a", "b"), 1)))
        assert value_of(engine, "d") == {"a": {"b": 1}}

    def test_an_operation_without_patches_is_no_write(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(Operation(doc("d"), ()))
        assert engine.read(doc("d")).seq == 0
        assert not value_of(engine, "d")


class TestNames:
    @pytest.mark.parametrize(
        ("scope", "id", "says"),
        [
            ("space", "", "document id '' is empty"),
            ("space", "x" * 257, "is 257 characters long: use at most 256"),
            ("space", "a\x00b", "control character"),
            ("planet", "d", "is not a scope: use 'space', 'user:<principal>' or 'session:<id>'"),
            ("user:", "d", "is empty"),
        ],
    )
    def test_a_document_that_no_address_can_name_is_refused_by_rule(self, scope: str, id: str, says: str) -> None:
        engine = open_engine()
        verdict = Writer(engine, "ann").send(Operation(doc(id, scope), (replace((), 1),)))
        assert refusal(verdict).rule == "document_name"
        assert says in refusal(verdict).detail
        assert engine.last_seq == 0

    def test_reading_such_a_name_is_reading_nothing(self) -> None:
        engine = open_engine()
        assert seq_of(Writer(engine, "ann").send(reads=[read("", seq=0)]))


class TestSizes:
    def test_a_commit_that_is_too_long_is_refused_by_rule(self) -> None:
        engine = open_engine(limits=Limits(commit_bytes=500))
        ann = Writer(engine, "ann")
        ann.lands(write("d", replace((), "x" * 300)))
        found = refusal(ann.send(write("d", replace((), "x" * 600))))
        assert found.rule == "commit_bytes"
        assert "bytes long, over the limit of 500. Split it." in found.detail

    def test_a_document_that_grew_too_large_is_refused_by_rule(self) -> None:
        engine = open_engine(limits=Limits(document_bytes=2_000, snapshot_patches=2))
        ann = Writer(engine, "ann")
        verdicts = [ann.send(write("d", append((), ["x" * 200]))) for _ in range(40)]
        refused = [verdict for verdict in verdicts if not isinstance(verdict, Accepted)]
        assert refused
        found = refusal(refused[0])
        assert found.rule == "document_bytes"
        assert "space:d has grown past 2000 bytes. Split it into several documents." in found.detail
        assert len(str(value_of(engine, "d"))) < 4_000

    def test_a_small_document_that_is_rewritten_often_is_never_too_large(self) -> None:
        engine = open_engine(limits=Limits(document_bytes=2_000))
        ann = Writer(engine, "ann")
        for number in range(40):
            ann.lands(write("d", replace((), f"{number:600}")))

    def test_a_small_document_beside_a_large_one_is_never_too_large(self) -> None:
        engine = open_engine(limits=Limits(document_bytes=2_000))
        ann = Writer(engine, "ann")
        for number in range(40):
            ann.lands(write("counter", increment(())), write(f"blob{number}", replace((), "x" * 1_500)))
        assert value_of(engine, "counter") == 40

    def test_as_an_error_a_refusal_says_what_to_change(self) -> None:
        engine = open_engine(limits=Limits(commit_bytes=100))
        verdict = Writer(engine, "ann").send(write("d", replace((), "x" * 600)))
        assert isinstance(verdict, Rejected)
        with pytest.raises(RuleRefusedError, match=r"commit 1 was refused: it is \d+ bytes long.* Split it\."):
            raise as_error(verdict)


class TestValuesPastTheirLimits:
    """No retry can help, so it is refused by rule and not called a stale view."""

    @pytest.mark.parametrize(
        ("patch", "says"),
        [
            (append(("l",), [3]), "the container would have 3 items, the limit is 2"),
            (add(("m", "c"), 1), "the container would have 3 items, the limit is 2"),
            (splice(("l",), 0, 0, [0]), "the container would have 3 items, the limit is 2"),
            (add_unique(("l",), [3]), "the container would have 3 items, the limit is 2"),
            (increment(("n",)), "the sum is beyond 2**53 - 1"),
            (increment(("f",), 1.7e308), "the sum is not a finite number"),
        ],
    )
    def test_it_is_refused_for_good(self, patch: Patch, says: str) -> None:
        engine = open_engine(limits=Limits(values=ValueLimits(container_items=2)))
        ann = Writer(engine, "ann")
        parts = {"l": [1, 2], "m": {"a": 1, "b": 2}}, {"n": 2**53 - 1, "f": 1.7e308}
        start = parts[0] if patch.path[0] in parts[0] else parts[1]
        ann.lands(write("d", replace((), start)))
        found = refusal(ann.send(write("d", patch)))
        assert found.rule == "value_limits"
        assert found.detail.startswith("space:d cannot hold it: ")
        assert says in found.detail
        assert value_of(engine, "d") == value_of(engine, "d", at=1)

    def test_it_is_refused_also_where_the_view_was_stale(self) -> None:
        engine = open_engine(limits=Limits(values=ValueLimits(container_items=2)))
        ann = Writer(engine, "ann")
        ann.lands(write("d", replace((), [1, 2])))
        assert refusal(ann.send(write("d", append((), [3])), reads=[read("d", seq=0)])).rule == "value_limits"

    def test_a_bounded_append_fits_a_full_list(self) -> None:
        engine = open_engine(limits=Limits(values=ValueLimits(container_items=2)))
        ann = Writer(engine, "ann")
        ann.lands(write("d", replace((), [1, 2])))
        ann.lands(write("d", append((), [3], keep=2)))
        assert value_of(engine, "d") == (2, 3)


def test_a_rejection_looks_each_winner_up_once_however_many_reads_it_beat() -> None:
    store = SqliteStore(":memory:")
    engine = Engine(store, clock=VirtualClock())
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    bob.lands(write("d", replace((), {str(n): 0 for n in range(1_000)})))
    bob.lands(write("d", *(replace((str(n),), 1) for n in range(1_000))))
    row = store.last_row()
    assert row is not None
    before = store.visited.rows, store.visited.bytes
    conflict = conflict_of(ann.send(reads=[read("d", (str(n),), seq=1) for n in range(1_000)]))
    assert [collision.seq for collision in conflict.collisions] == [2] * 1_000
    assert {(c.session, c.path) for c in conflict.collisions} == {("bob", (str(n),)) for n in range(1_000)}
    assert store.visited.rows - before[0] <= 10
    assert store.visited.bytes - before[1] <= 2 * len(row.body)


class TestExpiredBases:
    def test_a_walk_that_would_cost_too_much_is_answered_with_an_expired_basis(self) -> None:
        """Only pending reads walk, and only where their session's own commits are no longer remembered."""
        engine = open_engine(limits=Limits(session_commits=1, scan_commits=5))
        ann = Writer(engine, "ann")
        basis = ann.lands(write("d", replace((), {"x": 0, "y": 0})))
        for number in range(10):
            ann.lands(write("d", replace(("y",), number + 1)))
        layers = ((2, 11),)
        conflict = conflict_of(ann.send(reads=[read("d", ("x",), seq=basis, layers=layers)]))
        assert conflict.basis_expired
        assert "its basis is older than the history that is kept" in conflict_text(conflict)
        fresh = ann.send(reads=[read("d", ("x",), seq=engine.last_seq)])
        assert isinstance(fresh, Accepted)

    def test_a_confirmed_read_never_expires(self) -> None:
        engine = open_engine(limits=Limits(session_commits=1, scan_commits=5, cache_bytes=1))
        ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
        basis = ann.lands(write("d", replace((), {"x": 0, "y": 0})))
        for number in range(200):
            ann.lands(write("d", replace(("y",), number + 1)))
        assert seq_of(bob.send(reads=[read("d", ("x",), seq=basis)]))


class TestPendingReadsOfArrays:
    """What a layer did to an array depends on the whole array, so a foreign write anywhere in it counts."""

    @pytest.mark.parametrize("layer", [append(("l",), ["z"], keep=3), splice(("l",), 0, 1, []), append(("l",), ["z"])])
    def test_an_element_read_through_a_layer_meets_a_foreign_change_of_another_element(self, layer: Patch) -> None:
        engine = open_engine()
        ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
        basis = ann.lands(write("d", replace((), {"l": ["a", "b", "c"]})))
        foreign = bob.lands(write("d", append(("l",), ["y"])))
        ann.lands(write("d", layer))
        verdict = ann.send(reads=[read("d", ("l", 0), seq=basis, layers=((2, 2),))])
        assert foreign in [collision.seq for collision in conflict_of(verdict).collisions]


def test_as_an_error_a_conflict_says_where_who_and_what_to_do() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 0})))
    bob.lands(write("d", replace(("x",), 1)), node="Board.rename")
    verdict = ann.send(reads=[read("d", ("x",), seq=basis)])
    assert isinstance(verdict, Rejected)
    with pytest.raises(ConflictError) as caught:
        raise as_error(verdict)
    assert str(caught.value) == (
        "commit 2 was rejected: space:d#/x was read at seq 1 and written at seq 2 by bob (Board.rename). "
        "Read again and retry."
    )
