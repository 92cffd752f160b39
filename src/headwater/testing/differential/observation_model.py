"""The naive model of stored observations: the engine keeps no run that was stale, and calls no node clean that missed a
write.

The model makes the observations that ride with a schedule's frames and knows which of them must be kept: a list of
reads with a seq, folded like everything else. The engine may drop more, or call more nodes dirty, where it
approximates; that is counted. Nothing is drawn, so that a schedule is otherwise the same as without observations.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

from headwater.data.address import Depth
from headwater.data.limits import STORED_VALUE_LIMITS
from headwater.engine import Engine
from headwater.engine.verify import NaiveSpace
from headwater.protocol.commit import Commit, Frame, Read, lost_results
from headwater.protocol.observations import (
    About,
    Footprint,
    NodeKey,
    Observation,
    Observations,
    Observed,
    QueryObservations,
    Touched,
    decode_about,
    decode_footprint,
    encode_part,
)
from headwater.protocol.verdict import Accepted, Verdict
from headwater.testing.differential.agreement import Disagreement
from headwater.testing.differential.draws import DOCS

NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Run:
    """The model's knowledge of a node."""

    fingerprint: str
    reads: tuple[Touched, ...]
    verified_at: int
    changed_at: int


class ObservedModel:
    """The runs of a schedule, and the expected observations of their nodes."""

    __slots__ = ("_counts", "_known", "_naive")

    def __init__(self, naive: NaiveSpace, counts: Counter[str]) -> None:
        self._naive = naive
        self._counts = counts
        self._known: dict[tuple[str, NodeKey], Run] = {}  # by branch

    # ---- runs ------------------------------------------------------------------------------------

    def runs(self, session: str, frame: Frame) -> tuple[Observation, ...]:
        """Runs that made every other commit of a frame, and one in front of it that changed nothing."""
        if not frame:
            return ()
        quiet = Observation(*self._quiet(session, frame), seq=max(0, self._naive.last_seq - frame[0].local_seq % 3))
        made = [
            msgspec.structs.replace(
                Observation(*self._loud(session, commit), commit.local_seq), place=_observed_place(commit)
            )
            for commit in frame
            if commit.local_seq % 2
        ]
        return (quiet, *made)

    def _quiet(self, session: str, frame: Frame) -> tuple[bytes, bytes, int]:
        first = frame[0].local_seq
        node = NodeKey("quiet", 1, f"{session}-{first}")
        reads = (
            Touched(DOCS[first % len(DOCS)], ("x",) if first % 2 else (), Depth.DEEP),
            Touched(DOCS[(first + 1) % len(DOCS)], (), Depth.SHAPE),
        )
        return _encoded(node, f"{session}-{first}", reads, 2 * max(first, 1) - 1)

    def _loud(self, session: str, commit: Commit) -> tuple[bytes, bytes, int]:
        node = NodeKey(f"piece-{commit.local_seq % 2}", 1, f"member-{commit.local_seq % 4}")
        # A wave outside the protocol may name reads that it does not have.
        named = commit.results[_observed_place(commit)].reads if commit.results else range(len(commit.reads))
        looked = [commit.reads[at] for at in named if at < len(commit.reads)]
        reads = tuple(dict.fromkeys(Touched(read.doc, read.path, read.depth) for read in looked))
        return _encoded(node, f"{session}-{commit.local_seq}", reads, 2 * max(commit.local_seq, 1))

    # ---- results -----------------------------------------------------------------------------------

    def would_keep(self, branch: str, quiet: Observation) -> bool:
        """Before its frame is judged: whether a quiet run saw the present values."""
        if branch not in self._naive.branches or branch in self._naive.deleted or quiet.seq > self._naive.last_seq:
            return False
        return not self._missed(branch, _footprint(quiet).reads, quiet.seq)

    def judged(
        self, engine: Engine, branch: str, runs: tuple[Observation, ...], verdicts: tuple[Verdict, ...], fresh: bool
    ) -> None:
        """After it: take in the accepted runs, and the quiet run if the engine kept it, which it may."""
        at = self._naive.last_seq - sum(map(_is_new, verdicts))
        node = _about(runs[0]).node
        if (branch, node) not in self._known and any(not _is_known(verdict) for verdict in verdicts):
            is_kept = engine.has_branch(branch) and bool(_all(engine, branch, node))
            if is_kept and not fresh:
                raise Disagreement(f"a run of {node} was kept although it was stale")
            if is_kept:
                self._known[branch, node] = Run(_about(runs[0]).fingerprint, _footprint(runs[0]).reads, at, 0)
            self._counts["runs kept" if is_kept else "runs dropped"] += 1
            self._counts["runs dropped without need"] += fresh and not is_kept
        made = {run.local_seq: run for run in runs if run.local_seq}
        for verdict in verdicts:
            if isinstance(verdict, Accepted) and not verdict.replayed and verdict.local_seq in made:
                run, commit = made[verdict.local_seq], self._naive.history[verdict.seq - 1].commit
                if run.place in lost_results(commit):
                    continue  # The result that it made is not in the log.
                key, changed_at = (branch, _about(run).node), verdict.seq
                if not commit.operations:
                    changed_at = self._known[key].changed_at if key in self._known else 0
                self._known[key] = Run(_about(run).fingerprint, _footprint(run).reads, verdict.seq, changed_at)

    def forget(self, branch: str) -> None:
        """It was merged or deleted."""
        self._known = {key: run for key, run in self._known.items() if key[0] != branch}

    # ---- comparing -------------------------------------------------------------------------------

    def compare(self, engine: Engine) -> None:
        """Everything that is known on every branch, and whether it is clean."""
        for branch in self._naive.branches:
            if branch in self._naive.deleted:
                continue
            found = {each.node: each for each in _all(engine, branch)}
            expected = {node: run for (on, node), run in self._known.items() if on == branch}
            if found.keys() != expected.keys():
                raise Disagreement(
                    f"on {branch} {sorted(map(str, found))} are observed, not {sorted(map(str, expected))}"
                )
            for node, run in expected.items():
                self._compare(branch, found[node], run)

    def _compare(self, branch: str, found: Observed, run: Run) -> None:
        kept = (found.fingerprint, found.verified_at, found.changed_at)
        reads = tuple(Touched(read.doc, read.path, read.depth) for read in found.reads)
        if kept != (run.fingerprint, run.verified_at, run.changed_at) or reads != run.reads:
            raise Disagreement(f"{found} on {branch} should be {run}")
        missed = self._missed(branch, run.reads, run.verified_at)
        if missed and not found.stale:
            raise Disagreement(f"{found.node} on {branch} is taken for clean and missed the writes at {missed}")
        self._counts["nodes compared"] += 1
        self._counts["nodes dirty without need"] += bool(found.stale) and not missed

    def _missed(self, branch: str, reads: tuple[Touched, ...], seq: int) -> list[int]:
        return [
            missed
            for read in reads
            for missed in self._naive.missed(NOBODY, branch, Read(read.doc, read.path, read.depth, seq))
        ]


def _encoded(node: NodeKey, fingerprint: str, reads: tuple[Touched, ...], order: int) -> tuple[bytes, bytes, int]:
    return encode_part(About(node, "computed", fingerprint)), encode_part(Footprint(reads)), order


def _observed_place(commit: Commit) -> int:
    """The place of the result of a wave whose run is observed."""
    return commit.local_seq % len(commit.results) if commit.results else 0


def _about(run: Observation) -> About:
    return decode_about(run.about)


def _footprint(run: Observation) -> Footprint:
    return decode_footprint(run.footprint, STORED_VALUE_LIMITS)


def _is_known(verdict: Verdict) -> bool:
    return isinstance(verdict, Accepted) and verdict.replayed


def _is_new(verdict: Verdict) -> bool:
    return isinstance(verdict, Accepted) and not verdict.replayed


def _all(engine: Engine, branch: str, node: NodeKey | None = None) -> list[Observed]:
    """Return the observations of all nodes, or of one, read in short pages."""
    piece, member = (node.piece, node.member) if node is not None else ("", "")
    found: list[Observed] = []
    after: NodeKey | None = None
    while True:
        page = engine.query_observations(QueryObservations(0, piece, None, member, None, after, 7), branch=branch)
        if not isinstance(page, Observations):
            raise Disagreement(f"a page of observations is {page}")
        found += page.observed
        if page.next is None:
            return found
        after = page.next
