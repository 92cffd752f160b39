"""The engine of one space: a facade over its parts (`EngineParts`), and the owner of their one failure rule.

Every call runs on one thread. A change of the space is one store transaction. If the store fails inside it, its fate is
unknown: everything in memory is dropped, the store is reopened, and the state that recovery finds on the disk is the
truth (C6, C7). The caller gets the error and no verdict; clients replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from headwater.clock import Clock, RealClock
from headwater.data.address import DocKey, check_id, check_scope
from headwater.data.value import MAX_INT, MaybeValue
from headwater.engine.admission.access import ANYONE, Access, Founders, Right
from headwater.engine.admission.admission import Admission
from headwater.engine.admission.merge import BranchDiff, Merge
from headwater.engine.admission.preconditions import Preconditions
from headwater.engine.admission.user_stock import UserStock
from headwater.engine.commit_group import CommitGroup, Outcome
from headwater.engine.delivery.commit_outbox import CommitOutbox, EventPage, EventPlace
from headwater.engine.delivery.facade import DeliveryFacade
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.log.branches import Branch, Branches
from headwater.engine.log.compaction import Compaction
from headwater.engine.log.heads import Head, Heads
from headwater.engine.log.history import HistoricDocument, History, HistoryPage, Logged
from headwater.engine.log.log import Log
from headwater.engine.log.recovery import Recovery
from headwater.engine.log.sessions import Sessions, StoredSession, merge_session
from headwater.engine.log.snapshots import Snapshots
from headwater.engine.observations.queries import ObservationQueries
from headwater.engine.observations.reader_index import ReaderIndex
from headwater.engine.observations.writer import ObservationWriter
from headwater.engine.planned_writes import PlannedWrites
from headwater.engine.store.port import Store
from headwater.errors import HeadwaterError, ProtocolError, StorageError
from headwater.protocol.commit import MAIN, Commit, Frame, Read
from headwater.protocol.messages import ObservationAnswer, ObservationQuestion
from headwater.protocol.observations import Observation, QueryCurrent, QueryReaders, QueryWrittenDocuments
from headwater.protocol.reactions import Delivering, Delivers
from headwater.protocol.verdict import Verdict

T = TypeVar("T")
Runs = tuple[str, tuple[Observation, ...]]  # the observations that came with a frame, and their branch
Batch = Sequence[tuple[str, Frame]]  # frames with the keys of their sessions
First = Callable[[], bool]
_NONE: Final[Runs] = (MAIN, ())


def write_nothing() -> bool:
    """Write nothing in front of the frames of a group, and return that: False."""
    return False


class EngineParts:
    """The parts of one engine, on one store, and the parts that each receives. Decides nothing."""

    __slots__ = (
        "access",
        "admission",
        "branches",
        "commit_group",
        "commit_outbox",
        "compaction",
        "delivery",
        "heads",
        "history",
        "log",
        "merge",
        "observation_queries",
        "observation_writer",
        "readers",
        "recovery",
        "sessions",
        "user_stock",
    )

    def __init__(self, store: Store, clock: Clock, limits: Limits, founders: Founders | None, observes: bool) -> None:
        """`founders`: the principals that may make the space; None: access is not checked."""
        self.log = log = Log(store, limits)
        self.branches = branches = Branches(store, limits)
        self.heads = heads = Heads(store, log, branches, limits)
        self.sessions = sessions = Sessions(store, log, limits)
        self.delivery = delivery = DeliveryFacade(store, log, clock, limits)
        preconditions = Preconditions(heads, sessions, delivery.targets)
        self.admission = admission = Admission(log, heads, sessions, preconditions, limits)
        snapshots = Snapshots(store, heads, limits)
        self.access = access = None if founders is None else Access(heads, branches, founders)
        self.commit_outbox = commit_outbox = CommitOutbox(store, log, delivery, limits)
        self.user_stock = user_stock = UserStock(store, heads, access, limits)
        commit_outbox.on_dropped = user_stock.note_dropped
        self.readers = readers = ReaderIndex(store)
        self.observation_writer = ObservationWriter(store, log, heads, admission, readers, limits, is_on=observes)
        heads.on_write_back = self.observation_writer.write_back
        self.observation_queries = ObservationQueries(store, log, heads, admission, limits, is_on=observes)
        self.commit_group = CommitGroup(
            store,
            log,
            heads,
            branches,
            sessions,
            admission,
            PlannedWrites(store, heads, snapshots, readers, limits),
            commit_outbox,
            user_stock,
            self.observation_writer,
            access,
            clock,
            limits,
        )
        self.history = history = History(store, log, heads, branches, sessions, limits)
        self.merge = Merge(store, log, heads, branches, admission, history, limits)
        self.compaction = Compaction(store, log, heads, branches, snapshots, limits)
        self.recovery = Recovery(store, log, branches, limits, self.observation_writer.restore)


class Engine:
    """One space. Accepts exactly the commits it should, durably, at a cost that does not grow with history."""

    __slots__ = ("_broken", "_clock", "_closed", "_parts", "_store", "delivery")

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        access: bool = False,
        founders: Founders = ANYONE,
        observes: bool = True,
    ) -> None:
        """Open a space.

        `founders`: the principals that may make the space, where access is checked. `observes` False: observations of
        nodes are neither kept nor answered.
        """
        self._store = store
        self._clock = clock or RealClock()
        self._broken = self._closed = False
        self._parts = EngineParts(store, self._clock, limits, founders if access else None, observes)
        self.delivery = self._parts.delivery
        self._parts.recovery.run()
        if not self._parts.branches.find(MAIN):
            with self._transaction():
                self._parts.branches.ensure_main(self._clock.now_us())

    # ---- writing ---------------------------------------------------------------------------------

    def open_session(self, key: str, principal: str = "") -> StoredSession:
        """Make the session, or take it up again with everything it is still owed."""
        with self._transaction():
            session = self._parts.sessions.open(key, principal, self._clock.now_us())
            self._parts.sessions.evict()
            return session

    def resume_session(self, key: str, principal: str, resume: str, following: str) -> StoredSession:
        """Open a session for a connection, which must hold its token if it has one, and names the next."""
        with self._transaction():
            session = self._parts.sessions.open(key, principal, self._clock.now_us())
            self._parts.sessions.take_over(session, resume, following)
            self._parts.sessions.evict()
            return session

    def close_session(self, key: str, acked: int) -> None:
        with self._transaction():
            self._parts.sessions.close(self._parts.sessions.get_foreign(key), acked)

    def acknowledge(self, key: str, local_seq: int) -> None:
        with self._transaction():
            self._parts.sessions.acknowledge(self._parts.sessions.get_foreign(key), local_seq)

    def note_acknowledged(self, key: str, local_seq: int) -> None:
        """Hear an acknowledgement; it is stored with some later accepted frame."""
        self._parts.sessions.note_acknowledged(self.session(key), local_seq)

    def _commit_own(self, session: StoredSession, commit: Commit) -> tuple[Verdict, ...]:
        """A commit of the engine's own, inside the open transaction."""
        self._parts.commit_group.begin()
        outcome = self._parts.commit_group.judge_frame(session, (commit,))
        if isinstance(outcome, Exception):
            raise outcome
        self._parts.commit_group.finish()
        return outcome

    def submit(self, session: str, *frame: Commit) -> tuple[Verdict, ...]:
        """Commit one frame, durable when this returns. Raises ProtocolError or LimitError for an invalid frame."""
        outcome = self.submit_group([(session, frame)])[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def submit_group(
        self,
        batch: Batch,
        *,
        founds: bool = False,
        observed: Mapping[int, Runs] | None = None,
        first: First = write_nothing,
    ) -> list[Outcome]:
        """Commit many frames with one fsync. Verdicts leave only when all accepted commits are on the disk.

        `founds`: the space belongs to the first session whose commit is accepted, unless it has an owner. `observed`:
        the observations of a frame, by its index; such a frame may be empty. `first` runs before the frames, in the
        same transaction, and returns whether it wrote anything.
        """
        self._reopen_if_broken()
        store, group = self._store, self._parts.commit_group
        try:
            # fault engine.groups_not_synced: store.begin(synced=len(batch) == 1)
            # fault engine.waves_not_synced: store.begin(synced=all(len(frame) < 2 for _, frame in batch))
            store.begin()
            group.begin()
            is_written = first()
            alone = len(batch) == 1 and not founds
            take = self._judge_and_found if founds else self._judge
            runs = observed or {}
            outcomes: list[Outcome] = []
            for at, (key, frame) in enumerate(batch):
                outcomes.append(take(key, frame, alone, runs.get(at, _NONE)))
            if group.finish() or is_written:
                store.commit()
            else:
                store.rollback()
        except BaseException as error:
            # C6: a commit may have been admitted in memory that the disk does not have.
            self._recover(error, admitted=True)
            raise
        self._parts.heads.trim()
        return outcomes

    def _judge(self, key: str, frame: Frame, alone: bool, runs: Runs) -> Outcome:
        try:
            session = self._parts.sessions.get_foreign(key)
        except ProtocolError as error:
            return error
        if not frame and runs[1]:
            return self._parts.commit_group.observe_without_commits(session, *runs)
        return self._parts.commit_group.judge_frame(session, frame, alone=alone, observed=runs[1])

    def _judge_and_found(self, key: str, frame: Frame, alone: bool, runs: Runs) -> Outcome:
        outcome = self._judge(key, frame, alone, runs)
        self._parts.commit_group.found_space(key, outcome)
        return outcome

    # ---- reading ---------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        if self._closed or self._broken:
            self._reopen_if_broken()
        return self._parts.log.next_seq - 1

    @property
    def kept_from(self) -> int:
        """The first seq whose commit is kept: everything from the moment before it on can be read."""
        self._reopen_if_broken()
        return self._parts.log.kept_from

    def chain_at(self, seq: int) -> int | None:
        """Return the chain value that identifies the log up to `seq`, or None if the log does not end there."""
        self._reopen_if_broken()
        return self._parts.log.chain_at(seq)

    def may_have_ended_at(self, seq: int, chain: int) -> bool:
        """True if a client may have seen this log end so. False: it saw another log, before a backup was restored."""
        return self._read(lambda: self._parts.log.may_have_ended_at(seq, chain))

    def read(self, doc: DocKey, *, branch: str = MAIN, at: int | None = None) -> HistoricDocument:
        """A document now, or as it was at a seq. Its value is shared with the engine: look, do not change."""
        check_scope(doc.scope)
        check_id(doc.id)
        found = self._read(lambda: self._parts.history.read(doc, branch, at))
        self._parts.heads.trim()
        return found

    def read_all(self, docs: Sequence[DocKey], *, branch: str = MAIN) -> Iterator[tuple[DocKey, int, MaybeValue]]:
        """Documents as they are now, each with the seq that wrote it last."""
        self._reopen_if_broken()
        heads = self._parts.heads
        try:
            for head in heads.many(self._parts.branches.get(branch), docs):
                yield head.key, head.seq or head.inherited_seq, head.value
        finally:
            heads.trim()

    def prefetch(self, docs: Iterable[DocKey], *, branch: str = MAIN) -> None:
        """Rebuild documents that are about to be read, together, as far as memory for them goes."""
        self._read(lambda: self._parts.heads.prefetch(self._parts.branches.get(branch), docs))

    def documents(
        self,
        scope: str,
        *,
        branch: str = MAIN,
        after: str = "",
        limit: int | None = None,
        most_bytes: int | None = None,
    ) -> HistoryPage[HistoricDocument]:
        """The present documents of a scope, by id; a page holds one of them, or more of up to `most_bytes`."""
        return self._read(lambda: self._parts.history.documents(scope, branch, after, limit, most_bytes))

    def changes(self, *, since: int = 0, branch: str | None = None, limit: int | None = None) -> HistoryPage[Logged]:
        """The accepted commits after a seq, oldest first, of one branch or of all."""
        return self._read(lambda: self._parts.history.changes(since, branch, limit))

    def session(self, key: str) -> StoredSession:
        """A session that was opened before."""
        return self._read(lambda: self._parts.sessions.get(key))

    def find_accepted(self, session: str, local_seqs: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Which of these commits of a session were accepted, with their seqs."""
        owner = self.session(session)
        places = ((each, self._parts.sessions.place_of(owner, each)) for each in local_seqs if 0 < each <= owner.last)
        # fault engine.judged_is_landed: return tuple((n, place[0] if place else self.last_seq) for n, place in places)
        return tuple((local_seq, place[0]) for local_seq, place in places if place is not None)

    def find_superseded(self, session: str, waves: Iterable[int]) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Which results of accepted waves of a session were not accepted, by the numbers of the waves."""
        owner, sessions = self.session(session), self._parts.sessions
        found = [(each, sessions.wave_of(owner, each)) for each in waves]
        return tuple([(each, wave.lost) for each, wave in found if wave is not None and wave.lost])

    @property
    def drops_operations(self) -> bool:
        """True if the last group has a commit with an operation that changed nothing."""
        return self._parts.commit_group.drops_operations

    def effective(self, seq: int, commit: Commit) -> Commit:
        """Return a commit of the last group without the operations that changed nothing, for its watchers."""
        return self._parts.commit_group.effective(seq, commit)

    @property
    def is_founded(self) -> bool:
        """Whether it needs no owner, or has one."""
        return self._parts.access is None or self._read(self._parts.access.is_founded)

    def may_see(self, doc: DocKey, principal: str, session: str) -> bool:
        """Whether a user may read a document of this space, in that session."""
        access = self._parts.access
        return access is None or self._read(lambda: access.may_see(doc, principal, session))

    @property
    def access_advice(self) -> str:
        """How a user gets a right that is missing here."""
        return "" if self._parts.access is None else self._parts.access.advice

    def is_current(self, session: StoredSession, reads: tuple[Read, ...], *, branch: str = MAIN) -> bool:
        """Whether these reads would be admitted now: the one definition of "nothing I read has changed"."""
        parts = self._parts
        current = self._read(lambda: parts.admission.conflict(session, parts.branches.get(branch), reads) is None)
        parts.heads.trim()
        return current

    def right_of(self, principal: str) -> Right:
        """The most that a user may do in this space."""
        access = self._parts.access
        return Right.OWN if access is None else self._read(lambda: access.right_of(principal))

    # ---- stored events ---------------------------------------------------------------------------

    def events(
        self, *, branch: str = MAIN, due_by_us: int = MAX_INT, after: EventPlace = (0, ""), limit: int | None = None
    ) -> EventPage:
        """Events that were sent on a branch and are not handled yet, in the order of the log, if they are due."""
        size, parts = self._parts.history.page_size(limit), self._parts
        return self._read(lambda: parts.commit_outbox.page(parts.branches.get(branch), due_by_us, after, size))

    def newest_event(self, branch: str = MAIN) -> int:
        """The seq of the newest stored event of a branch; 0: there is none."""
        return self._read(lambda: self._parts.commit_outbox.newest(self._parts.branches.get(branch)))

    def query_observations(self, question: ObservationQuestion, *, branch: str = MAIN) -> ObservationAnswer:
        """Answer a question about the nodes of a branch and their reads."""
        writer = self._parts.observation_writer
        if writer.is_behind and not isinstance(question, QueryReaders | QueryWrittenDocuments | QueryCurrent):
            with self._transaction(synced=False):  # If it is lost, the log still has all of it.
                writer.write_back()
        return self._read(lambda: self._parts.observation_queries.answer(self._parts.branches.get(branch), question))

    def end_leases_of_former_owners(self, owner: str) -> None:
        """Make the targets due whose holders ran in a process that owned the directory before `owner`."""
        targets = self._parts.delivery.targets
        if self._read(lambda: targets.leased_by_former_owners(owner)):
            with self._transaction():
                while rows := targets.leased_by_former_owners(owner):
                    targets.end_leases(rows)

    def deliver(self, question: Delivers) -> Delivering:
        """Answer a worker or an operator about reactions."""
        with self._transaction(synced=self.delivery.is_urgent(question)):
            return self.delivery.answer(question)

    # ---- branches --------------------------------------------------------------------------------

    def has_branch(self, name: str) -> bool:
        return self._read(lambda: self._parts.branches.find(name) is not None)

    def branches(self, *, after: str = "", limit: int | None = None) -> HistoryPage[Branch]:
        """The branches that were not deleted, by name."""
        return self._read(lambda: self._parts.history.branches(after, limit))

    def fork(self, name: str, *, parent: str = MAIN, at: int | None = None) -> Branch:
        """A new branch that begins as the parent was at a seq, by default now. One row."""
        with self._transaction():
            source = self._parts.branches.get(parent)
            # fault engine.fork_too_late: seq = self._parts.log.last_seq
            seq = self._parts.history.checked_seq(source, at)
            return self._parts.branches.fork(name, source, seq, self._clock.now_us())

    def diff(self, branch: str, *, after: str = "", limit: int | None = None) -> BranchDiff:
        """Return the changes of a branch since its fork or last merge, with the collisions with its parent."""
        with self._transaction():
            return self._parts.merge.diff(self._parts.branches.get(branch), after, limit)

    def merge(self, branch: str) -> tuple[BranchDiff, Verdict | None]:
        """Write a branch's changes to its parent in one commit; with collisions nothing is written."""
        with self._transaction():
            child = self._parts.branches.get(branch)
            session = self._parts.sessions.open_own(merge_session(child.name), self._clock.now_us())
            diff, commit = self._parts.merge.prepare_commit(child, session)
            if commit is None:
                return diff, None
            outcome = self._commit_own(session, commit)
            self._parts.merge.record_merge(child, outcome[0], diff)
            self._parts.observation_writer.forget_branch(child)
        return diff, outcome[0]

    def delete_branch(self, name: str) -> None:
        with self._transaction():
            self._parts.heads.write_back()
            branch = self._parts.branches.get(name)
            self._parts.branches.delete(branch)
            self._parts.commit_outbox.forget_branch(branch)
            self._parts.user_stock.forget()
            self._parts.observation_writer.forget_branch(branch)
        self._parts.heads.forget()

    # ---- upkeep ----------------------------------------------------------------------------------

    def compact(self, before: int) -> int:
        """Give up history before a seq, as far as no branch or session needs it. Answers the seq it kept from."""
        with self._transaction():
            kept_from = self._parts.compaction.run(before)
        self._parts.log.reload()
        self._parts.sessions.forget_row()
        return kept_from

    def drop_caches(self) -> None:
        """Let go of every document in memory; it is read again when it is needed."""
        with self._transaction():
            self._parts.heads.write_back()
        self._parts.heads.forget()

    def size_in_memory(self, doc: DocKey, *, branch: str = MAIN) -> int | None:
        """About how many bytes a document has; 0: it is not there. None: the disk would have to be asked."""
        heads = self.heads_in_memory((doc,), branch=branch)
        return None if heads is None else heads[0].base_bytes + heads[0].patch_bytes

    def heads_in_memory(self, docs: Iterable[DocKey], *, branch: str = MAIN) -> list[Head] | None:
        """The heads of documents; None if the disk would have to be asked for one of them."""
        at = None if self._broken else self._parts.branches.find(branch)
        if at is None:
            return None
        in_memory = self._parts.heads.in_memory
        found: list[Head] = []
        for doc in docs:
            try:
                head = in_memory(at, doc)
            except HeadwaterError:
                return None  # Unknown. The work itself meets the error of the disk and raises it.
            if head is None or (head.inherited_seq and not head.seq):
                return None
            found.append(head)
        return found

    @property
    def bytes_held(self) -> int:
        """An estimate of the memory that cached documents take; `Limits.cache_bytes` bounds it."""
        return self._parts.heads.bytes_held

    def close(self) -> None:
        """Write back heads, so that opening is fast, and close the store."""
        if self._closed:
            return
        try:
            log, sessions = self._parts.log, self._parts.sessions
            if not self._broken and (log.last_seq > log.written_back or sessions.has_unstored()):
                with self._transaction():
                    sessions.keep_all_judged()
                    self._parts.heads.write_back()
        finally:
            self._closed = True
            self._store.close()

    # ---- failure ---------------------------------------------------------------------------------

    def _read(self, read: Callable[[], T]) -> T:
        self._reopen_if_broken()
        return read()

    @contextmanager
    def _transaction(self, *, synced: bool = True) -> Iterator[None]:
        self._reopen_if_broken()
        seq, written_back = self._parts.log.last_seq, self._parts.log.written_back
        is_behind = self._parts.observation_writer.is_behind  # Only memory and the log have some observations.
        try:
            self._store.begin(synced=synced)
            yield
            self._store.commit()
        except BaseException as error:
            moved = written_back != self._parts.log.written_back
            self._recover(error, admitted=seq != self._parts.log.last_seq, documents=moved or is_behind)
            raise

    def _recover(self, error: BaseException, *, admitted: bool, documents: bool = False) -> None:
        """C6: whatever failed, nothing in memory may claim more than the disk holds."""
        # fault+ engine.failed_commit_believed: return self._store.rollback(), self._parts.log.reload()
        self._broken = True  # C6: until the disk has been asked again, no answer comes from memory.
        self._parts.observation_writer.forget()
        self._parts.delivery.forget()
        self._parts.user_stock.forget()
        if isinstance(error, StorageError) or not isinstance(error, HeadwaterError):
            self._reopen_if_broken()
            return
        # A caller's mistake. As long as nothing was admitted, the memory of sessions is still true.
        self._store.rollback()
        sessions = self._parts.sessions
        if admitted:
            sessions.forget()
        else:
            sessions.forget_unstored()
        if admitted or documents:
            self._reload_documents()
        self._broken = False

    def _reopen_if_broken(self) -> None:
        """Reopen after a failure. If that fails too, this and every later call raises until it succeeds."""
        if self._closed:
            raise StorageError("this engine is closed. Open the space again.")
        if self._broken:
            self._store.reopen()
            self._reload()

    def _reload(self) -> None:
        # fault engine.memory_kept_after_failure:
        self._parts.sessions.forget()
        # fault engine.memory_kept_after_failure: self._broken = False
        self._reload_documents()

    def _reload_documents(self) -> None:
        self._parts.log.reload()
        self._parts.branches.reload()
        self._parts.heads.forget()
        self._parts.recovery.run()
        self._broken = False
