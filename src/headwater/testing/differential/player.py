"""Plays the steps of a schedule on an engine and on the naive model, and compares their answers.

The player draws nothing: the same steps give the same result. A step that makes no sense at its place, because a
schedule was shortened, is left out on both sides. A difference raises `Disagreement` at once.

`ReadComparison` reads a space in every way, now, in the past and on every branch, and compares with folding its log
(C11).

`compare_merge` merges a branch on both sides. The naive definition: a document changed if it differs from the value
that the parent already has; each change is a deep read of its path as it was at the fork, over the branch's earlier
merges. A merge is refused if and only if such a read would be, or an over-approximation says so.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, assert_never

from headwater.clock import VirtualClock
from headwater.data.address import Depth, DocKey
from headwater.data.value import Absent, equal, lookup
from headwater.engine import BranchDiff, Engine, HistoricDocument
from headwater.engine.store.port import Store
from headwater.engine.verify import NaiveSpace, verify_store
from headwater.errors import AbsentError, HeadwaterError
from headwater.protocol.commit import MAIN, Commit, Frame, Read
from headwater.protocol.reactions import Claim, Claimed, Subscribe
from headwater.protocol.verdict import Rejected, Verdict
from headwater.testing.differential.agreement import Agreement, Disagreement
from headwater.testing.differential.approximations import Circumstances, explain
from headwater.testing.differential.draws import DOCS
from headwater.testing.differential.observation_model import ObservedModel
from headwater.testing.differential.schedules import (
    JOB,
    LEASE,
    REACTION,
    Acknowledge,
    Compact,
    DeleteBranch,
    Fork,
    Look,
    MergeBranch,
    Profile,
    Restart,
    Step,
    Submit,
    TakeLease,
)
from headwater.testing.simulation.oracle import merge_session

EMITTER: Final = "emitter"
"""The session that emits the job."""


def compare_merge(engine: Engine, naive: NaiveSpace, name: str, around: Circumstances) -> None:
    """Merge a branch on both sides."""
    parent = naive.branches[name].parent or MAIN
    session = merge_session(name)
    reads = _Reads(naive, name, session)
    found, verdict = engine.merge(name)
    changed = {doc for doc in DOCS if not equal(naive.value(doc, name, found.since), naive.value(doc, name))}
    if {change.doc for change in found.changes} != changed or found.parent != parent:
        raise Disagreement(f"merging {name} would change {changed}, the engine says {found}")
    _compare_collisions(naive, reads, parent, found, around)
    if verdict is None:
        if found.changes and not found.collisions:
            raise Disagreement(f"merging {name} did nothing, although nothing stands in the way: {found}")
        return
    if found.collisions or isinstance(verdict, Rejected):
        raise Disagreement(f"merging {name} answered {verdict} to {found}")
    logged = engine.changes(since=verdict.seq - 1).items[0]
    judgement = naive.judge(session, logged.commit)
    if judgement or logged.session != session or logged.commit.branch != parent:
        raise Disagreement(f"merging {name} wrote {logged}: {judgement}")
    if naive.accept(session, logged.commit) != verdict.seq:
        raise Disagreement(f"merging {name} got seq {verdict.seq}, the log ends at {naive.last_seq}")
    _compare_outcome(naive, logged.commit, name, parent)


class _Reads:
    """The reads behind a change of the branch, for the naive model to judge."""

    __slots__ = ("_fork_seq", "_layers", "session")

    def __init__(self, naive: NaiveSpace, name: str, session: str) -> None:
        self.session = session
        self._fork_seq = naive.branches[name].fork_seq
        own = [past.commit.local_seq for past in naive.history if past.session == session]
        self._layers = tuple((number, number) for number in own)

    def of(self, found: BranchDiff) -> list[Read]:
        return [
            Read(change.doc, patch.path, Depth.DEEP, self._fork_seq, self._layers)
            for change in found.changes
            for patch in change.patches
        ]


def _compare_collisions(
    naive: NaiveSpace, reads: _Reads, parent: str, found: BranchDiff, around: Circumstances
) -> None:
    reported = {(each.doc, each.path) for each in found.collisions}
    # As a whole, a document is merged over what the parent derived since the fork.
    replaced = {change.doc for change in found.changes if all(not patch.path for patch in change.patches)}
    for read in reads.of(found):
        missed = naive.missed(reads.session, parent, read)
        if read.doc in replaced and _is_derived(naive, parent, read.doc, naive.branches[found.branch].fork_seq):
            continue
        if missed and (read.doc, read.path) not in reported:
            raise Disagreement(f"merging {found.branch} overwrites {missed[-1]}, which it never saw: {found}")
        for collision in found.collisions:
            if (collision.doc, collision.path) == (read.doc, read.path):
                kind = explain(naive, reads.session, parent, read, collision.seq, around)
                if kind is None:
                    raise Disagreement(f"merging {found.branch}: nothing explains {collision}")


def _is_derived(naive: NaiveSpace, branch: str, doc: DocKey, since: int) -> bool:
    """Whether there are writes of a branch to a document after a seq, and all of them were derived."""
    line = [past for past in naive.history if past.commit.branch == branch and past.seq > since]
    made = [past.commit.provenance.derived for past in line if naive.written(doc, branch, past.seq) == past.seq]
    return bool(made) and all(made)


def _compare_outcome(naive: NaiveSpace, commit: Commit, name: str, parent: str) -> None:
    """Check that, where the merge changed something, the parent now shows the branch's value."""
    for operation in commit.operations:
        ours, theirs = naive.value(operation.doc, parent), naive.value(operation.doc, name)
        for patch in operation.patches:
            if not equal(lookup(ours, patch.path), lookup(theirs, patch.path)):
                raise Disagreement(f"merging {name} with {patch} made {ours!r} of {theirs!r}")


class ReadComparison:
    """Reads everything through an engine and compares it with the naive model."""

    __slots__ = ("_counts", "_engine", "_naive")

    def __init__(self, engine: Engine, naive: NaiveSpace, counts: Counter[str]) -> None:
        self._engine = engine
        self._naive = naive
        self._counts = counts

    def at(self, at: int) -> None:
        """Compare the present, and the past at a seq that is still kept."""
        naive, engine = self._naive, self._engine
        for branch, line in naive.branches.items():
            if branch in naive.deleted:
                self._expect_absent(branch, naive.last_seq)
                continue
            moment = max(at, line.fork_seq)
            if line.fork_seq:
                self._expect_absent(branch, line.fork_seq - 1)
            for doc in DOCS:
                self._same(branch, naive.last_seq, engine.read(doc, branch=branch))
                self._same(branch, moment, engine.read(doc, branch=branch, at=moment))
            self._look_at_pages(branch)
            self._look_at_events(branch)
        self._look_at_changes(at)

    def _same(self, branch: str, at: int, read: HistoricDocument) -> None:
        self._counts["reads"] += 1
        folded, written = self._naive.value(read.doc, branch, at), self._naive.written(read.doc, branch, at)
        if not equal(read.value, folded) or read.seq != written:
            raise Disagreement(
                f"C11: {read.doc} on {branch} at {at} is {folded!r}, written at {written}; the engine has {read}"
            )

    def _expect_absent(self, branch: str, at: int) -> None:
        try:
            self._engine.read(DOCS[0], branch=branch, at=at)
        except AbsentError:
            return
        raise Disagreement(f"C11: {branch} can be read at {at}, where it does not exist")

    def _look_at_pages(self, branch: str) -> None:
        for scope in ("space", "user:ann"):
            found: list[HistoricDocument] = []
            after: str | None = ""
            while after is not None:
                page = self._engine.documents(scope, branch=branch, after=after, limit=2)
                found += page.items
                after = page.next
            present = [
                doc
                for doc in sorted(DOCS)
                if doc.scope == scope and not isinstance(self._naive.value(doc, branch), Absent)
            ]
            if [document.doc for document in found] != present:
                raise Disagreement(f"C11: the documents of {scope} on {branch} are {present}, not {found}")
            for document in found:
                self._same(branch, self._naive.last_seq, document)

    def _look_at_events(self, branch: str) -> None:
        """Sent on this branch, and handled by no later commit of it; those that are due, in pages."""
        expected = sorted((seq, event.id, event.due_us) for event, seq in self._naive.events(branch))
        for due_by_us in (0, 4, 8):
            found: list[tuple[int, str, int]] = []
            after: tuple[int, str] | None = (0, "")
            while after is not None:
                page = self._engine.events(branch=branch, due_by_us=due_by_us, after=after, limit=2)
                found += [(event.seq, event.id, event.due_us) for event in page.items]
                after = page.next
                next_due = min([due for _, _, due in expected if due > due_by_us], default=None)
                if page.next_due_us != next_due:
                    raise Disagreement(f"the next event of {branch} is due at {next_due}, not at {page.next_due_us}")
            if found != [each for each in expected if each[2] <= due_by_us]:
                raise Disagreement(f"the events of {branch} due by {due_by_us} are {expected}, not {found}")
            self._counts["events"] += len(found)

    def _look_at_changes(self, since: int) -> None:
        live = [name for name in self._naive.branches if name not in self._naive.deleted]
        for branch in (None, *live):
            found: list[tuple[int, str, Commit]] = []
            after: str | None = str(since)
            while after is not None:
                page = self._engine.changes(since=int(after), branch=branch, limit=3)
                found += [(logged.seq, logged.session, logged.commit) for logged in page.items]
                after = page.next
            expected = [
                tuple(past) for past in self._naive.history if past.seq > since and branch in (None, past.commit.branch)
            ]
            if found != expected:
                raise Disagreement(f"C11: the changes of {branch} since {since} are {expected}, not {found}")


class Player:
    """One engine and one naive model, fed with the same steps."""

    __slots__ = ("_agreement", "_clock", "_counts", "_observed", "_profile", "_store", "engine", "naive")

    def __init__(self, store: Store, profile: Profile, clock: VirtualClock, counts: Counter[str]) -> None:
        self._store = store
        self._profile = profile
        self._clock = clock
        self._counts = counts
        self.naive = NaiveSpace()
        self._agreement = Agreement(self.naive, profile.limits, counts)
        self._observed = ObservedModel(self.naive, counts)
        self.engine = Engine(store, clock=clock, limits=profile.limits)
        for key in "pqrs"[: profile.sessions]:
            self.engine.open_session(key)
            self._agreement.memory.opened(key)
            self._agreement.memory.group_ended()

    def do(self, step: Step) -> list[tuple[Verdict, ...] | None]:
        """Play one step. For a Submit: the verdicts of each frame, None where it was no frame."""
        self._clock.advance(1_000)
        try:
            return self._do(step)
        except HeadwaterError as error:
            raise Disagreement(f"{step} made the engine raise {_told(error)}") from error

    def _do(self, step: Step) -> list[tuple[Verdict, ...] | None]:
        naive = self.naive
        match step:
            case Submit(batch):
                return self._submit(batch)
            case Restart(clean):
                if clean:
                    self.engine.drop_caches()
                self.engine = Engine(self._store, clock=self._clock, limits=self._profile.limits)
                self._agreement.memory.restarted()
            case Fork(name, parent, at):
                self._fork(name, parent, at)
            case DeleteBranch(name):
                if self._is_child(name) and not any(naive.branches[each].parent == name for each in self._live()):
                    self.engine.delete_branch(name)
                    naive.delete_branch(name)
                    self._observed.forget(name)
            case MergeBranch(name):
                if self._is_child(name):
                    self._merge(name)
            case Compact(before):
                self._agreement.kept_from = self.engine.compact(before)
            case Acknowledge(session, local_seq):
                self.engine.acknowledge(session, local_seq)
                self._agreement.memory.used(session)
                if local_seq > naive.acked.get(session, 0):
                    naive.acknowledge(session, local_seq)
                    self._agreement.memory.stored(session)
            case TakeLease():
                self._take_lease()
            case Look(at):
                ReadComparison(self.engine, naive, self._counts).at(self._kept(at))
                self._observed.compare(self.engine)
            case _:
                assert_never(step)
        return []

    def close(self) -> None:
        self._store.close()

    def _submit(self, batch: tuple[tuple[str, Frame], ...]) -> list[tuple[Verdict, ...] | None]:
        runs = {
            at: (frame[0].branch, self._observed.runs(session, frame))
            for at, (session, frame) in enumerate(batch)
            if frame
        }
        outcomes = self.engine.submit_group(batch, observed=runs)
        for at, ((session, frame), outcome) in enumerate(zip(batch, outcomes, strict=True)):
            quiet = runs[at][1][0] if at in runs else None
            fresh = quiet is not None and self._observed.would_keep(frame[0].branch, quiet)
            self._agreement.on_frame(session, frame, outcome)
            if at in runs and not isinstance(outcome, Exception):
                self._observed.judged(self.engine, frame[0].branch, runs[at][1], outcome, fresh)
        self._agreement.memory.group_ended()
        if self.engine.last_seq != self.naive.last_seq:
            raise Disagreement(f"the log ends at {self.engine.last_seq}, not at {self.naive.last_seq}")
        return [None if isinstance(outcome, Exception) else outcome for outcome in outcomes]

    def _take_lease(self) -> None:
        """Claim the target for an instant, so that the next claim gets it again, under a new token."""
        engine = self.engine
        if LEASE not in self.naive.leases:
            engine.deliver(Subscribe(1, REACTION, JOB.topic))
            engine.open_session(EMITTER)
            self._agreement.memory.opened(EMITTER)
            self._agreement.memory.group_ended()
            self._submit(((EMITTER, (Commit(1, records=(JOB,)),)),))
        answer = engine.deliver(Claim(1, "holder", (REACTION,), lease_us=1))
        if not isinstance(answer, Claimed) or [grant.hold.key for grant in answer.grants] != [JOB.key]:
            raise Disagreement(f"the target of the job is due, and its claim was answered with {answer}")
        self.naive.leases[LEASE] = answer.grants[0].hold.token

    # ---- branches --------------------------------------------------------------------------------

    def _merge(self, name: str) -> None:
        """Merges are commits of a session like others, except that no client sends them."""
        session, before = merge_session(name), self.naive.last_seq
        self._agreement.memory.opened(session)
        compare_merge(self.engine, self.naive, name, self._agreement.around(session))
        if self.naive.last_seq > before:
            self._observed.forget(name)
            self._agreement.memory.stored(session)
            self._agreement.memory.group_ended()

    def _live(self) -> list[str]:
        return [name for name in self.naive.branches if name not in self.naive.deleted]

    def _is_child(self, name: str) -> bool:
        return name in self._live() and self.naive.branches[name].parent is not None

    def _kept(self, at: int) -> int:
        """A moment that can still be read."""
        return min(max(at, self._agreement.kept_from - 1), self.naive.last_seq)

    def _fork(self, name: str, parent: str, at: int) -> None:
        naive = self.naive
        if name in naive.branches or parent not in self._live():
            return
        at = self._kept(max(at, naive.branches[parent].fork_seq))
        self.engine.fork(name, parent=parent, at=at)
        naive.fork(name, parent, at)

    def verify_history(self) -> None:
        """Check that the history oracle reads the stored file and finds nothing."""
        report = verify_store(self._store)
        if report.violation is not None:
            raise Disagreement(f"the history oracle says {report.violation}")
        kept = self.naive.last_seq - self._agreement.kept_from + 1
        if report.commits != kept:
            raise Disagreement(f"the history oracle saw {report.commits} commits of {kept}")
        self._counts["verified"] += report.commits


def _told(error: BaseException) -> str:
    """Return the error, and its cause: a failed recovery hides why there was one."""
    told = f"{type(error).__name__}: {error}"
    return f"{told} (after {_told(error.__context__)})" if error.__context__ is not None else told
