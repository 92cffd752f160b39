"""Retention: receipts that are older than they are kept are deleted, some at a time, by whoever handles events.

Receipts sort by the time at which their events were sent; those of ids that callers gave come first and say in
themselves when they were left. A sweep looks at one page of them, goes on where the last one ended, and follows on so
many handlings: what is left behind grows no faster than it is swept. What a user or a session alone may see of them is
swept for itself, by whoever handles their events, and by the process that left it when its time is over: of a window
that is closed nothing is handled any more. A deleted receipt still counts as one, so that its event is never handled
again. It handles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.patch import Patch
from headwater.errors import HeadwaterError
from headwater.protocol.messages import Answer, Query, State
from headwater.replica.document import NOT_HERE
from headwater.runtime.binding.receipts import PREFIX, scope_of
from headwater.runtime.binding.stored import minted

if TYPE_CHECKING:
    from headwater.data.value import MaybeValue
    from headwater.runtime.binding.events import Event
    from headwater.runtime.binding.pieces import Pieces
    from headwater.runtime.policy import Policy

Swept = tuple[str, str]
"""A space, and a scope of it."""
PAGES: Final = 10
"""How many pages at most, of which all but the last have nothing but what was deleted, which is still counted."""
TIMED: Final = f"{PREFIX}000000000000-~"
"""Behind those whose ids callers gave, which do not say when: from here on they sort by time."""
AT_ONCE: Final = 8
"""Scopes whose time is over that one handling is followed by a sweep of."""


class Retention:
    """The receipts of the spaces of one runtime."""

    __slots__ = ("_after", "_behind", "_landed", "_left", "_pieces", "_policy", "_random", "_sweeping")

    def __init__(self, pieces: Pieces, policy: Policy) -> None:
        self._pieces = pieces
        self._policy = policy
        self._random = pieces.core.clock.randomness(f"receipts {pieces.origin}")
        self._landed: dict[Swept, int] = {}  # handlings since the last sweep
        self._after: dict[Swept, str] = {}  # where the last one ended, among those whose ids callers gave
        self._behind: dict[Swept, str] = {}  # of those that sort by time, all up to this one are deleted
        self._sweeping: set[Swept] = set()
        # Narrow scopes in which this process left something, by when it first did since it was swept: that rises.
        self._left: dict[Swept, int] = {}

    @property
    def tracked(self) -> tuple[list[Swept], list[Swept]]:
        """The scopes whose handlings are counted, and the narrow ones with receipts to be deleted later."""
        return list(self._landed), list(self._left)

    def landed(self, event: Event) -> None:
        """It was handled. Every so many are followed by a sweep, also if no process handles so many."""
        space = event.home.space.name
        self._count((space, SPACE_SCOPE))
        now_us = self._pieces.core.clock.now_us()
        if event.kept is not None and event.is_named:
            narrow = (space, scope_of(event, event.kept))
            self._count(narrow)
            self._note(narrow, now_us)
        for swept in self._over(now_us):
            self._begin(swept)

    def _count(self, swept: Swept) -> None:
        policy = self._policy
        count = self._landed.pop(swept, None)
        if count is None:
            count = self._random.randrange(policy.sweep_every)
            if len(self._landed) >= policy.sweep_scopes:
                oldest = next(iter(self._landed))
                del self._landed[oldest]
                self._after.pop(oldest, None)
                self._behind.pop(oldest, None)
        self._landed[swept] = count + 1
        if count + 1 >= policy.sweep_every and self._may_begin(swept):
            self._landed[swept] = 0
            self._begin(swept)

    def _note(self, narrow: Swept, at_us: int) -> None:
        """Something was left in a narrow scope, which is to go in its time."""
        self._left.setdefault(narrow, at_us)
        if len(self._left) > self._policy.sweep_scopes:
            del self._left[next(iter(self._left))]

    def _over(self, now_us: int) -> list[Swept]:
        """Some of the narrow scopes in which the time of what was left is over."""
        oldest_us = self._oldest_us
        found: list[Swept] = []
        for narrow, at_us in tuple(islice(self._left.items(), AT_ONCE)):
            if at_us >= oldest_us:
                break
            del self._left[narrow]
            if self._may_begin(narrow):
                found.append(narrow)
            else:
                self._note(narrow, now_us)  # Another time: others are not kept waiting.
        return found

    def _may_begin(self, swept: Swept) -> bool:
        channel = self._pieces.runtime.channel(swept[0])
        return swept not in self._sweeping and channel is not None and channel.is_up()

    def _begin(self, swept: Swept) -> None:
        self._sweeping.add(swept)
        self._pieces.runtime.tasks.begin(self._sweep(swept), f"receipts of {swept[0]}")

    async def _sweep(self, swept: Swept) -> None:
        is_narrow, is_left = swept[1] != SPACE_SCOPE, True
        try:
            is_left = await self._sweep_given(swept)
            while is_narrow and swept in self._after:  # Nobody may come back to it.
                is_left |= await self._sweep_given(swept)
            is_left |= await self._sweep_timed(swept)
        except HeadwaterError:
            return  # The connection is gone, or this user may not: another sweep follows.
        finally:
            self._sweeping.discard(swept)
            if is_narrow:
                self._behind.pop(swept, None)
                if is_left:
                    self._note(swept, self._pieces.core.clock.now_us())

    async def _sweep_given(self, swept: Swept) -> bool:
        """Some of those whose ids callers gave, round and round. Answers whether there are younger ones among them."""
        found: list[DocKey] = []
        is_left, after = False, self._after.pop(swept, PREFIX)
        for _ in range(PAGES):
            answer = await self._page(swept, after, lambda first: first.doc.id < TIMED)
            for state in answer.documents:
                if state.doc.id < TIMED and _left_us(state.get()) < self._oldest_us:
                    found.append(state.doc)
                else:
                    is_left |= state.doc.id < TIMED
            after = PREFIX if answer.next is None or answer.next >= TIMED else answer.next
            if answer.documents or after == PREFIX:
                break  # Otherwise there is nothing on that page but what was deleted.
        await self._delete(swept[0], found)
        if after != PREFIX:
            self._after[swept] = after
        return is_left

    async def _sweep_timed(self, swept: Swept) -> bool:
        """The next of those that sort by time. Answers whether there is a younger one."""
        found: list[DocKey] = []
        is_left, after = False, self._behind.get(swept, TIMED)
        for _ in range(PAGES):
            answer = await self._page(swept, after, lambda first: self._may_be_over(first.doc.id))
            for state in answer.documents:
                id = state.doc.id
                if not self._may_be_over(id):
                    is_left |= id.startswith(PREFIX)
                    break  # All that come after it are younger.
                is_old = _left_us(state.get()) < self._oldest_us
                is_left |= not is_old
                if is_old:
                    found.append(state.doc)
                if not is_left:
                    after = id
            if not answer.documents and answer.next is not None:
                after = answer.next  # There is nothing on that page but what was deleted.
            else:
                break
        await self._delete(swept[0], found)
        self._behind[swept] = after
        return is_left

    @property
    def _oldest_us(self) -> int:
        return self._pieces.core.clock.now_us() - round(self._policy.retention_ms * 1_000)

    def _may_be_over(self, id: str) -> bool:
        """Whether it is the receipt of an event that was sent as long ago as receipts are kept."""
        return id.startswith(PREFIX) and minted(id.removeprefix(PREFIX)) < self._oldest_us

    async def _page(self, swept: Swept, after: str, is_wanted: Callable[[State], bool]) -> Answer:
        """A page of receipts. Nearly always the first is not wanted, and so none of them is: then that one alone."""
        channel = self._pieces.runtime.channel(swept[0])
        assert channel is not None
        first = await channel.driver.query(Query(0, swept[1], after=after, limit=1))
        if first.documents and not is_wanted(first.documents[0]):
            return first
        return await channel.driver.query(Query(0, swept[1], after=after, limit=self._policy.sweep_page))

    async def _delete(self, space: str, old: list[DocKey]) -> None:
        if not old:
            return
        pieces = self._pieces
        core, local = pieces.core, pieces.core.space(space)
        documents = [local.document(doc.id, doc.scope) for doc in old]
        for document in documents:
            core.load(document)
        await core.observing.until(
            lambda: all(each.value is not NOT_HERE or core.why_not(each) is not None for each in documents)
        )

        def delete() -> None:
            run = core.current.run
            assert run is not None
            for document in documents:
                if document.value is not NOT_HERE:
                    run.tracker.write(run, document, Patch("remove", ()))

        try:
            await pieces.runtime.space(space).transact(delete)
        finally:
            for document in documents:
                local.let_be(document)


def _left_us(receipt: MaybeValue) -> int:
    at = receipt.get("at_us") if isinstance(receipt, Mapping) else None
    return at if isinstance(at, int) else 0
