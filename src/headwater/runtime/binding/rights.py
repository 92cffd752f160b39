"""Rights of whoever stored an event that is taken up: they may have no more than they may ask for.

A space's writers can store any event in it, for any handler of any space. Whoever takes it up has rights of its own,
which are not theirs. What the application itself stored was checked where it came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.data.value import ABSENT
from headwater.engine.admission.access import ACCESS, Right, right_in
from headwater.errors import AccessError
from headwater.replica.document import NOT_HERE

if TYPE_CHECKING:
    from headwater.runtime.binding.events import Event
    from headwater.runtime.binding.pieces import Pieces

RIGHT_FOR: Final = {"reader": Right.READ, "writer": Right.WRITE, "owner": Right.OWN}
"""What `allow=` of a handler asks for."""


async def check_right(pieces: Pieces, event: Event) -> None:
    """AccessError: whoever stored it may not send it to that handler."""
    if not event.principal:
        return
    local = event.home.space
    document = local.document(ACCESS.id, ACCESS.scope)
    try:
        await pieces.core.loaded(document)
        value = ABSENT if document.value is NOT_HERE else document.value
        if right_in(value, event.principal) < RIGHT_FOR[event.member.allow]:
            raise AccessError(
                f"{event.principal!r} stored an event for {event.stream}, and may not send one: ask an owner of "
                f"{local.name}"
            )
    finally:
        local.let_be(document)
