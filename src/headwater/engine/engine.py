"""The engine of one space: a facade over its parts, and the owner of their one failure rule.

Every call runs on one thread. A change of the space is one store transaction. If the store fails inside it,
its fate is unknown: everything in memory is dropped, the store is reopened, and what recovery finds on the
disk is the truth (C6, C7). The caller gets the error and no verdict; clients replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from headwater.clock import Clock, RealClock
from headwater.data.address import DocKey, check_id, check_scope
from headwater.engine.access import Access
from headwater.engine.admission import Admission
from headwater.engine.branches import Branch, Branches
from headwater.engine.compaction import Compaction
from headwater.engine.founding import found_after
from headwater.engine.group import Group, Outcome
from headwater.engine.heads import Heads
from headwater.engine.leases import Leases
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.log import Log
from headwater.engine.merge import BranchDiff, Merge
from headwater.engine.preconditions import Preconditions
from headwater.engine.reads import Document, Logged, Page, Reads
from headwater.engine.recovery import Recovery
from headwater.engine.sessions import Session, Sessions, merge_session
from headwater.engine.snapshots import Snapshots
from headwater.engine.store.port import LeaseRow, Store
from headwater.errors import HeadwaterError, ProtocolError, StorageError
from headwater.protocol.commit import MAIN, Commit, Frame, Read
from headwater.protocol.verdict import Verdict

T = TypeVar("T")


class Engine:
    """One space. Accepts exactly the commits it should, durably, at a cost that does not grow with history."""

    __slots__ = (
        "_access",
        "_admission",
        "_branches",
        "_broken",
        "_clock",
        "_closed",
        "_compaction",
        "_group",
        "_heads",
        "_leases",
        "_limits",
        "_log",
        "_merge",
        "_reads",
        "_recovery",
        "_sessions",
        "_snapshots",
        "_store",
    )

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        access: bool = False,
        owner: str = "",
    ) -> None:
        self._store = store
        self._clock = clock or RealClock()
        self._limits = limits
        self._broken = self._closed = False
        self._log = Log(store)
        self._branches = Branches(store, limits)
        self._heads = Heads(store, self._log, self._branches, limits)
        self._sessions = Sessions(store, self._log, limits)
        preconditions = Preconditions(store, self._heads, self._sessions)
        self._admission = Admission(self._log, self._heads, self._sessions, preconditions, limits)
        self._snapshots = Snapshots(store, self._heads, limits)
        self._access = Access(self._heads, self._branches, owner) if access else None
        self._group = Group(
            store,
            self._log,
            self._heads,
            self._branches,
            self._sessions,
            self._admission,
            self._snapshots,
            self._access,
            self._clock,
            limits,
        )
        self._reads = Reads(store, self._log, self._heads, self._branches, self._sessions, limits)
        self._leases = Leases(store, self._clock)
        self._merge = Merge(store, self._heads, self._branches, self._admission, self._reads, limits)
        self._compaction = Compaction(store, self._log, self._heads, self._branches, self._snapshots, limits)
        self._recovery = Recovery(store, self._log, self._branches)
        self._recovery.run()
        if not self._branches.find(MAIN):
            with self._transaction():
                self._branches.ensure_main(self._clock.now_us())

    # ---- writing ---------------------------------------------------------------------------------

    def open_session(self, key: str, principal: str = "") -> Session:
        """Make the session, or take it up again with everything it is still owed."""
        with self._transaction():
            session = self._sessions.open(key, principal, self._clock.now_us())
            self._sessions.evict()
            return session

    def resume_session(self, key: str, principal: str, resume: str, following: str) -> Session:
        """Open a session for a connection, which must hold its token if it has one, and names the next."""
        with self._transaction():
            session = self._sessions.open(key, principal, self._clock.now_us())
            self._sessions.take_over(session, resume, following)
            self._sessions.evict()
            return session

    def close_session(self, key: str, acked: int) -> None:
        with self._transaction():
            self._sessions.close(self._sessions.get_foreign(key), acked)

    def acknowledge(self, key: str, local_seq: int) -> None:
        with self._transaction():
            self._sessions.acknowledge(self._sessions.get_foreign(key), local_seq)

    def note_acknowledged(self, key: str, local_seq: int) -> None:
        """Hear an acknowledgement; it is stored with some later accepted frame."""
        self._sessions.note_acknowledged(self.session(key), local_seq)

    def _written(self, session: Session, commit: Commit) -> tuple[Verdict, ...]:
        """A commit of the engine's own, inside the open transaction."""
        self._group.begin()
        outcome = self._group.take(session, (commit,))
        if isinstance(outcome, Exception):
            raise outcome
        self._group.finish()
        return outcome

    def submit(self, session: str, *frame: Commit) -> tuple[Verdict, ...]:
        """One frame, durable when this returns. Raises ProtocolError or LimitError for what is no frame."""
        outcome = self.submit_group([(session, frame)])[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def submit_group(self, batch: Sequence[tuple[str, Frame]], *, founds: bool = False) -> list[Outcome]:
        """Many frames, one fsync. Verdicts leave only when all that was accepted is on the disk.

        `founds`: the space belongs to the first whose commit is accepted, unless it has an owner.
        """
        self._mend()
        store, group = self._store, self._group
        try:
            store.begin()
            group.begin()
            alone = len(batch) == 1 and not founds
            take = self._take_founding if founds else self._take
            outcomes = [take(key, frame, alone=alone) for key, frame in batch]
            if group.finish():
                store.commit()
            else:
                store.rollback()
        except BaseException as error:
            # C6: something may have been admitted in memory that the disk does not have.
            self._recover(error, admitted=True)
            raise
        self._heads.trim()
        return outcomes

    def _take(self, key: str, frame: Frame, *, alone: bool) -> Outcome:
        try:
            session = self._sessions.get_foreign(key)
        except ProtocolError as error:
            return error
        return self._group.take(session, frame, alone=alone)

    def _take_founding(self, key: str, frame: Frame, *, alone: bool) -> Outcome:
        outcome = self._take(key, frame, alone=alone)
        if self._access is not None and not isinstance(outcome, Exception):
            session = self._sessions.get(key)
            found_after(outcome, session, self._access, self._sessions, self._group, self._clock.now_us())
        return outcome

    # ---- reading ---------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        self._mend()
        return self._log.last_seq

    @property
    def kept_from(self) -> int:
        """The first seq whose commit is kept: everything from the moment before it on can be read."""
        self._mend()
        return self._log.kept_from

    def chain_at(self, seq: int) -> int | None:
        """What names the log up to its end, if that is where it ends."""
        self._mend()
        return self._log.chain_at(seq)

    def may_have_been(self, seq: int, chain: int) -> bool:
        """Whether somebody can have seen this log end so. False: it was another one, before a backup was restored."""
        return self._reading(lambda: self._log.may_have_been(seq, chain))

    def read(self, doc: DocKey, *, branch: str = MAIN, at: int | None = None) -> Document:
        """A document now, or as it was at a seq. Its value is shared with the engine: look, do not change."""
        check_scope(doc.scope)
        check_id(doc.id)
        found = self._reading(lambda: self._reads.read(doc, branch, at))
        self._heads.trim()
        return found

    def documents(
        self,
        scope: str,
        *,
        branch: str = MAIN,
        after: str = "",
        limit: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Document]:
        """The present documents of a scope, by id; a page holds one of them, or more of up to `most_bytes`."""
        return self._reading(lambda: self._reads.documents(scope, branch, after, limit, most_bytes))

    def changes(self, *, since: int = 0, branch: str | None = None, limit: int | None = None) -> Page[Logged]:
        """The accepted commits after a seq, oldest first, of one branch or of all."""
        return self._reading(lambda: self._reads.changes(since, branch, limit))

    def session(self, key: str) -> Session:
        """A session that was opened before."""
        return self._reading(lambda: self._sessions.get(key))

    def landed(self, session: str, local_seqs: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Which of these commits of a session were accepted, with their seqs."""
        owner = self.session(session)
        places = ((each, self._sessions.place_of(owner, each)) for each in local_seqs if 0 < each <= owner.last)
        return tuple((local_seq, place[0]) for local_seq, place in places if place is not None)

    @property
    def is_founded(self) -> bool:
        """Whether it needs no owner, or has one."""
        return self._access is None or self._reading(self._access.is_founded)

    def may_see(self, doc: DocKey, principal: str, session: str) -> bool:
        """Whether a user may read a document of this space, in that session."""
        access = self._access
        return access is None or self._reading(lambda: access.may_see(doc, principal, session))

    def is_current(self, session: Session, reads: tuple[Read, ...], *, branch: str = MAIN) -> bool:
        """Whether these reads would be admitted now: the one definition of "nothing I read has changed"."""
        current = self._reading(lambda: self._admission.conflict(session, self._branches.get(branch), reads) is None)
        self._heads.trim()
        return current

    # ---- branches --------------------------------------------------------------------------------

    def has_branch(self, name: str) -> bool:
        return self._reading(lambda: self._branches.find(name) is not None)

    def branches(self, *, after: str = "", limit: int | None = None) -> Page[Branch]:
        """The branches that were not deleted, by name."""
        return self._reading(lambda: self._reads.branches(after, limit))

    def fork(self, name: str, *, parent: str = MAIN, at: int | None = None) -> Branch:
        """A new branch that begins as the parent was at a seq, by default now. One row."""
        with self._transaction():
            source = self._branches.get(parent)
            seq = self._reads.checked_seq(source, at)
            return self._branches.fork(name, source, seq, self._clock.now_us())

    def diff(self, branch: str, *, after: str = "", limit: int | None = None) -> BranchDiff:
        """What a branch changed since its fork or last merge, and what of it collides with its parent."""
        with self._transaction():
            return self._merge.diff(self._branches.get(branch), after, limit)

    def merge(self, branch: str) -> tuple[BranchDiff, Verdict | None]:
        """Write a branch's changes to its parent in one commit; with collisions nothing is written."""
        with self._transaction():
            child = self._branches.get(branch)
            session = self._sessions.open_own(merge_session(child.name), self._clock.now_us())
            diff, commit = self._merge.prepared(child, session)
            if commit is None:
                return diff, None
            outcome = self._written(session, commit)
            self._merge.finished(child, outcome[0], diff)
        return diff, outcome[0]

    def delete_branch(self, name: str) -> None:
        with self._transaction():
            self._heads.write_back()
            self._branches.delete(self._branches.get(name))
        self._heads.forget()

    # ---- leases and upkeep -----------------------------------------------------------------------

    def acquire_lease(self, name: str, holder: str, duration_us: int) -> LeaseRow | None:
        with self._transaction():
            return self._leases.acquire(name, holder, duration_us)

    def renew_lease(self, name: str, token: int, duration_us: int) -> bool:
        with self._transaction():
            return self._leases.renew(name, token, duration_us)

    def release_lease(self, name: str, token: int) -> bool:
        with self._transaction():
            return self._leases.release(name, token)

    def compact(self, before: int) -> int:
        """Give up history before a seq, as far as no branch or session needs it. Answers the seq it kept from."""
        with self._transaction():
            kept_from = self._compaction.run(before)
        self._log.reload()
        self._sessions.forget_row()
        return kept_from

    def drop_caches(self) -> None:
        """Let go of every document in memory; it is read again when it is needed."""
        with self._transaction():
            self._heads.write_back()
        self._heads.forget()

    @property
    def bytes_held(self) -> int:
        """An estimate of the memory that cached documents take; `Limits.cache_bytes` bounds it."""
        return self._heads.bytes_held

    def close(self) -> None:
        """Write back what opening would otherwise have to find in the log, and let the store go."""
        if self._closed:
            return
        try:
            if not self._broken and (self._log.last_seq > self._log.written_back or self._sessions.has_unstored()):
                with self._transaction():
                    self._sessions.keep_all_judged()
                    self._heads.write_back()
        finally:
            self._closed = True
            self._store.close()

    # ---- failure ---------------------------------------------------------------------------------

    def _reading(self, read: Callable[[], T]) -> T:
        self._mend()
        return read()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._mend()
        seq, written_back = self._log.last_seq, self._log.written_back
        try:
            self._store.begin()
            yield
            self._store.commit()
        except BaseException as error:
            moved = written_back != self._log.written_back
            self._recover(error, admitted=seq != self._log.last_seq, documents=moved)
            raise

    def _recover(self, error: BaseException, *, admitted: bool, documents: bool = False) -> None:
        """C6: whatever failed, nothing in memory may claim more than the disk holds."""
        # C6: until the disk has been asked again, nobody gets an answer from memory.
        self._broken = True
        if isinstance(error, StorageError) or not isinstance(error, HeadwaterError):
            self._mend()
            return
        # A caller's mistake. As long as nothing was admitted, sessions keep what they remember.
        self._store.rollback()
        if admitted:
            self._sessions.forget()
        else:
            self._sessions.forget_unstored()
        if admitted or documents:
            self._reload_documents()
        self._broken = False

    def _mend(self) -> None:
        """Reopen after a failure. If that fails too, this and every later call raises until it succeeds."""
        if self._closed:
            raise StorageError("this engine is closed. Open the space again.")
        if self._broken:
            self._store.reopen()
            self._reload()

    def _reload(self) -> None:
        self._sessions.forget()
        self._reload_documents()

    def _reload_documents(self) -> None:
        self._log.reload()
        self._branches.reload()
        self._heads.forget()
        self._recovery.run()
        self._broken = False
