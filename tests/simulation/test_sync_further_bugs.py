"""More bugs that the simulation finds within 2,000 histories: access, branches, and what others may plant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from headwater.data.address import DocKey
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine import Engine, Hub, Limits, Peer, PeerState, asking
from headwater.engine.access import Access
from headwater.engine.asking import answered
from headwater.engine.branches import Branch, Branches
from headwater.engine.follow import reached
from headwater.engine.group import Group
from headwater.engine.heads import Head, Heads
from headwater.engine.merge import Merge
from headwater.engine.outgoing import Outgoing
from headwater.engine.preconditions import Preconditions
from headwater.engine.recovery import Recovery
from headwater.engine.sessions import Session, Sessions, token_digest
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify import numbers
from headwater.engine.watching import LinksFrom, Watching
from headwater.protocol.commit import MAIN, Commit, EntityAbsent, Read
from headwater.protocol.messages import Answer, DocChange, Query, State, Watch, Way, Whole, state_of, whole_of
from headwater.protocol.verdict import Accepted, Rejection, RuleRefused, Verdict
from headwater.replica import Layer, Link, Transaction
from headwater.replica import Session as ReplicaSession
from headwater.replica.pending import Pending
from headwater.testing.sim_attempts import stood_on
from tests.counts import sampled
from tests.simulation.test_sync_bugs import Bug, _named, found_after

# ---- access ----------------------------------------------------------------------------------------


def access_checked_only_at_open() -> AbstractContextManager[object]:
    """Whoever was let in hears everything for as long as the connection lasts."""
    return patch.object(Hub, "_recheck_access", lambda self: None)


def access_cached_over_a_revoke() -> AbstractContextManager[object]:
    """The access document is read once in the life of a server."""
    document, begin = Access.document, Access.__init__
    kept: dict[int, MaybeValue] = {}

    def begun(self: Access, *collaborators: Any) -> None:
        kept.pop(id(self), None)
        begin(self, *collaborators)

    def cached(self: Access) -> MaybeValue:
        if id(self) not in kept:
            kept[id(self)] = document(self)
        return kept[id(self)]

    return _all(patch.object(Access, "__init__", begun), patch.object(Access, "document", cached))


def access_never_shrinks() -> AbstractContextManager[object]:
    """Whoever could write once can write for ever."""
    right_of, begin = Access.right_of, Access.__init__
    most: dict[str, Any] = {}

    def begun(self: Access, *collaborators: Any) -> None:
        most.clear()
        begin(self, *collaborators)

    def kept(self: Access, principal: str) -> Any:
        most[principal] = max(most.get(principal, 0), right_of(self, principal))
        return most[principal]

    return _all(patch.object(Access, "__init__", begun), patch.object(Access, "right_of", kept))


def sessions_share_their_documents() -> AbstractContextManager[object]:
    may_see = Access.may_see
    return patch.object(
        Access, "may_see", lambda self, doc, *who: doc.scope.startswith("session:") or may_see(self, doc, *who)
    )


def links_lead_anywhere() -> AbstractContextManager[object]:
    """What links lead to is told without a look at whose it is."""

    def followed(self: Watching, peer: Peer, roots: Iterable[DocKey], links_from: LinksFrom) -> list[DocKey]:
        return reached(roots, links_from, self._limits)

    return patch.object(Watching, "_followed", followed)


def everybody_writes_on_branches() -> AbstractContextManager[object]:
    refusal = Access.refusal

    def refused(self: Access, session: Session, commit: Commit) -> RuleRefused | None:
        return refusal(self, session, commit) if commit.branch == MAIN else None

    return patch.object(Access, "refusal", refused)


def access_changes_beside_others() -> AbstractContextManager[object]:
    """A change of access is taken in whatever company it comes."""
    change = Access._refused_change

    def refused(self: Access, principal: str, right: Any, commit: Commit) -> RuleRefused | None:
        alone = tuple(op for op in commit.operations if op.doc.id == "$access")
        commit = msgspec.structs.replace(commit, operations=alone, branch=MAIN)
        return change(self, principal, right, commit)

    return patch.object(Access, "_refused_change", refused)


def sessions_belong_to_everybody() -> AbstractContextManager[object]:
    opened = Sessions._open

    def open_any(self: Sessions, key: str, principal: str, now_us: int) -> Session:
        row = self._store.session_of(key)
        return opened(self, key, row.principal if row is not None else principal, now_us)

    return patch.object(Sessions, "_open", open_any)


# ---- branches --------------------------------------------------------------------------------------


def branches_are_told_to_main() -> AbstractContextManager[object]:
    spread = Hub._spread

    def told(self: Hub, author: str, commit: Commit, seq: int) -> None:
        spread(self, author, msgspec.structs.replace(commit, branch=MAIN), seq)

    return patch.object(Hub, "_spread", told)


def main_is_told_to_branches() -> AbstractContextManager[object]:
    """Whoever watches a document hears of it, whatever branch it changed on."""
    spread = Hub._spread

    def told(self: Hub, author: str, commit: Commit, seq: int) -> None:
        for branch in {name for name, _ in self._watching.watchers} | {commit.branch}:
            spread(self, author, msgspec.structs.replace(commit, branch=branch), seq)

    return patch.object(Hub, "_spread", told)


def watches_read_main() -> AbstractContextManager[object]:
    def state(self: Watching, peer: Peer, doc: DocKey) -> State:
        found = self._engine.read(doc)
        return state_of(doc, found.seq, found.value)

    return patch.object(Watching, "state", state)


def a_branch_sees_on() -> AbstractContextManager[object]:
    """What a branch has not written it reads from its parent as that is now."""

    def inherited(self: Heads, branch: Branch, key: DocKey, doc: int) -> tuple[MaybeValue, int]:
        if branch.parent is None:
            return ABSENT, 0
        head = self.get(branch.parent, key)
        return head.value, head.seq or head.inherited_seq

    return patch.object(Heads, "_inherited", inherited)


def a_fork_begins_too_late() -> AbstractContextManager[object]:
    fork = Branches.fork

    def forked(self: Branches, name: str, parent: Branch, at_seq: int, now_us: int) -> Branch:
        last = self._store.last_row()
        return fork(self, name, parent, last.seq + last.commits - 1 if last is not None else 0, now_us)

    return patch.object(Branches, "fork", forked)


def a_merge_forgets_a_document() -> AbstractContextManager[object]:
    prepared = Merge.prepared

    def fewer(self: Merge, branch: Branch, session: Session) -> Any:
        diff, commit = prepared(self, branch, session)
        if commit is not None and len(commit.operations) > 1:
            commit = msgspec.structs.replace(commit, operations=commit.operations[1:])
        return diff, commit

    return patch.object(Merge, "prepared", fewer)


def a_merge_overwrites() -> AbstractContextManager[object]:
    """What collides is merged all the same."""
    return patch.object(Merge, "_collisions", lambda self, *args: [])


def a_deleted_branch_goes_on() -> AbstractContextManager[object]:
    find = Branches.find
    return patch.object(Branches, "find", lambda self, name: self._by_name.get(name) or find(self, name))


def a_replay_is_answered_for_now() -> AbstractContextManager[object]:
    """A commit that is sent again is said to have landed where the log ends."""
    known = Group._known_verdict

    def answered(self: Group, session: Session, commit: Commit) -> Verdict:
        verdict = known(self, session, commit)
        return Accepted(verdict.local_seq, self._log.last_seq, True) if isinstance(verdict, Accepted) else verdict

    return patch.object(Group, "_known_verdict", answered)


# ---- sessions, durability --------------------------------------------------------------------------


def groups_are_not_synced() -> AbstractContextManager[object]:
    """A verdict leaves before the disk has it, if several frames came together."""
    submit = Engine.submit_group

    def submitted(self: Engine, batch: Any, **how: Any) -> Any:
        store = self._store
        if len(batch) > 1 and isinstance(store, SqliteStore):
            store._db.run("PRAGMA synchronous=OFF")
        try:
            return submit(self, batch, **how)
        finally:
            if len(batch) > 1 and isinstance(store, SqliteStore):
                store._db.run("PRAGMA synchronous=FULL")

    return patch.object(Engine, "submit_group", submitted)


def waves_are_not_synced() -> AbstractContextManager[object]:
    submit = Engine.submit_group

    def submitted(self: Engine, batch: Any, **how: Any) -> Any:
        store = self._store
        if any(len(frame) > 1 for _, frame in batch) and isinstance(store, SqliteStore):
            store._db.run("PRAGMA synchronous=OFF")
        try:
            return submit(self, batch, **how)
        finally:
            if isinstance(store, SqliteStore):
                store._db.run("PRAGMA synchronous=FULL")

    return patch.object(Engine, "submit_group", submitted)


def an_opening_acknowledges_one_more() -> AbstractContextManager[object]:
    acknowledge = Engine.acknowledge
    return patch.object(Engine, "acknowledge", lambda self, key, local_seq: acknowledge(self, key, local_seq + 1))


def an_ack_is_one_more() -> AbstractContextManager[object]:
    def noted(self: Sessions, session: Session, local_seq: int) -> None:
        session.acked = max(session.acked, local_seq + 1)
        session.unstored_refusals = True  # so that it is stored with the next frame

    return patch.object(Sessions, "note_acknowledged", noted)


def a_wave_is_judged_backwards() -> AbstractContextManager[object]:
    judged = Group._judged

    def backwards(self: Group, session: Session, frame: Any, encodings: list[bytes], observed: Any) -> list[Verdict]:
        return list(reversed(judged(self, session, tuple(reversed(frame)), list(reversed(encodings)), observed)))

    return patch.object(Group, "_judged", backwards)


def a_wave_is_answered_backwards() -> AbstractContextManager[object]:
    answer = Hub._answer

    def answered(self: Hub, peer: Peer, frame: Any, outcome: Any) -> None:
        if isinstance(outcome, tuple) and all(isinstance(verdict, Accepted) for verdict in outcome):
            seqs = [verdict.seq for verdict in reversed(outcome)]
            outcome = tuple(
                msgspec.structs.replace(verdict, seq=seq) for verdict, seq in zip(outcome, seqs, strict=True)
            )
        answer(self, peer, frame, outcome)

    return patch.object(Hub, "_answer", answered)


def a_token_works_again_after_a_crash() -> AbstractContextManager[object]:
    """What is on the disk lags one token behind, and both are taken after a restart."""
    forget, take_over = Sessions.forget, Sessions.take_over
    used: dict[str, set[str]] = {}
    restarted: set[str] = set()

    def forgot(self: Sessions) -> None:
        restarted.update(used)
        forget(self)

    def taken(self: Sessions, session: Session, resume: str, following: str) -> None:
        if session.key in restarted and token_digest(resume) in used.get(session.key, ()):
            restarted.discard(session.key)
            resume_row = session.row._replace(resume=token_digest(resume))
            session.row = resume_row
        take_over(self, session, resume, following)
        used.setdefault(session.key, set()).add(token_digest(resume))

    return _all(patch.object(Sessions, "forget", forgot), patch.object(Sessions, "take_over", taken))


def a_takeover_leaves_both() -> AbstractContextManager[object]:
    take_over = Hub._take_over

    def taken(self: Hub, peer: Peer, *more: Any) -> bool:
        former = self._peers.get(peer.session)
        resumed = take_over(self, peer, *more)
        if former is not None:
            former.state = PeerState.OPEN
        return resumed

    return patch.object(Hub, "_take_over", taken)


def an_evicted_session_forgets_its_refusals() -> AbstractContextManager[object]:
    def evict(self: Sessions) -> bool:
        while len(self._by_key) > self._limits.cached_sessions:
            self._by_key.popitem(last=False)
        return False

    return patch.object(Sessions, "evict", evict)


def landed_is_whatever_was_judged() -> AbstractContextManager[object]:
    """What was refused is said to have landed, where the log ends."""

    def landed(self: Engine, session: str, local_seqs: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        owner = self.session(session)
        places = {n: self._parts.sessions.place_of(owner, n) for n in local_seqs if 0 < n <= owner.last}
        return tuple((n, place[0] if place is not None else self.last_seq) for n, place in places.items())

    return patch.object(Engine, "landed", landed)


def compaction_forgets_keys() -> AbstractContextManager[object]:
    """History is given up although a session may still send it again."""

    def drop(self: SqliteStore, before_seq: int) -> int:
        self._db.run("DELETE FROM log WHERE seq + count <= ?", (before_seq,))
        return self._db.changes

    return patch.object(SqliteStore, "drop_rows", drop)


def recovery_stops_short() -> AbstractContextManager[object]:
    """Opening a space brings its heads up to the log, but for the last row."""
    follow = Recovery._follow

    def short(self: Recovery, row: Any, heads: Any) -> None:
        if row.seq + row.commits <= self._log.last_seq:
            follow(self, row, heads)

    return patch.object(Recovery, "_follow", short)


# ---- documents, telling ----------------------------------------------------------------------------


def a_watch_misses_the_first_change() -> AbstractContextManager[object]:
    watch, note = Hub._watch, Peer.note
    fresh: set[tuple[int, DocKey]] = set()

    def watched(self: Hub, peer: Peer, message: Watch) -> None:
        watch(self, peer, message)
        fresh.update((id(peer), selector.doc) for selector in message.selectors)

    def noted(self: Peer, change: DocChange) -> None:
        if (id(self), change.doc) in fresh:
            fresh.discard((id(self), change.doc))
            return
        note(self, change)

    return _all(patch.object(Hub, "_watch", watched), patch.object(Peer, "note", noted))


def coalescing_drops_a_tombstone() -> AbstractContextManager[object]:
    def whole(doc: DocKey, seq: int, value: MaybeValue, way: Way | None = None) -> Whole:
        return whole_of(doc, seq, {} if value is ABSENT else value, way)

    return patch("headwater.engine.watching.whole_of", whole)


def an_evicted_document_is_absent() -> AbstractContextManager[object]:
    trim, load, forget = Heads.trim, Heads._load, Heads.forget
    evicted: set[tuple[int, DocKey]] = set()

    def forgot(self: Heads) -> None:
        evicted.clear()
        forget(self)

    def trimmed(self: Heads) -> None:
        before = set(self._cache)
        trim(self)
        evicted.update(before - set(self._cache))

    def loaded(self: Heads, branch: Branch, key: DocKey) -> Head:
        head = load(self, branch, key)
        if (branch.id, key) in evicted:
            head.value = ABSENT
        return head

    return _all(
        patch.object(Heads, "forget", forgot),
        patch.object(Heads, "trim", trimmed),
        patch.object(Heads, "_load", loaded),
    )


def an_ack_opens_no_window() -> AbstractContextManager[object]:
    """A slow peer is never told what was merged while its window was full."""
    flush = Hub._flush

    def flushed(self: Hub, peer: Peer, **options: Any) -> None:
        unacked = peer.unacked
        flush(self, peer, **options)
        peer.unacked = max(peer.unacked, unacked + 1)
        if peer.unacked >= 3:
            peer._changes.clear()
            peer._merged.clear()

    return patch.object(Hub, "_flush", flushed)


def watches_are_let_go_in_silence() -> AbstractContextManager[object]:
    """After its time a lost connection's watches are gone, and the session is told that they are not."""

    def expire(self: Hub) -> None:
        now = self._clock.now_us()
        for kept in self._kept.values():
            if kept.until_us <= now:
                for doc in kept.peer.watched:
                    self._watching.watchers.get((kept.peer.branch, doc), {}).pop(kept.peer, None)
                kept.peer.watched.clear()

    return patch.object(Hub, "expire", expire)


def no_catching_up() -> AbstractContextManager[object]:
    """What happened while a connection was lost is not told on the next."""
    take_over = Hub._take_over

    def taken(self: Hub, peer: Peer, *more: Any) -> bool:
        resumed = take_over(self, peer, *more)
        peer._merged.clear()
        return resumed

    return patch.object(Hub, "_take_over", taken)


def news_in_the_wrong_order() -> AbstractContextManager[object]:
    take = Peer.take

    def taken(self: Peer) -> Any:
        changes, merged = take(self)
        return list(reversed(changes)), merged

    return patch.object(Peer, "take", taken)


def preconditions_are_not_looked_at() -> AbstractContextManager[object]:
    return patch.object(Preconditions, "failure", lambda self, *args: None)


def a_tombstone_counts_as_absent() -> AbstractContextManager[object]:
    why_not = Preconditions._why_not

    def why(self: Preconditions, condition: Any, session: Session, branch: Branch) -> str | None:
        if isinstance(condition, EntityAbsent) and self._heads.get(branch, condition.doc).value is ABSENT:
            return None
        return why_not(self, condition, session, branch)

    return patch.object(Preconditions, "_why_not", why)


def events_are_lost() -> AbstractContextManager[object]:
    return patch.object(Outgoing, "keep", lambda self, *about: None)


def a_query_is_answered_for_now() -> AbstractContextManager[object]:
    """Whoever asks for the past hears the present."""

    def now(engine: Engine, peer: Peer, message: Query, limits: Limits) -> Answer:
        return answered(engine, peer, msgspec.structs.replace(message, at=None), limits)

    return patch.object(asking, "answered", now)


def a_query_looks_at_main() -> AbstractContextManager[object]:
    def on_main(engine: Engine, peer: Peer, message: Query, limits: Limits) -> Answer:
        branch, peer.branch = peer.branch, MAIN
        try:
            return answered(engine, peer, message, limits)
        finally:
            peer.branch = branch

    return patch.object(asking, "answered", on_main)


def retry_before_the_winner_is_here() -> AbstractContextManager[object]:
    return patch.object(ReplicaSession, "ready", lambda self, conflict: self.link is Link.UP)


def duplicates_of_waves() -> AbstractContextManager[object]:
    """A wave that comes twice is judged twice."""
    replayed = Group._replayed
    return patch.object(
        Group, "_replayed", lambda self, session, frame: replayed(self, session, frame) if len(frame) == 1 else []
    )


def duplicates_after_a_restart() -> AbstractContextManager[object]:
    """What a session has in the log is only known to the life of the server that took it in."""
    return _all(
        patch.object(Sessions, "logged", lambda self, session, local_seq: None),
        patch.object(SqliteStore, "row_of_session", lambda self, session, local_seq: None),
    )


def the_cascade_is_one_level_deep() -> AbstractContextManager[object]:
    fall = Pending._fall

    def fell(self: Pending, rejections: Mapping[int, Rejection]) -> list[Layer]:
        directly = {number for number, layer in self._standing.items() if stood_on(layer.commit) & set(rejections)}
        spared = {number: layer for number, layer in self._standing.items() if number not in directly}
        for number in spared:
            del self._standing[number]
        fallen = fall(self, rejections)
        self._standing.update({number: layer for number, layer in spared.items() if number in self.live_layers})
        return fallen

    return patch.object(Pending, "_fall", fell)


def only_exact_layers_are_named() -> AbstractContextManager[object]:
    """A layer that wrote above or below what was read had no say in it."""
    original = Transaction.reads

    def reads(self: Transaction) -> tuple[Read, ...]:
        pending, found = self.documents._home.pending, []
        for read in original(self):
            layers = [(number, pending.get(number)) for number in numbers(read.layers)]
            exact = [(n, n) for n, layer in layers if layer is not None and read.path in layer.written(read.doc)]
            found.append(msgspec.structs.replace(read, layers=tuple(exact)))
        return tuple(found)

    return patch.object(Transaction, "reads", reads)


@contextmanager
def _all(*patches: AbstractContextManager[object]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield


BUGS = [
    Bug(plant.__name__.replace("_", " "), plant)
    for plant in (
        access_checked_only_at_open,
        access_cached_over_a_revoke,
        access_never_shrinks,
        sessions_share_their_documents,
        links_lead_anywhere,
        everybody_writes_on_branches,
        access_changes_beside_others,
        sessions_belong_to_everybody,
        branches_are_told_to_main,
        main_is_told_to_branches,
        watches_read_main,
        a_branch_sees_on,
        a_fork_begins_too_late,
        a_merge_forgets_a_document,
        a_merge_overwrites,
        a_deleted_branch_goes_on,
        a_replay_is_answered_for_now,
        groups_are_not_synced,
        waves_are_not_synced,
        an_opening_acknowledges_one_more,
        an_ack_is_one_more,
        a_wave_is_judged_backwards,
        a_wave_is_answered_backwards,
        a_token_works_again_after_a_crash,
        a_takeover_leaves_both,
        an_evicted_session_forgets_its_refusals,
        landed_is_whatever_was_judged,
        compaction_forgets_keys,
        recovery_stops_short,
        a_watch_misses_the_first_change,
        coalescing_drops_a_tombstone,
        an_evicted_document_is_absent,
        an_ack_opens_no_window,
        watches_are_let_go_in_silence,
        no_catching_up,
        news_in_the_wrong_order,
        preconditions_are_not_looked_at,
        a_tombstone_counts_as_absent,
        events_are_lost,
        a_query_is_answered_for_now,
        a_query_looks_at_main,
        retry_before_the_winner_is_here,
        duplicates_of_waves,
        duplicates_after_a_restart,
        the_cascade_is_one_level_deep,
        only_exact_layers_are_named,
    )
]


@pytest.mark.random
@pytest.mark.parametrize("bug", sampled(_named(BUGS)))
def test_a_further_planted_bug_is_found(bug: Bug) -> None:
    seeds, finding = found_after(bug)
    print(f"{bug.name}: found in history {seeds}: {finding[:200]}")
