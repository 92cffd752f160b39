"""Opening many pieces: those that are known to be clean are opened asleep without a look at their records.

What an engine said of all pieces of a space is enough: of which code each was clean, in which generation, and that its
record was not written since. It is enough only while nothing was written that was not looked at here. Their cells are
asked for together: those of pieces that are opened at the same time, and some of pieces that may be opened next, more
of them each time. Decides nothing about nodes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headwater.data.address import DocKey
from headwater.errors import LoadError
from headwater.pieces.declarations import GivenMember
from headwater.pieces.names import document_id
from headwater.pieces.piece import Piece
from headwater.protocol.messages import Seen
from headwater.protocol.observations import QueryMarks, WholePiece, generation_of
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.attachment import Embedded
from headwater.runtime.binding import whole

if TYPE_CHECKING:
    from headwater.runtime.binding.followed import Followed
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.sleeping import Sleeping

MOST_AHEAD: Final = 400
"""Documents of pieces that were not opened yet. More of them would be let go before they are."""
TOGETHER: Final = 500
"""Documents that are asked for in one message."""


@dataclass(slots=True, eq=False)
class Loads:
    """Documents that are about to be asked for together."""

    over: asyncio.Future[None]
    docs: dict[Document, None] = field(default_factory=dict)
    ahead: dict[Document, None] = field(default_factory=dict)


class AtOnce:
    """Opens pieces of one runtime that sleep."""

    __slots__ = ("_fingerprints", "_sleeping")

    def __init__(self, sleeping: Sleeping) -> None:
        self._sleeping = sleeping
        self._fingerprints: dict[tuple[type[Piece], int, str], str] = {}

    def patched(self) -> None:
        self._fingerprints.clear()

    # ---- falling asleep ------------------------------------------------------------------------------

    async def opened(self, home: Home, user: str) -> bool:
        """Have a piece asleep that is about to be opened. False: its record has to be looked at."""
        sleeping = self._sleeping
        if not self._may_be(home) or (followed := await sleeping.known(home)) is None:
            return False
        if self._known(followed, home, user) is None or not await self._is_current(followed):
            return False
        known = self._known(followed, home, user) if self._may_be(home) else None
        if known is None:
            return False
        home.generation, home.is_made = known.generation, True
        sleeping.falls_asleep(followed, home, known)
        return True

    def _may_be(self, home: Home) -> bool:
        """Whether nothing of it is here, and its class says all that decides what it is."""
        if home.phase is not None or home.is_new or home.is_open or home.generation or home.inputs is not None:
            return False
        if home.parent is not None or home.outline.of(GivenMember):
            return False
        record = home.space.replica.documents.get(generation_of(home.id)[0])
        return record is None or (record.value is NOT_HERE and not record.layers)

    def _known(self, followed: Followed, home: Home, user: str) -> WholePiece | None:
        known = (followed.wholes or {}).get(home.id)
        if known is None or not known.generation:
            return None  # Its record was written since.
        at = (home.cls, known.generation, user)
        fingerprint = self._fingerprints.get(at)
        if fingerprint is None:
            resuming = self._sleeping.resuming
            fingerprint = whole.decides(resuming.looked_at, home, (user,), resuming.identity, known.generation)
            self._fingerprints[at] = fingerprint
        return known if fingerprint and known.fingerprint == fingerprint else None

    async def _is_current(self, followed: Followed) -> bool:
        """Wait until everything that is written by now was looked at. False: nobody does, or can be asked."""
        resuming = self._sleeping.resuming
        attachment = resuming.pieces.runtime.attachment
        newest = attachment.newest(followed.local.name) if isinstance(attachment, Embedded) else None
        if newest is None:
            newest = await self._newest(followed)
        if newest is None or not followed.channel.is_up():
            return False
        if followed.through >= newest:
            return True
        if followed.task is None:
            return False
        followed.newest, until = max(followed.newest, newest), newest
        resuming.pieces.core.observing.look()
        await resuming.pieces.core.observing.until(
            lambda: followed.through >= until or not followed.channel.is_up() or followed.local.ended is not None
        )
        return followed.through >= until

    async def _newest(self, followed: Followed) -> int | None:
        """Where the log ends, as the engine says: one question for all who ask at the same time."""
        asked = followed.asked
        if asked is None:
            asked = followed.asked = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(self._ask, followed, asked)
        return await asyncio.shield(asked)

    def _ask(self, followed: Followed, asked: asyncio.Future[int | None]) -> None:
        followed.asked = None

        def answered(answer: Seen | LoadError) -> None:
            if not asked.done():
                asked.set_result(None if isinstance(answer, LoadError) else answer.seq)

        followed.channel.driver.session.queries.look(QueryMarks(0, followed.through, 1), answered)
        followed.channel.driver.flush()

    # ---- cells ---------------------------------------------------------------------------------------

    async def here(self, home: Home) -> None:
        """The cells that are kept here for it have arrived, or will not."""
        missing = [document for document in home.held if document.value is NOT_HERE]
        followed = self._sleeping.of(home)
        if not missing or followed is None:
            return
        loads = followed.loads
        if loads is None:
            loop = asyncio.get_running_loop()
            loads = followed.loads = Loads(loop.create_future())
            loop.call_soon(self._load, followed, loads, home)
        loads.docs.update(dict.fromkeys(missing))
        await asyncio.shield(loads.over)

    def _load(self, followed: Followed, loads: Loads, first: Home) -> None:
        followed.loads = None
        local, core = followed.local, self._sleeping.resuming.pieces.core
        self._look_ahead(followed, loads, first)
        for document in loads.docs:
            local.failed_loads.pop(document, None)  # It is asked for anew.
        wanted, ahead = [each.key for each in loads.docs], [each.key for each in loads.ahead]
        for place in range(0, max(len(wanted), len(ahead)), TOGETHER):
            followed.channel.watch_together(wanted[place : place + TOGETHER], ahead[place : place + TOGETHER])
        local.come(loads.ahead)

        def are_here() -> bool:
            return all(each.value is not NOT_HERE or core.why_not(each) is not None for each in loads.docs)

        waiting = asyncio.get_running_loop().create_task(core.observing.until(are_here))
        waiting.add_done_callback(lambda task: _over(followed, loads, task))

    def _look_ahead(self, followed: Followed, loads: Loads, first: Home) -> None:
        """Those of pieces like it that come next, twice as many each time."""
        places, wholes = followed.places, followed.wholes or {}
        if followed.ahead < 0 or not first.held:
            return
        most = min(followed.ahead, MOST_AHEAD // len(first.held))
        followed.ahead = min(max(1, 2 * followed.ahead), MOST_AHEAD)
        members = [(each.key.scope, each.key.id.rpartition(":")[2]) for each in first.held]
        fingerprint = self._fingerprints.get((first.cls, first.generation, first.opened_for()[0][0]))
        documents = followed.local.replica.documents
        begin = followed.order.get(first.id, len(places)) + 1
        for id in places[begin : begin + 2 * most]:
            known = wholes.get(id)
            if known is not None and known.fingerprint == fingerprint and most > 0:
                most -= 1
                keys = [DocKey(scope, document_id(id, stored)) for scope, stored in members]
                loads.ahead.update(dict.fromkeys([documents.of(key) for key in keys]))


def _over(followed: Followed, loads: Loads, task: asyncio.Task[None]) -> None:
    if any(document.value is NOT_HERE for document in loads.ahead):
        followed.ahead = -1  # They are too many, or too long: nobody is to wait for what was not asked for.
    if not loads.over.done():
        if task.cancelled():
            loads.over.cancel()
        elif (error := task.exception()) is not None:
            loads.over.set_exception(error)
            loads.over.exception()  # Whoever waits has it; perhaps nobody does any more.
        else:
            loads.over.set_result(None)
