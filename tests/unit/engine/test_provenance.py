"""Why a document is what it is, out of the log."""

from __future__ import annotations

from pathlib import Path

from headwater.data.patch import replace
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.provenance import ProvenanceEnd, trace_provenance
from headwater.protocol.commit import Commit, Provenance
from tests.unit.engine.kit import doc, read, write


def derived(local_seq: int, id: str, value: object, *causes: str, reads: tuple[str, ...] = ()) -> Commit:
    """A commit of a node, made because of some documents."""
    made = Provenance(f"node {id}", "", tuple((doc(each), ()) for each in causes), True)
    seen = tuple(read(each, (), seq=local_seq - 1) for each in reads)
    return Commit(local_seq, (write(id, replace((), value)),), seen, provenance=made)


def made(path: Path, *commits: Commit) -> Engine:
    engine = Directory(path, synchronous="OFF").space("shop")
    engine.open_session("ann")
    for commit in commits:
        engine.submit("ann", commit)
    return engine


def shown(engine: Engine, id: str, most: int = 100) -> list[tuple[int, str, int | None, ProvenanceEnd]]:
    return [
        (step.level, step.doc.id, None if step.commit is None else step.commit.seq, step.end)
        for step in trace_provenance(engine, doc(id), (), most=most)
    ]


def test_a_chain_leads_from_what_was_derived_to_what_somebody_wrote(tmp_path: Path) -> None:
    engine = made(
        tmp_path,
        Commit(1, (write("lines", replace((), 1)),)),
        derived(2, "total", 1, "lines"),
        derived(3, "label", "1", "total"),
    )
    assert shown(engine, "label") == [
        (0, "label", 3, ProvenanceEnd.GOES_ON),
        (1, "total", 2, ProvenanceEnd.GOES_ON),
        (2, "lines", 1, ProvenanceEnd.WRITTEN),
    ]
    assert shown(engine, "label", most=2) == shown(engine, "label")[:2]


def test_a_first_run_is_explained_by_what_it_read(tmp_path: Path) -> None:
    engine = made(tmp_path, Commit(1, (write("lines", replace((), 1)),)), derived(2, "total", 1, reads=("lines",)))
    assert shown(engine, "total") == [(0, "total", 2, ProvenanceEnd.GOES_ON), (1, "lines", 1, ProvenanceEnd.WRITTEN)]


def test_a_run_of_which_nothing_is_known_ends_the_chain(tmp_path: Path) -> None:
    assert shown(made(tmp_path, derived(1, "total", 1)), "total") == [(0, "total", 1, ProvenanceEnd.FIRST_RUN)]


def test_a_cause_counts_as_it_was_when_the_commit_was_made(tmp_path: Path) -> None:
    engine = made(
        tmp_path,
        Commit(1, (write("lines", replace((), 1)),)),
        derived(2, "total", 1, "lines"),
        Commit(3, (write("lines", replace((), 2)),)),
    )
    assert shown(engine, "total")[1] == (1, "lines", 1, ProvenanceEnd.WRITTEN)


def test_two_ways_to_one_commit_show_it_once(tmp_path: Path) -> None:
    engine = made(
        tmp_path,
        Commit(1, (write("lines", replace((), 1)),)),
        derived(2, "one", 1, "lines"),
        derived(3, "two", 1, "lines"),
        derived(4, "both", 2, "one", "two"),
    )
    assert [end for *_, end in shown(engine, "both")] == [
        ProvenanceEnd.GOES_ON,
        ProvenanceEnd.GOES_ON,
        ProvenanceEnd.WRITTEN,
        ProvenanceEnd.GOES_ON,
        ProvenanceEnd.SHOWN_ABOVE,
    ]


def test_what_was_never_written_or_is_not_kept_says_so(tmp_path: Path) -> None:
    engine = made(
        tmp_path,
        Commit(1, (write("lines", replace((), 1)),)),
        derived(2, "total", 1, "lines"),
        Commit(3, (write("other", replace((), 1)),)),
    )
    assert shown(engine, "nothing") == [(0, "nothing", None, ProvenanceEnd.NOT_KEPT)]
    engine.compact(2)
    assert shown(engine, "total") == [
        (0, "total", 2, ProvenanceEnd.GOES_ON),
        (1, "lines", None, ProvenanceEnd.NOT_KEPT),
    ]
