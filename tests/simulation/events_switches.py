"""Mechanisms of events, each of which can be switched off: without it, somebody has to notice.

A switch puts a mistake that somebody could make in the place of the line that matters. It changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from headwater.data.ids import derive, event_id
from headwater.engine.preconditions import Preconditions
from headwater.protocol.commit import EntityAbsent
from headwater.runtime.binding import attempting, course, fresh, minting, receipts, stored, takeover
from headwater.runtime.binding.handling import Handling
from headwater.runtime.binding.lanes import Lane
from headwater.runtime.binding.lineage import Lineage, Origin, Status
from headwater.runtime.binding.storing import Storing
from headwater.runtime.outbox import Outbox

Switch = Callable[[], AbstractContextManager[object]]


# ---- freshness -----------------------------------------------------------------------------------------


@contextmanager
def anything_is_fresh() -> Iterator[None]:
    """A handler reads whatever a computed shows, valid or not."""
    with ExitStack() as stack:
        for module in (fresh, course):
            stack.enter_context(patch.object(module, "is_fresh", lambda document, core: not _never_ran(document)))
        yield


def _never_ran(document: Any) -> bool:
    return any(getattr(writer, "runs", 1) == 0 for writer in document.writers)


def sources_are_forgotten() -> AbstractContextManager[object]:
    """What is computed is no read of what it was computed from."""
    return patch.object(fresh.Handled, "_stands_on_sources", lambda self, document: fresh.is_computed(document))


def a_no_is_not_doubted() -> AbstractContextManager[object]:
    """A refusal counts, whatever it stands on."""

    async def never(self: Any, event: Any) -> bool:
        return False

    return patch.object(attempting.Attempting, "_was_wrong", never)


# ---- lineage -------------------------------------------------------------------------------------------


def no_condition() -> AbstractContextManager[object]:
    """A follow-up may land, whatever became of its origin."""
    return patch.object(Origin, "condition", lambda self, space: None)


def nothing_is_cancelled() -> AbstractContextManager[object]:
    """What a failed attempt launched goes on."""
    return patch.object(Lineage, "failed", lambda self, origin: None)


def nothing_is_taken_back() -> AbstractContextManager[object]:
    """What a failed attempt posted and nobody has dispatched yet is dispatched all the same."""
    return patch.object(Handling, "_drop", lambda self, event: None)


@contextmanager
def no_lineage() -> Iterator[None]:
    """Both: follow-ups are handled as if nobody had posted them."""
    with no_condition(), nothing_is_cancelled():
        yield


@contextmanager
def nothing_waits_for_its_origin() -> Iterator[None]:
    """What is sent to another space is dispatched at once, too."""

    def made(self: Lineage, origin: Origin, transaction: Any) -> None:
        if origin.status is Status.OPEN:
            origin.status, origin.local_seq = Status.PENDING, transaction.local_seq
            for home, after_commit in origin.launched:
                if not after_commit:
                    self._keep(origin, home)
            for event in origin.posted:
                self._start(event)

    def confirmed(self: Lineage, origin: Origin) -> None:
        origin.status = Status.CONFIRMED
        for home, _ in origin.launched:
            home.is_launched = False
            self._keep(origin, home)
        origin.launched, origin.posted = [], []

    with patch.object(Lineage, "made", made), patch.object(Lineage, "confirmed", confirmed):
        yield


def follow_ups_keep_their_ids() -> AbstractContextManager[object]:
    """A retried parent posts the same events again."""

    def same(origin: str, stream: str, counter: int, minted_us: int) -> str:
        parent, _, rest = origin.partition(" ")
        return event_id(parent, stream, counter, 0) if rest else event_id(origin, stream, counter, minted_us)

    return patch.object(minting, "event_id", same)


# ---- receipts and the store ------------------------------------------------------------------------------


def no_receipts() -> AbstractContextManager[object]:
    """A handling leaves nothing behind by which another one would be refused."""

    def write(pieces: Any, transaction: Any, event: Any, receipt: Any) -> None:
        for each in (event, *event.absorbed):
            if each.is_stored and each.stored_in == each.home.space.name:
                transaction.handled.append(each.id)

    return patch.object(receipts, "_write", write)


def receipts_are_not_conditions() -> AbstractContextManager[object]:
    """The receipt is written, and nobody looks whether it was there."""
    real = Preconditions._why_not

    def why_not(self: Preconditions, precondition: Any, session: Any, branch: Any) -> str | None:
        return None if isinstance(precondition, EntityAbsent) else real(self, precondition, session, branch)

    return patch.object(Preconditions, "_why_not", why_not)


def follow_ups_are_not_stored() -> AbstractContextManager[object]:
    """What a handler posts is known to its process and to nobody else."""
    return patch.object(stored, "store", lambda pieces, transaction, attempt: None)


def what_is_handled_stays_stored() -> AbstractContextManager[object]:
    """The row of a stored event outlives its handling."""
    real = receipts._write

    def write(pieces: Any, transaction: Any, event: Any, receipt: Any) -> None:
        real(pieces, transaction, event, receipt)
        transaction.handled.clear()

    return patch.object(receipts, "_write", write)


def nobody_takes_over() -> AbstractContextManager[object]:
    """What is stored is nobody's business but its sender's."""
    return patch.object(takeover.Takeover, "attend", lambda self, channel: None)


def a_no_is_not_written_down() -> AbstractContextManager[object]:
    """A stored event that was refused leaves no receipt."""

    def leave(pieces: Any, transaction: Any, event: Any, failure: BaseException) -> None:
        transaction.handled.append(event.row_id)

    return patch.object(receipts, "leave_failure", leave)


def nothing_is_removed_elsewhere() -> AbstractContextManager[object]:
    """A row is removed with the receipt or not at all."""

    async def remove(self: Storing, event: Any, end: Any) -> None:
        return

    return patch.object(Storing, "_remove", remove)


def what_came_of_it_is_forgotten() -> AbstractContextManager[object]:
    """Whoever sends an event again is told that it was handled, and not what came of it."""
    real = receipts.HandledBefore.__init__

    def made(self: Any, answer: Any, failure: Any) -> None:
        real(self, None, failure)

    return patch.object(receipts.HandledBefore, "__init__", made)


def what_came_of_it_is_for_everybody() -> AbstractContextManager[object]:
    """A receipt says all, whatever the handler stood on."""
    return patch.object(attempting, "_note_kept", lambda handling, event: None)


def what_was_kept_is_not_sent_again() -> AbstractContextManager[object]:
    """An outbox is written and never read."""

    def use(self: Storing, outbox: Any) -> None:
        self.outbox = outbox

    return patch.object(Storing, "use", use)


def nothing_is_kept() -> AbstractContextManager[object]:
    """An outbox that keeps nothing."""
    return patch.object(Outbox, "put", lambda self, space, event: None)


def ids_of_callers_are_not_hashed() -> AbstractContextManager[object]:
    """The same id is the same event, whichever handler it was sent to."""
    return patch.object(
        minting, "given_id", lambda user, session, said, stream: event_id(derive("caller", said), "s", 0, 0)
    )


# ---- lanes ---------------------------------------------------------------------------------------------


def rejected_ones_go_to_the_front() -> AbstractContextManager[object]:
    """Whatever is rejected is put in front of all the others: of several, the last one first."""
    low = [0]

    def come_back(self: Lane, event: Any) -> None:
        if event in self.unended and self._place(event) is None:
            low[0] -= 1
            event.stamp = low[0]
            self._add(event)

    return patch.object(Lane, "come_back", come_back)


def rejected_ones_go_to_the_end() -> AbstractContextManager[object]:
    """Whatever is rejected is sent again, behind all the others."""
    high = [1_000_000]

    def come_back(self: Lane, event: Any) -> None:
        if event in self.unended and self._place(event) is None:
            high[0] += 1
            event.stamp = high[0]
            self._add(event)

    return patch.object(Lane, "come_back", come_back)


FRESHNESS: Final[dict[str, Switch]] = {
    "anything is fresh": anything_is_fresh,
    "sources are forgotten": sources_are_forgotten,
    "a no is not doubted": a_no_is_not_doubted,
}
LINEAGE: Final[dict[str, Switch]] = {
    "no condition": no_condition,
    "nothing is cancelled": nothing_is_cancelled,
    "nothing is taken back": nothing_is_taken_back,
    "no lineage": no_lineage,
    "nothing waits for its origin": nothing_waits_for_its_origin,
    "follow-ups are not stored": follow_ups_are_not_stored,
    "nobody takes over": nobody_takes_over,
    "follow-ups keep their ids": follow_ups_keep_their_ids,
    "what is handled stays stored": what_is_handled_stays_stored,
    "nothing is removed elsewhere": nothing_is_removed_elsewhere,
    "a no is not written down": a_no_is_not_written_down,
}
RECEIPTS: Final[dict[str, Switch]] = {
    "no receipts": no_receipts,
    "receipts are not conditions": receipts_are_not_conditions,
    "what came of it is forgotten": what_came_of_it_is_forgotten,
    "what came of it is for everybody": what_came_of_it_is_for_everybody,
    "ids of callers are not hashed": ids_of_callers_are_not_hashed,
    "what was kept is not sent again": what_was_kept_is_not_sent_again,
    "nothing is kept": nothing_is_kept,
}
LANES: Final[dict[str, Switch]] = {
    "rejected ones go to the front": rejected_ones_go_to_the_front,
    "rejected ones go to the end": rejected_ones_go_to_the_end,
}
