"""Events and topic records of commits: stored with the commit that sends them; an event is dropped with the commit that
handles it.

Owns the stored events and topic records of a space. An event belongs to the branch of its commit: a fork begins without
any, a merge brings none, and those of a deleted branch are deleted with it. Records of the main branch mark their
targets. Delivery itself is not the engine's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.data.codec import decode, encode
from headwater.data.value import MAX_INT, size_of
from headwater.engine.delivery.facade import DeliveryFacade
from headwater.engine.limits import Limits
from headwater.engine.log.branches import MAIN_ID, Branch
from headwater.engine.log.log import KEPT_SUM, Log, number_in_meta
from headwater.engine.log.sessions import StoredSession
from headwater.engine.store.port import EventRow, RecordRow, Store
from headwater.errors import AuthoringError
from headwater.protocol.commit import Commit
from headwater.protocol.messages import StoredEvent
from headwater.protocol.verdict import RuleRefused

EventPlace = tuple[int, str]
"""Where an event is among the others: the seq of its commit, then its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Stored events in the order of the log, and where the next page begins (None: there are no more).

    `next_due_us`: when the first of those is due that were not asked for because of their time.
    """

    items: tuple[StoredEvent, ...]
    next: EventPlace | None
    next_due_us: int | None


def _ignore(_: int, __: int) -> None:
    """Count no events."""


class CommitOutbox:
    """Events and records that were sent and are not handled yet. Writes inside the open store transaction."""

    __slots__ = ("_delivery", "_limits", "_log", "_store", "on_dropped")

    def __init__(self, store: Store, log: Log, delivery: DeliveryFacade, limits: Limits) -> None:
        # Called with the session and the time of an event that was handled.
        self.on_dropped: Callable[[int, int], object] = _ignore
        self._store = store
        self._log = log
        self._delivery = delivery
        self._limits = limits

    # ---- what a commit does ----------------------------------------------------------------------

    def refusal(self, commit: Commit) -> RuleRefused | None:
        """Return the reason why no retry can be accepted: too many events, a taken id, or a refusal of reactions."""
        most = self._limits.commit_events
        if len(commit.events) > most or len(commit.handled) > most:
            return RuleRefused(
                "commit_size",
                f"it sends {len(commit.events)} events and handles {len(commit.handled)}; the limit of both is {most}. "
                "Split it.",
            )
        refused = self._delivery.refusal(commit) if commit.delivered or commit.declared else None
        if refused is not None:
            return refused
        ids = set()
        for event in commit.events:
            stored = self._store.event(event.id)
            if stored is not None or event.id in ids:
                by = f"the commit at seq {stored.seq}" if stored is not None else "this very commit"
                return RuleRefused("event_id", f"event {event.id!r} was already sent by {by}")
            ids.add(event.id)
        return None

    def store_sent(self, session: StoredSession, branch: Branch, commit: Commit, seq: int, at_us: int) -> None:
        """C7: drop the handled events and store the sent ones, together with the rest of the commit or not at all."""
        if commit.handled:
            dropped = [self._store.drop_event(branch.id, id) for id in dict.fromkeys(commit.handled)]
            self._give_up(sum([row.seal for row in dropped if row is not None and row.seq < self._log.kept_from]))
            for row in dropped:
                if row is not None:
                    self.on_dropped(row.session, row.due_us)
        if commit.events:
            self._store.put_events(
                [
                    EventRow(e.id, seq, e.stream, e.due_us, encode(e.payload), branch.id, at_us, session.id)
                    for e in commit.events
                ]
            )
        if commit.delivered:
            self._delivery.results.move_positions(commit.delivered)
        for each in commit.declared:
            # C7: a record and its subscription are on the disk together, or neither is.
            self._delivery.subscriptions.subscribe(each, seq - 1)
        if commit.records:
            rows = [
                RecordRow(seq, place, r.topic, r.key, encode(r.payload), r.source, branch.id, at_us)
                for place, r in enumerate(commit.records)
            ]
            self._store.put_records(rows)
            if branch.id == MAIN_ID:  # Records of other branches leave the process nowhere.
                self._delivery.targets.mark_due(rows)

    def forget_branch(self, branch: Branch) -> None:
        """Drop the events of a deleted branch: no handler can receive them any more."""
        self._give_up(self._store.drop_events(branch.id, self._log.kept_from))

    def _give_up(self, seals: int) -> None:
        """Correct the sum of rows from before the kept history, so that `verify` does not miss the dropped ones."""
        if seals:
            self._store.put_meta(KEPT_SUM, str(number_in_meta(self._store, KEPT_SUM, 0) - seals))

    # ---- asking ----------------------------------------------------------------------------------

    def page(self, branch: Branch, due_by_us: int, after: EventPlace, limit: int) -> EventPage:
        """The events of a branch that are due by a time. A page holds one, or more up to the bytes of an answer."""
        if not (0 <= due_by_us <= MAX_INT and 0 <= after[0] <= MAX_INT):
            raise AuthoringError(f"events are asked for by times and seqs from 0 to {MAX_INT}")
        rows = self._store.events_due(branch.id, due_by_us, after, limit)
        found: list[StoredEvent] = []
        held = 0
        for row in rows:
            payload = decode(row.payload)
            held += size_of(payload)
            if held > self._limits.answer_bytes and found:
                break
            by, session = self._sender(row.session)
            found.append(StoredEvent(row.id, row.seq, row.stream, payload, row.due_us, row.stored_us, by, session))
        more = len(found) < len(rows) or len(rows) == limit
        return EventPage(
            items=tuple(found),
            next=(found[-1].seq, found[-1].id) if more else None,
            next_due_us=self._store.next_due(branch.id, due_by_us),
        )

    def _sender(self, session: int) -> tuple[str, str]:
        """Return the principal and the key of the session that sent an event, empty if there is no such session."""
        row = self._store.session(session) if session else None
        return (row.principal, row.key) if row is not None else ("", "")

    def newest(self, branch: Branch) -> int:
        """The seq of the newest stored event of a branch; 0: there is none."""
        return self._store.last_event(branch.id)
