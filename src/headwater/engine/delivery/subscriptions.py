"""Subscriptions: the reactions of each topic, and the record that each begins with.

A new one receives every record from the commit after it on, or from the very commit that declares it; earlier records
are marked some at a time, if it wants them. Owns the rows of subscriptions and keeps them all in memory. Writes inside
the open store transaction; a caller that rolls it back calls `forget`.
"""

from __future__ import annotations

from typing import Final

from headwater.clock import Clock
from headwater.data.address import NAME_LENGTH
from headwater.data.value import MAX_INT
from headwater.engine.limits import Limits
from headwater.engine.log.log import Log
from headwater.engine.store.port import Place, Store, SubscriptionRow, SubscriptionState
from headwater.errors import AbsentError, LimitError, ProtocolError
from headwater.protocol.commit import Commit, Declared
from headwater.protocol.reactions import Subscribe
from headwater.protocol.verdict import RuleRefused

_ALL: Final[Place] = (0, 0)
"""Before the first record: seqs begin with 1."""


class Subscriptions:
    """The reactions of one space."""

    __slots__ = ("_by_topic", "_clock", "_limits", "_log", "_rows", "_store", "news")

    def __init__(self, store: Store, log: Log, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._log = log
        self._clock = clock
        self._limits = limits
        self._rows: dict[str, SubscriptionRow] | None = None  # None: not read yet
        self._by_topic: dict[str, list[SubscriptionRow]] = {}
        self.news = 0  # how often one was new, or not retired any more, since this is open; never too few

    def forget(self) -> None:
        """Drop memory that may be ahead of the disk."""
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
            if row.state != SubscriptionState.RETIRED:
                self._by_topic.setdefault(row.topic, []).append(row)

    def get(self, name: str) -> SubscriptionRow:
        row = self.all().get(name)
        if row is None:
            raise AbsentError(f"there is no reaction {name!r} here: `headwater reactions` lists those that there are")
        return row

    def of_topic(self, topic: str) -> list[SubscriptionRow]:
        """Return the subscriptions of a topic."""
        if self._rows is None:
            self.all()
        return self._by_topic.get(topic, [])

    def put(self, row: SubscriptionRow) -> None:
        rows = self.all()
        self._store.delivery.put_subscription(row)
        rows[row.name] = row
        self._index(rows)

    def refusal(self, commit: Commit) -> RuleRefused | None:
        """Return the reason why no retry of a commit can be accepted, by its declarations."""
        new = 0
        for each in commit.declared:
            try:
                new += self._is_new(each, new)
            except (ProtocolError, LimitError) as error:
                return RuleRefused("reactions", str(error))
        return None

    def subscribe(self, wish: Subscribe | Declared, until: int | None = None) -> bool:
        """Make it, or take it up as it is, for all after a seq, by default the last. True: it is new or was retired."""
        until = self._log.next_seq - 1 if until is None else until
        rows = self.all()
        is_new = self._is_new(wish)
        if is_new:
            self.put(self._new(wish, 1 + max((row.reaction for row in rows.values()), default=0), until))
        else:
            known = rows[wish.reaction]
            row = known._replace(lane=wish.lane, priority=wish.priority)
            if known.state == SubscriptionState.RETIRED and isinstance(wish, Declared):
                return False  # It was retired. A program that delivers it resumes it; one that only emits does not.
            if known.state == SubscriptionState.RETIRED:
                # Records emitted meanwhile have no targets: they are marked again. Targets keep their positions.
                is_new = True
                seq, ordinal = _cursor(until)
                row = row._replace(
                    state=SubscriptionState.LIVE, cursor_seq=seq, cursor_ordinal=ordinal, until_seq=until
                )
            if row != known:
                self.put(row)
        self.news += is_new
        return is_new

    def _is_new(self, wish: Subscribe | Declared, others: int = 0) -> bool:
        """Whether it is not known yet, as so many `others` are not.

        ProtocolError, LimitError: it cannot be declared.
        """
        rows = self.all()
        known = rows.get(wish.reaction)
        if len(wish.topic) > 2 * NAME_LENGTH or len(wish.lane) > NAME_LENGTH:
            raise ProtocolError(
                f"reaction {wish.reaction[:NAME_LENGTH]!r} names a topic of {len(wish.topic)} characters and a lane of "
                f"{len(wish.lane)}: the limits are {2 * NAME_LENGTH} and {NAME_LENGTH}. Give them shorter names."
            )
        if known is None:
            if not wish.reaction or ":" in wish.reaction or len(wish.reaction) > NAME_LENGTH:
                raise ProtocolError(
                    f"{wish.reaction!r} cannot name a reaction: write 1 to {NAME_LENGTH} characters without a colon"
                )
            if len(rows) + others >= self._limits.subscriptions:
                raise LimitError(f"a space has at most {self._limits.subscriptions} reactions, retired ones included")
        elif known.topic != wish.topic:
            raise ProtocolError(
                f"reaction {known.name!r} is for the records of {known.topic!r}, not of {wish.topic!r}. Give the "
                "other one a name of its own, and retire this one."
            )
        return known is None

    def _new(self, wish: Subscribe | Declared, number: int, until: int) -> SubscriptionRow:
        is_all = wish.since == "beginning"
        start = _ALL if is_all else (until, MAX_INT)
        cursor = _cursor(until) if is_all else start
        return SubscriptionRow(
            number,
            wish.reaction,
            wish.topic,
            SubscriptionState.LIVE,
            wish.lane,
            wish.priority,
            *start,
            *cursor,
            until,
            self._clock.now_us(),
        )


def _cursor(until: int) -> Place:
    """Where looking through the records up to a commit begins. Where there is no commit, it is over."""
    return _ALL if until else (until, MAX_INT)
