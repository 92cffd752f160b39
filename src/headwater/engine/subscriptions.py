"""Subscriptions: which reaction wants the records of which topic, and from where on.

A new one hears of every record from the commit after it on; what was emitted before is looked through some at a time,
if it wants that, or was declared before that and not answered. Owns the rows of subscriptions, and knows them all:
asking which reactions a topic has costs nothing. Writes inside the open store transaction; whoever rolls that back
calls `forget`.
"""

from __future__ import annotations

from typing import Final

from headwater.clock import Clock
from headwater.data.address import NAME_LENGTH
from headwater.data.value import MAX_INT
from headwater.engine.limits import Limits
from headwater.engine.log import Log
from headwater.engine.store.delivery_port import Listening, Place, SubscriptionRow
from headwater.engine.store.port import Store
from headwater.errors import AbsentError, LimitError, ProtocolError
from headwater.protocol.reactions import Subscribe

_ALL: Final[Place] = (0, 0)
"""Before the first record: seqs begin with 1."""


class Subscriptions:
    """The reactions of one space."""

    __slots__ = ("_by_topic", "_clock", "_limits", "_log", "_rows", "_store")

    def __init__(self, store: Store, log: Log, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._log = log
        self._clock = clock
        self._limits = limits
        self._rows: dict[str, SubscriptionRow] | None = None  # None: not read yet
        self._by_topic: dict[str, list[SubscriptionRow]] = {}

    def forget(self) -> None:
        """What is known may not be so: the disk is asked again."""
        self._rows = None
        self._by_topic = {}

    def all(self) -> dict[str, SubscriptionRow]:
        if self._rows is None:
            self._rows = {row.name: row for row in self._store.delivery.subscriptions()}
            self._index(self._rows)
        return self._rows

    def _index(self, rows: dict[str, SubscriptionRow]) -> None:
        self._by_topic = {}
        for row in rows.values():
            if row.state != Listening.RETIRED:
                self._by_topic.setdefault(row.topic, []).append(row)

    def get(self, name: str) -> SubscriptionRow:
        row = self.all().get(name)
        if row is None:
            raise AbsentError(f"there is no reaction {name!r} here: `headwater reactions` lists those that there are")
        return row

    def of_topic(self, topic: str) -> list[SubscriptionRow]:
        """Those for whom a record of the topic is."""
        if self._rows is None:
            self.all()
        return self._by_topic.get(topic, [])

    def put(self, row: SubscriptionRow) -> None:
        rows = self.all()
        self._store.delivery.put_subscription(row)
        rows[row.name] = row
        self._index(rows)

    def subscribe(self, question: Subscribe) -> bool:
        """Make it, or take it up as it is. True: it is new, was retired, or hears of more than it did."""
        rows = self.all()
        known = rows.get(question.reaction)
        if known is None:
            self._check(question)
            self.put(self._new(question, 1 + max((row.reaction for row in rows.values()), default=0)))
            return True
        if known.topic != question.topic:
            raise ProtocolError(
                f"reaction {known.name!r} is for the records of {known.topic!r}, not of {question.topic!r}. Give the "
                "other one a name of its own, and retire this one."
            )
        row = known._replace(lane=question.lane, priority=question.priority)
        if known.state == Listening.RETIRED:
            # What was emitted meanwhile has no targets: it is looked through again. Targets keep their positions.
            until = self._log.next_seq - 1
            seq, ordinal = _cursor(until)
            row = row._replace(state=Listening.LIVE, cursor_seq=seq, cursor_ordinal=ordinal, until_seq=until)
        if question.after is not None and (question.after, MAX_INT) < known.start:
            # Somebody else declared it meanwhile, and behind what was emitted by whoever says it again.
            seq, ordinal = start = (question.after, MAX_INT)
            cursor_seq, cursor_ordinal = min(row.cursor, start)
            row = row._replace(start_seq=seq, start_ordinal=ordinal, until_seq=self._log.next_seq - 1)
            row = row._replace(cursor_seq=cursor_seq, cursor_ordinal=cursor_ordinal)
        if row != known:
            self.put(row)
        return known.state == Listening.RETIRED or known.start != row.start

    def _check(self, question: Subscribe) -> None:
        if not question.reaction or ":" in question.reaction or len(question.reaction) > NAME_LENGTH:
            raise ProtocolError(
                f"{question.reaction!r} cannot name a reaction: write 1 to {NAME_LENGTH} characters without a colon"
            )
        if len(self.all()) >= self._limits.subscriptions:
            raise LimitError(f"a space has at most {self._limits.subscriptions} reactions, retired ones included")

    def _new(self, question: Subscribe, number: int) -> SubscriptionRow:
        until = self._log.next_seq - 1
        is_all = question.since == "beginning"
        after = until if question.after is None else min(question.after, until)
        start = _ALL if is_all else (after, MAX_INT)
        cursor = _cursor(until) if is_all else start
        return SubscriptionRow(
            number,
            question.reaction,
            question.topic,
            Listening.LIVE,
            question.lane,
            question.priority,
            *start,
            *cursor,
            until,
            self._clock.now_us(),
        )


def _cursor(until: int) -> Place:
    """Where looking through the records up to a commit begins. Where there is no commit, it is over."""
    return _ALL if until else (until, MAX_INT)
