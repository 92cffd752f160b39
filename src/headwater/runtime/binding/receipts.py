"""Receipts: what came of an event that its sender gave an id, so that the same one is handled once.

The receipt is a document of the handler's own commit. A second handling of the same event finds it, in the same
transaction that would have made it, and answers what the first did. The same id of the same sender to the same handler
is the same event; to another handler, or from somebody else, it is another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.model import Json, Model
from headwater.data.ids import derive, event_id, result_id
from headwater.data.value import Value

if TYPE_CHECKING:
    from headwater.runtime.binding.events import Event
    from headwater.runtime.core import Core


class Receipt(Model):
    """That an event was handled, and what the handler returned."""

    event: str
    at_us: int
    result: Json = None


def given_id(user: str, session: str, said: str, stream: str) -> str:
    """The id of an event to which its sender gave one. It does not depend on when it was sent."""
    return event_id(derive("caller", user, session, said), stream, 0, 0)


def _cell(core: Core, event: Event) -> Cell[Receipt]:
    return Cell(core, event.home.space.document(f"$result:{result_id(event.id)}"), codec_for(Receipt))


def found(core: Core, event: Event) -> tuple[Value] | None:
    """Inside the handler's transaction: what came of the event, if it was handled before."""
    receipt = _cell(core, event).get(None)
    if receipt is None:
        return None
    result: Any = receipt.result
    return (result,)


def leave(core: Core, event: Event, result: Value) -> None:
    """Inside the handler's transaction: that it was handled."""
    raw: Any = result
    _cell(core, event).set(Receipt(event=event.id, at_us=event.minted_us, result=raw))
