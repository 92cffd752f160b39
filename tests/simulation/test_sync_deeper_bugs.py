"""Bugs in corners that few histories reach: what stays here, what is told late, tokens, widened watches, backups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from headwater.data.address import DocKey
from headwater.engine import Engine, Hub, Limits, Peer
from headwater.engine import access as access_module
from headwater.engine import asking as asking_module
from headwater.engine import hub as hub_module
from headwater.engine.access import Access
from headwater.engine.admission import Admission
from headwater.engine.branches import Branch
from headwater.engine.compaction import Compaction
from headwater.engine.opening import opened as open_session
from headwater.engine.preconditions import Preconditions
from headwater.engine.sessions import Session as EngineSession
from headwater.engine.sessions import Sessions, token_digest
from headwater.engine.watching import Watching
from headwater.protocol.commit import Commit, OriginCommitted
from headwater.protocol.messages import Open, Query, Renew, Renewed, Sync, Transact
from headwater.protocol.verdict import Rejected, Rejection, RuleRefused
from headwater.replica import Fate, Layer, Link, Replica, Session, Transaction
from headwater.replica import replica as replica_module
from headwater.replica import session as session_module
from headwater.replica.confirmed import Confirmed
from headwater.replica.pending import Pending
from headwater.replica.resuming import replayed
from headwater.replica.telling import told as tell
from headwater.replica.watches import Watches
from headwater.replica.wave import thinned as thin
from headwater.runtime import Reception
from tests.counts import sampled
from tests.simulation.test_sync_bugs import Bug, _named, found_after

Planted = AbstractContextManager[object]

# ---- what stays here -------------------------------------------------------------------------------


def local_layers_yield_to_nobody() -> Planted:
    return patch.object(Replica, "_yielded", lambda self, documents: [])


def local_layers_yield_to_anything_heard() -> Planted:
    """What stays here goes with the next news, whatever that is about."""
    original = Replica._yielded

    def yielded(self: Replica, documents: Any) -> list[Layer]:
        return original(self, [*documents, *(d for layer in self.pending.local() for d in _documents(self, layer))])

    return patch.object(Replica, "_yielded", yielded)


def _documents(replica: Replica, layer: Layer) -> list[Any]:
    return [replica.documents.hold(doc) for doc in layer.docs()]


def local_layers_are_never_taken_back() -> Planted:
    """After the right to write was given, what stayed here stays here."""
    return patch.object(Replica, "revert_local", lambda self: None)


def whoever_looks_at_a_local_layer_depends_on_nothing() -> Planted:
    original = Transaction.reads
    return patch.object(
        Transaction,
        "reads",
        lambda self: tuple(read for read in original(self) if (read.doc, read.path, read.depth) in self._reads),
    )


def one_refusal_keeps_everything_derived_here() -> Planted:
    """A handler's commit that is refused for access makes what is derived stay here, too."""
    original = Session._rejection

    def rejection(self: Session, told: Rejected) -> Rejection:
        if isinstance(told.rejection, RuleRefused) and told.rejection.rule == "access":
            self.replica.may_write = False
        return original(self, told)

    return patch.object(Session, "_rejection", rejection)


def a_session_never_learns_that_it_may_not_write() -> Planted:
    """What is derived is sent, refused, and derived again, for ever."""
    original = Session._take

    def take(self: Session, layer: Layer) -> None:
        self.replica.may_write = True
        original(self, layer)

    return patch.object(Session, "_take", take)


# ---- what is told late -----------------------------------------------------------------------------


def what_is_told_late_forgets_what_it_read() -> Planted:
    original = tell

    def told(layer: Layer, replica: Replica) -> None:
        layer.spots = ()
        original(layer, replica)

    return patch.object(replica_module, "told", told)


def news_are_heard_before_what_was_written_is_told() -> Planted:
    original = Replica.integrate

    def integrate(self: Replica, sync: Sync) -> None:
        untold, self.untold = self.untold, []
        original(self, sync)
        self.untold = [*untold, *self.untold]

    return patch.object(Replica, "integrate", integrate)


def what_is_told_late_is_as_of_now() -> Planted:
    """The basis is where confirmed state is when it is told, one too many."""
    original = tell

    def told(layer: Layer, replica: Replica) -> None:
        layer.basis = max(0, layer.basis - 1)
        original(layer, replica)

    return patch.object(replica_module, "told", told)


def what_is_told_late_is_never_settled() -> Planted:
    original: Any = Replica.write_whole

    def write_whole(self: Replica, *arguments: Any) -> Any:
        return original(self, *arguments[:-1], None)

    return patch.object(Replica, "write_whole", write_whole)


def what_is_told_late_says_nothing_to_the_feed() -> Planted:
    original = Replica.write_whole

    def write_whole(self: Replica, *arguments: Any) -> Layer | None:
        with patch.object(type(self.feed), "emit", lambda feed, notification: None):
            return original(self, *arguments)

    return patch.object(Replica, "write_whole", write_whole)


def open_transactions_do_not_keep_what_is_replaced() -> Planted:
    """A document that is replaced is replaced for transactions that are open, too."""
    original = Replica.write_whole

    def write_whole(self: Replica, *arguments: Any) -> Layer | None:
        with patch.object(Transaction, "keep", lambda transaction, document: None):
            return original(self, *arguments)

    return patch.object(Replica, "write_whole", write_whole)


# ---- layers ----------------------------------------------------------------------------------------


def layers_that_do_not_fit_are_named() -> Planted:
    return patch.object(Layer, "fits", lambda self, doc: True)


def a_wave_leans_on_nothing() -> Planted:
    """Reads that the frame answers are left out, and what answers them is not said."""
    original = thin

    def thinned(frame: list[Commit]) -> tuple[Commit, ...]:
        return tuple(msgspec.structs.replace(commit, after=()) for commit in original(frame))

    return patch.object(session_module, "thinned", thinned)


def waves_are_replayed_one_by_one() -> Planted:
    def one_by_one(layers: Iterable[Layer]) -> Iterator[Transact]:
        return (Transact((layer.commit,)) for layer in layers)

    return patch("headwater.replica.session.replayed", one_by_one)


def replays_come_backwards() -> Planted:
    return patch("headwater.replica.session.replayed", lambda layers: replayed(list(layers)[::-1]))


def the_doomed_are_not_replayed() -> Planted:
    """What fell with another is not sent again after a lost connection, and its verdict is waited for."""
    original = Pending.undecided
    return patch.object(
        Pending, "undecided", lambda self: [layer for layer in original(self) if layer.fate is not Fate.DEAD]
    )


def open_transactions_may_name_nothing() -> Planted:
    """What an open transaction may still name is given up."""
    return patch.object(Replica, "may_name", lambda self: self.next_local_seq)


def when_a_document_was_written_is_not_kept() -> Planted:
    original = Confirmed.integrate

    def integrate(self: Confirmed, changes: Any, seq: int, pending: Pending) -> Any:
        documents = original(self, changes, seq, pending)
        for document in documents:
            document.written = min(document.written, seq - 1)
        return documents

    return patch.object(Confirmed, "integrate", integrate)


# ---- watches and tokens ----------------------------------------------------------------------------


def a_watch_that_cannot_be_widened_is_given_up() -> Planted:
    original = Watches.failed

    def failed(self: Watches, number: int) -> tuple[DocKey, ...] | None:
        self._narrower.pop(number, None)
        return original(self, number)

    return patch.object(Watches, "failed", failed)


def what_links_left_stays() -> Planted:
    """A document that no link leads to any more is shown as it was."""
    return patch.object(Watches, "_leave", lambda self, doc: self._followed.pop(doc, None))


def nobody_hears_what_links_left() -> Planted:
    original = Watching.refollow

    def refollow(self: Watching, peer: Peer, changed: set[DocKey]) -> Any:
        return original(self, peer, changed)[0], []

    return patch.object(Watching, "refollow", refollow)


def a_lost_arrival_is_not_repeated() -> Planted:
    """What came by following links in a frame that was lost is taken for told."""
    original = Watching.hand_over

    def hand_over(self: Watching, former: Peer, peer: Peer, watching: Any) -> None:
        original(self, former, peer, watching)
        peer.unsure = set()

    return patch.object(Watching, "hand_over", hand_over)


def one_watch_less_is_none() -> Planted:
    """A document that two watches want is dropped with the first."""

    def drop(self: Watching, peer: Peer, doc: DocKey, id: int) -> list[DocKey]:
        self._remove(peer, doc)
        return [doc]

    return patch.object(Watching, "_drop_claim", drop)


def a_renewed_token_is_forgotten() -> Planted:
    """It is told on this connection; the next one begins with the old."""

    def renew(self: Session, token: str) -> None:
        if self.link in (Link.GREETING, Link.OPENING, Link.UP):
            self.outgoing.append(Renew(token))

    return patch.object(Session, "renew", renew)


def a_renewed_token_is_kept_for_the_next_connection() -> Planted:
    def renew(self: Session, token: str) -> None:
        self._token = token

    return patch.object(Session, "renew", renew)


def a_renewed_token_may_be_anybody_s() -> Planted:
    def renew(self: Reception, message: Renew) -> None:
        self.peer.principal = self._authenticate(message.token)
        self._answer(Renewed())

    return patch.object(Reception, "_renew", renew)


def renewals_are_not_answered() -> Planted:
    original = Hub._handle

    def handle(self: Hub, peer: Peer, message: Any) -> None:
        if not isinstance(message, Renew):
            original(self, peer, message)

    return patch.object(Hub, "_handle", handle)


# ---- sessions and verdicts -------------------------------------------------------------------------


def refusals_are_not_stored() -> Planted:
    """A no that came in one frame with a yes is forgotten by a restart."""

    def keep(self: Sessions, session: EngineSession) -> None:
        session.unstored_refusals = False

    return patch.object(Sessions, "keep_judged", keep)


def tokens_do_not_rotate() -> Planted:
    def take_over(self: Sessions, session: EngineSession, resume: str, following: str) -> None:
        session.row = session.row._replace(resume=session.row.resume or token_digest(following))
        self._store.put_session(session.row)

    return patch.object(Sessions, "take_over", take_over)


@contextmanager
def a_no_is_told_after_the_next_yes() -> Iterator[None]:
    """Whoever waits for a refusal hears first what became of what it sent afterwards."""
    kept: dict[Peer, tuple[Any, Any]] = {}
    original = Hub._answer

    def answer(self: Hub, peer: Peer, frame: tuple[Commit, ...], outcome: Any) -> None:
        late = kept.pop(peer, None)
        if late is None and isinstance(outcome, tuple) and all(isinstance(verdict, Rejected) for verdict in outcome):
            kept[peer] = (frame, outcome)
            return
        original(self, peer, frame, outcome)
        if late is not None:
            original(self, peer, *late)

    with patch.object(Hub, "_answer", answer):
        yield


def forgotten_commits_touched_nothing() -> Planted:
    """An own commit that is only in the log any more is in nobody's way."""
    return patch.object(Admission, "_own_unnamed_in_log", lambda self, *arguments: (0, False))


def what_is_forgotten_is_not_noted() -> Planted:
    original = Sessions.trim

    def trim(self: Sessions, session: EngineSession) -> None:
        forgotten = session.forgotten_seq
        original(self, session)
        session.forgotten_seq = forgotten

    return patch.object(Sessions, "trim", trim)


def a_restored_log_is_taken_for_the_old_one() -> Planted:
    """Whoever has seen more than there is goes on, as if it had not."""
    original = open_session

    def opened(engine: Engine, peer: Peer, message: Open, limits: Limits) -> Any:
        seen = min(message.seen, engine.last_seq)
        return original(engine, peer, msgspec.structs.replace(message, seen=seen, chain=None), limits)

    return patch.object(hub_module, "opened", opened)


# ---- admission -------------------------------------------------------------------------------------


def leaning_is_not_looked_at() -> Planted:
    original = Admission.judge

    def judge(self: Admission, session: EngineSession, branch: Branch, commit: Commit, size: int) -> Any:
        return original(self, session, branch, msgspec.structs.replace(commit, after=()), size)

    return patch.object(Admission, "judge", judge)


def an_origin_may_have_failed() -> Planted:
    original = Preconditions._why_not

    def why_not(self: Preconditions, condition: Any, session: EngineSession, branch: Branch) -> str | None:
        return None if isinstance(condition, OriginCommitted) else original(self, condition, session, branch)

    return patch.object(Preconditions, "_why_not", why_not)


# ---- hub, retention, access ------------------------------------------------------------------------


def one_merged_document_is_not_told() -> Planted:
    original = Peer.take

    def take(self: Peer) -> Any:
        changes, merged = original(self)
        return changes, merged[1:]

    return patch.object(Peer, "take", take)


def whoever_has_seen_more_is_resumed() -> Planted:
    """A session that saw more than this connection was told is taken up as if it had not."""
    original = Hub._take_over

    def take_over(self: Hub, peer: Peer, seen: int, watching: Any) -> bool:
        kept = self._kept.get(peer.session)
        former = self._peers.get(peer.session) or (kept.peer if kept is not None else None)
        if former is not None:
            former.sent_seq = max(former.sent_seq, seen)
            former.branch = peer.branch
        return original(self, peer, seen, watching)

    return patch.object(Hub, "_take_over", take_over)


def compaction_rebases_nothing() -> Planted:
    return patch.object(Compaction, "_rebase", lambda self, branch, at: None)


def compaction_forgets_forks() -> Planted:
    def boundary(self: Compaction, before: int) -> int:
        row = self._store.row_at(min(before, self._log.last_seq))
        return row.seq if row is not None else 1

    return patch.object(Compaction, "_boundary", boundary)


def users_share_their_documents() -> Planted:
    may_see = Access.may_see
    return patch.object(
        Access, "may_see", lambda self, doc, *who: doc.scope.startswith("user:") or may_see(self, doc, *who)
    )


def a_space_may_lose_its_owners() -> Planted:
    return patch.object(access_module, "_malformed", lambda value: None)


def readers_send_events() -> Planted:
    refusal = Access.refusal

    def refused(self: Access, session: EngineSession, commit: Commit) -> RuleRefused | None:
        return refusal(self, session, msgspec.structs.replace(commit, events=(), records=()))

    return patch.object(Access, "refusal", refused)


def everybody_may_ask() -> Planted:
    answered = asking_module.answered

    def asked(engine: Engine, peer: Peer, message: Query, limits: Limits) -> Any:
        principal, peer.principal = peer.principal, ""
        try:
            return answered(engine, peer, message, limits)
        finally:
            peer.principal = principal

    return patch.object(asking_module, "answered", asked)


def watches_are_for_everybody() -> Planted:
    original = Watching.selected

    def selected(self: Watching, peer: Peer, message: Any) -> list[DocKey]:
        principal, peer.principal = peer.principal, ""
        try:
            return original(self, peer, message)
        finally:
            peer.principal = principal

    return patch.object(Watching, "selected", selected)


BUGS = [
    Bug(plant.__name__.replace("_", " "), plant)
    for plant in (
        local_layers_yield_to_nobody,
        local_layers_yield_to_anything_heard,
        local_layers_are_never_taken_back,
        whoever_looks_at_a_local_layer_depends_on_nothing,
        one_refusal_keeps_everything_derived_here,
        a_session_never_learns_that_it_may_not_write,
        what_is_told_late_forgets_what_it_read,
        news_are_heard_before_what_was_written_is_told,
        what_is_told_late_is_as_of_now,
        what_is_told_late_is_never_settled,
        what_is_told_late_says_nothing_to_the_feed,
        open_transactions_do_not_keep_what_is_replaced,
        layers_that_do_not_fit_are_named,
        a_wave_leans_on_nothing,
        waves_are_replayed_one_by_one,
        replays_come_backwards,
        the_doomed_are_not_replayed,
        open_transactions_may_name_nothing,
        when_a_document_was_written_is_not_kept,
        a_watch_that_cannot_be_widened_is_given_up,
        what_links_left_stays,
        nobody_hears_what_links_left,
        a_lost_arrival_is_not_repeated,
        one_watch_less_is_none,
        a_renewed_token_is_forgotten,
        a_renewed_token_is_kept_for_the_next_connection,
        a_renewed_token_may_be_anybody_s,
        renewals_are_not_answered,
        refusals_are_not_stored,
        tokens_do_not_rotate,
        a_no_is_told_after_the_next_yes,
        forgotten_commits_touched_nothing,
        what_is_forgotten_is_not_noted,
        a_restored_log_is_taken_for_the_old_one,
        leaning_is_not_looked_at,
        an_origin_may_have_failed,
        one_merged_document_is_not_told,
        whoever_has_seen_more_is_resumed,
        compaction_rebases_nothing,
        compaction_forgets_forks,
        a_space_may_lose_its_owners,
        users_share_their_documents,
        readers_send_events,
        everybody_may_ask,
        watches_are_for_everybody,
    )
]


@pytest.mark.random
@pytest.mark.parametrize("bug", sampled(_named(BUGS)))
def test_a_bug_in_a_corner_is_found(bug: Bug) -> None:
    seeds, finding = found_after(bug)
    print(f"{bug.name}: found in history {seeds}: {finding[:200]}")
