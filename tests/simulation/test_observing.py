"""What nodes did, under random schedules and with bugs put in: nothing stale is kept, nothing dirty taken for clean."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.data.address import DocKey
from headwater.engine.admission import Admission
from headwater.engine.branches import Branch
from headwater.engine.observed import Observed
from headwater.engine.observing import Observing
from headwater.engine.reader_index import ReaderIndex
from headwater.engine.sessions import Session
from headwater.protocol.commit import Read
from headwater.protocol.observations import Observation
from headwater.testing.differential import run
from tests.counts import is_exploring, scaled

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.random
def test_the_engine_keeps_and_compares_what_nodes_did_as_folding_the_log_does() -> None:
    summary = run(scaled(500), 500_000)
    assert summary.ok, summary
    counts = summary.counts
    assert counts["nodes compared"] > 10 * summary.schedules
    assert counts["runs kept"] > counts["runs dropped"] > summary.schedules
    assert counts["runs dropped without need"] < 0.15 * counts["runs dropped"] + 5
    assert counts["nodes dirty without need"] < 0.05 * counts["nodes compared"] + 5


def keep_stale_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Observing, "_is_current", lambda *_: True)


def take_every_node_for_clean(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Observed, "stale", lambda *_: ())


def look_at_the_first_read_only(patch: pytest.MonkeyPatch) -> None:
    conflict = Admission.conflict

    def planted(self: Admission, session: Session, branch: Branch, reads: tuple[Read, ...]) -> object:
        return conflict(self, session, branch, reads[:1] if not session.key else reads)

    patch.setattr(Admission, "conflict", planted)


def believe_the_heads_that_were_written_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "headwater.engine.heads.Heads.seqs", lambda self, branch, docs: self._store.head_seqs(branch.id, docs)
    )


def verify_runs_before_their_frame(patch: pytest.MonkeyPatch) -> None:
    ran = Observing.ran

    def planted(
        self: Observing, session: Session, branch: Branch, observation: Observation, seq: int, *, wrote: bool
    ) -> None:
        ran(self, session, branch, observation, seq + 1, wrote=wrote)

    patch.setattr(Observing, "ran", planted)


def keep_what_a_merged_branch_had(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Observing, "forget_branch", lambda *_: None)


def forget_who_read_what_was_not_there(patch: pytest.MonkeyPatch) -> None:
    def planted(self: ReaderIndex, key: DocKey, doc: int) -> None:
        return None

    patch.setattr(ReaderIndex, "made", planted)


def count_no_readers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReaderIndex, "change", lambda *_: None)


PLANTS: list[Plant] = [
    keep_stale_runs,
    take_every_node_for_clean,
    believe_the_heads_that_were_written_back,
    verify_runs_before_their_frame,
    forget_who_read_what_was_not_there,
    count_no_readers,
]
FOUND_LATE: list[Plant] = [look_at_the_first_read_only, keep_what_a_merged_branch_had]
"""What takes dozens of schedules: `./dev sim` looks for it."""


@pytest.mark.parametrize("plant", PLANTS + FOUND_LATE if is_exploring() else PLANTS, ids=lambda plant: plant.__name__)
def test_the_harness_finds_an_engine_that_would(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    summary = run(200)
    assert not summary.ok, f"nothing was found in {summary.schedules} schedules"
