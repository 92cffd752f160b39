"""C8: reads of one transaction see one snapshot.

The replica will keep this for the reads of a run. What the engine promises already: the answer of one call is
of one moment and says which, a moment once read never changes, and a commit whose reads are of two moments is
judged by each read's own.
"""

from __future__ import annotations

from headwater.data.patch import increment, replace
from headwater.engine.limits import Limits
from headwater.protocol.verdict import Accepted
from tests.unit.engine.kit import Writer, conflict_of, doc, open_engine, read, seq_of, value_of, write


def test_every_document_of_a_page_is_of_the_same_moment() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    for number in range(20):
        ann.lands(write("a", increment(())), write("b", increment(())), write(f"d{number}", replace((), 1)))
        page = engine.documents("space")
        assert {document.as_of for document in page.items} == {engine.last_seq}
        values = {document.doc.id: document.value for document in page.items}
        assert values["a"] == values["b"] == number + 1


def test_a_moment_once_read_looks_the_same_for_ever() -> None:
    engine = open_engine(limits=Limits(snapshot_patches=2, cache_bytes=1))
    ann = Writer(engine, "ann")
    seen = {}
    for number in range(40):
        seq = ann.lands(write("a", increment(())), write("b", replace((), {"n": number})))
        seen[seq] = (value_of(engine, "a"), value_of(engine, "b"))
    for seq, values in seen.items():
        assert (value_of(engine, "a", at=seq), value_of(engine, "b", at=seq)) == values


def test_several_reads_at_one_seq_are_a_snapshot_while_others_write() -> None:
    """Two documents that always change together are never seen apart."""
    engine = open_engine()
    ann = Writer(engine, "ann")
    for _ in range(30):
        ann.lands(write("a", increment(())), write("b", increment(())))
        moment = engine.last_seq
        left = value_of(engine, "a", at=moment)
        ann.lands(write("a", increment(())), write("b", increment(())))  # between the two reads
        assert value_of(engine, "b", at=moment) == left


def test_a_read_answers_with_the_moment_it_is_of() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    first = ann.lands(write("a", replace((), 1)))
    second = ann.lands(write("b", replace((), 1)))
    assert (engine.read(doc("a")).seq, engine.read(doc("a")).as_of) == (first, second)
    past = engine.read(doc("b"), at=first)
    assert (past.seq, past.as_of) == (0, first)


def test_reads_of_different_moments_stand_only_if_each_still_holds() -> None:
    """A torn view is admitted only where it equals a whole one."""
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    old = bob.lands(write("a", replace((), 1)), write("b", replace((), 1)))
    new = bob.lands(write("a", replace((), 2)), write("b", replace((), 2)))
    torn = ann.send(write("c", replace((), 1)), reads=[read("a", seq=old), read("b", seq=new)])
    assert [c.doc.id for c in conflict_of(torn).collisions] == ["a"]
    third = bob.lands(write("b", replace((), 3)))
    whole = ann.send(write("c", replace((), 1)), reads=[read("a", seq=new), read("b", seq=third)])
    assert seq_of(whole)


def test_the_operations_of_a_commit_become_visible_together() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    wave = [
        ann.commit(write("a", replace((), 1)), write("b", replace((), 1))),
        ann.commit(write("a", replace((), 2)), write("b", replace((), 2))),
    ]
    verdicts = engine.submit("ann", *wave)
    for verdict, value in zip(verdicts, (1, 2), strict=True):
        assert isinstance(verdict, Accepted)
        assert [value_of(engine, id, at=verdict.seq) for id in "ab"] == [value, value]
