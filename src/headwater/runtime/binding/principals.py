"""Who stored an event that is taken up, what they may do, and for whom it is handled.

Whoever may write a space can store in it what they like: for any handler of any space, for anybody, under any id. They
are believed to be themselves and nobody else. What the application stored was checked where it came from, and what this
connection's own user stored is done with that user's rights. A connection is not told whose it is; what is one user's
alone is answered to that user, so that this is found out by asking, once per connection. It takes nothing up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.address import check_scope, is_space_name
from headwater.data.ids import derive
from headwater.data.value import ABSENT
from headwater.engine.admission.access import ACCESS, Right, right_in
from headwater.errors import HeadwaterError, InvalidValueError, LoadError
from headwater.protocol.messages import Query
from headwater.runtime.binding import stored
from headwater.runtime.binding.minting import stranger_id
from headwater.runtime.windows import beside

if TYPE_CHECKING:
    from headwater.protocol.messages import StoredEvent
    from headwater.runtime.attached import Attached
    from headwater.runtime.binding.events import Event
    from headwater.runtime.binding.pieces import Pieces


class Principals:
    """Those who stored the events of one space."""

    __slots__ = ("_channel", "_is_everybody", "_line", "_own", "_pieces", "_rights", "_space")

    def __init__(self, pieces: Pieces, space: str, channel: Attached) -> None:
        self._pieces = pieces
        self._space = space
        self._channel = channel
        self._line = -1  # the connection that this was found out on
        self._is_everybody: bool | None = None  # it may read what is anybody's; None: it was not asked yet
        self._own = ""  # the name that it has, if that is known
        self._rights: dict[tuple[str, str], Right | None] = {}  # by space and user, as of the last look

    def begin(self) -> None:
        """Rights are asked for anew with each look."""
        self._rights.clear()

    async def find_out(self, row: StoredEvent) -> None:
        """Ask what has to be known of whoever stored it. LoadError: the connection was lost meanwhile."""
        line = self._channel.driver.reconnects
        if line != self._line:
            self._line, self._is_everybody, self._own = line, None, ""
        if not row.principal:
            return
        if self._is_everybody is None:
            self._is_everybody = await self._may_read(self._pieces.core.clock.new_token())
        if not (self._is_everybody or self._own) and await self._may_read(row.principal):
            self._own = row.principal
        await self._ask_right(row)

    async def _may_read(self, name: str) -> bool:
        """Whether what is one user's alone is answered here."""
        try:
            scope = check_scope(f"user:{name}")
        except InvalidValueError:
            return False
        try:
            await self._channel.driver.query(Query(0, scope, limit=1))
        except LoadError as error:
            if error.code != "access":
                raise  # Whatever else it was, it says nothing about whose connection this is.
            return False
        return True

    async def _ask_right(self, row: StoredEvent) -> None:
        """What they may do in another space, if this runtime takes part in that one. It opens none for a stranger."""
        space = row.stream.partition("/")[0]
        if self._is_believed(row) or space == self._space or (space, row.principal) in self._rights:
            return
        channel = self._pieces.runtime.channel(space) if is_space_name(space) else None
        if channel is None:
            return
        self._rights[space, row.principal] = None
        line = self._channel.driver.reconnects
        try:
            answer = await channel.driver.query(Query(0, ACCESS.scope, ACCESS.id))
        except HeadwaterError:
            if self._channel.driver.reconnects != line:
                raise
            return  # It may not be asked.
        access = answer.documents[0].get()
        if access is not ABSENT:  # Otherwise the space is the first writer's, who is not to be made one by a stranger.
            self._rights[space, row.principal] = right_in(access, row.principal)

    def _is_believed(self, row: StoredEvent) -> bool:
        return not row.principal or row.principal == self._own

    def right_of(self, row: StoredEvent) -> Right | None:
        """What whoever stored an event may do where it is handled. None: that is not known here."""
        space = row.stream.partition("/")[0]
        if self._is_believed(row) or space == self._space:
            return Right.OWN  # They could store it here; what its handler asks for is looked at before it is called.
        return self._rights.get((space, row.principal))

    def id_of(self, row: StoredEvent) -> str:
        """The id of the event. Whoever may not write where it is handled cannot choose that of somebody else's."""
        said = stored.id_of(row.id, row.payload)
        right = self.right_of(row)
        is_stranger = right is not None and right < Right.WRITE
        return stranger_id(row.principal, said, row.stream) if is_stranger else said

    def may_leave_receipt(self, row: StoredEvent) -> bool:
        """Whether what becomes of it may be written down where it would be handled."""
        right = self.right_of(row)
        return right is not None and right >= Right.WRITE

    def believe(self, event: Event, row: StoredEvent) -> None:
        """Say for whom it is handled.

        A stranger is in the session in which they stored it, or in one that nobody has: sessions are known to others.
        """
        event.id, event.principal = self.id_of(row), row.principal
        event.row = "" if event.id == row.id else row.id
        if self._is_believed(row):
            return
        if event.session not in (row.session, beside(row.session, event.user)):
            event.session = beside(row.session, event.session)
        # What was sent for another user, as the follow-up of an event that was taken up for them, is nobody's here: it
        # reads nothing of the one who stored it for them, nor of the one it names.
        is_own = event.user in ("", row.principal)
        event.user = row.principal if is_own else derive("nobody", row.principal, event.user)
