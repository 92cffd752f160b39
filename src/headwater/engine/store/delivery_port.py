"""The part of the store port about reactions: subscriptions, targets, what was passed over, and attempts.

Rows and questions, and nothing that decides. What is claimed next is found by its due time: none of these questions
costs more because there are more targets.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headwater.data.value import MAX_INT

if TYPE_CHECKING:
    from headwater.engine.store.port import RecordRow

NEVER: Final = MAX_INT
"""The due time of a target that is not to be claimed. Indexes leave it out."""

CLAIMS_EPOCH: Final = "claims_epoch"
"""Meta key: how often the space was opened by somebody who gave targets away. Tokens begin with it."""

Place = tuple[int, int]
"""Where a record is: the seq of its commit, and its number there."""


class Listening(IntEnum):
    """What a subscription does."""

    LIVE = 0
    PAUSED = 1  # targets are made, and not given away
    RETIRED = 2  # no targets are made any more


class Standing(IntEnum):
    """How a target is."""

    IDLE = 0  # everything was delivered
    DUE = 1  # there is something, now or later
    LEASED = 2  # somebody has it until it is due again
    BLOCKED = 3  # an operator is needed; an index names the number


class Passed(IntEnum):
    """Why a record was passed over, or that it is not any more."""

    PARKED = 0
    SKIPPED = 1
    REPLAY = 2


class SubscriptionRow(NamedTuple):
    reaction: int
    name: str
    topic: str
    state: int  # Listening
    lane: str
    priority: int
    start_seq: int  # where a new target begins: after this record
    start_ordinal: int
    cursor_seq: int  # records up to this one have their targets,
    cursor_ordinal: int
    until_seq: int  # and those after this commit were given them when they were emitted
    made_us: int

    @property
    def start(self) -> Place:
        return self.start_seq, self.start_ordinal

    @property
    def cursor(self) -> Place:
        return self.cursor_seq, self.cursor_ordinal

    @property
    def is_filling(self) -> bool:
        return self.cursor < (self.until_seq, MAX_INT) and self.state != Listening.RETIRED


class TargetRow(NamedTuple):
    reaction: int
    key: str
    seq: int  # its position: the last record that was delivered or passed over
    ordinal: int
    state: int  # Standing
    due_us: int  # when it may be claimed
    attempt: int  # the number of the next attempt at its next record
    failures: int  # of those before it, how many failed,
    lost: int  # and how many ended with their lease
    replays: int  # records before its position that are to be tried again
    token: int  # of its last lease
    holder: str  # who has it
    since_us: int  # since when it has had something to deliver
    began_us: int  # when it was claimed last, or let go to be due again
    fingerprint: str  # of its last failure

    @property
    def position(self) -> Place:
        return self.seq, self.ordinal


class ParkedRow(NamedTuple):
    reaction: int
    key: str
    seq: int
    ordinal: int
    state: int  # Passed
    at_us: int
    fingerprint: str


class AttemptRow(NamedTuple):
    reaction: int
    key: str
    seq: int
    ordinal: int
    slot: int  # a later attempt takes the place of the one so many before
    attempt: int
    how: int  # 0: it failed, 1: its lease was lost
    began_us: int
    ended_us: int
    error: str
    message: str
    fingerprint: str


class DeliveryStore(Protocol):
    """The tables of reactions. Writes belong to the open transaction."""

    def subscriptions(self) -> list[SubscriptionRow]: ...
    def put_subscription(self, row: SubscriptionRow) -> None: ...

    def target(self, reaction: int, key: str) -> TargetRow | None: ...
    def add_targets(self, rows: list[TargetRow]) -> None: ...
    def put_targets(self, rows: Iterable[TargetRow]) -> None:
        """In place of those with their names, which are there."""

    def claimable(self, reaction: int, now_us: int, limit: int) -> list[TargetRow]:
        """Targets that are due, the earliest first."""

    def next_due(self, reaction: int) -> int | None:
        """When the first is due, or was."""

    def last_known(self, reaction: int, among: int) -> int:
        """When something was last stored of the first and the last so many that are due, as far as they say; or 0."""

    def is_behind(self, reaction: int, topic: str, branch: int, through: int) -> bool:
        """Whether one of those that are due has a record up to that commit to deliver, or again."""

    def targets_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]: ...
    def due_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]: ...
    def blocked_after(self, reaction: int, after: str | None, limit: int) -> list[TargetRow]: ...
    def count_due(self, reaction: int, most: int) -> int: ...
    def count_blocked(self, reaction: int, most: int) -> int: ...
    def count_parked(self, reaction: int, most: int) -> int: ...
    def oldest(self, reaction: int, among: int) -> int | None:
        """Since when one of the first so many that are due has had something to deliver."""

    def records_of(self, topic: str, branch: int, key: str, after: Place, limit: int) -> list[RecordRow]:
        """The records of a key, in their order."""

    def has_record(self, topic: str, branch: int, key: str, after: Place) -> bool: ...
    def next_emitted(self, topic: str, branch: int, key: str, after: Place) -> int | None:
        """When the next record of a key was emitted. None: there is none."""

    def record(self, topic: str, place: Place) -> RecordRow | None: ...
    def parked(self, reaction: int, key: str, place: Place) -> ParkedRow | None: ...
    def put_parked(self, row: ParkedRow) -> None: ...
    def drop_parked(self, row: ParkedRow) -> None: ...
    def drop_failures(self, reaction: int, key: str) -> None:
        """All that is kept of a target: what was passed over, and what was tried."""

    def parked_after(self, reaction: int, after: tuple[str, int, int], limit: int) -> list[ParkedRow]: ...
    def parked_of(self, reaction: int, key: str, state: int, limit: int) -> list[ParkedRow]: ...
    def put_attempt(self, row: AttemptRow) -> None: ...
    def drop_attempts(self, reaction: int, key: str, place: Place) -> None:
        """Those of records up to this one that were not passed over."""

    def attempts_after(self, reaction: int, after: tuple[str, int, int, int], limit: int) -> list[AttemptRow]: ...
