"""The intents of a space as plain JSON: what runtimes have in hand, and what is stored and waits for somebody.

Decides nothing. A stored event that a runtime has in hand is shown once, as that runtime sees it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headwater.engine.engine import Engine
from headwater.runtime.binding.stored import id_of

if TYPE_CHECKING:
    from headwater.data.json_form import JsonForm
    from headwater.protocol.stored_events import StoredEvent
    from headwater.runtime.binding.intents import IntentRow

__all__ = ["intents_form", "stored_form"]

MOST: Final = 1_000
"""Stored events that are listed."""


def stored_form(engine: Engine) -> list[JsonForm]:
    """What is stored in a space and was not handled, oldest first."""
    page = engine.events(limit=MOST)
    rows: list[JsonForm] = [
        {
            "id": id_of(each.id, each.payload),
            "stream": each.stream,
            "state": "stored",
            "sent_us": each.stored_us,
            "due_us": each.due_us or None,
            "attempts": 0,
            "conflict": "",
            "winner": "",
            "waits": "",
            "advice": "",
            "error": "",
            "ended_us": None,
        }
        for each in page.items
    ]
    if page.next is not None:
        rows.append(_more(page.items[-1], len(page.items)))
    return rows


def _more(last: StoredEvent, listed: int) -> JsonForm:
    """That there are more than are listed."""
    return {
        "id": f"after {last.id}",
        "stream": f"{last.stream.partition('/')[0]}/",
        "state": "stored",
        "sent_us": last.stored_us,
        "due_us": None,
        "attempts": 0,
        "conflict": "",
        "winner": "",
        "waits": "",
        "advice": "",
        "error": f"more are stored: these are the first {listed:,}",
        "ended_us": None,
    }


def intents_form(space: str, rows: Iterable[IntentRow], stored: list[JsonForm]) -> list[JsonForm]:
    """What is on its way in a space, and how the last ones ended."""
    head = f"{space}/"
    known = [row.as_json() for row in rows if row.stream.startswith(head)]
    living = {row["id"] for row in known if row["ended_us"] is None}
    waiting = [each for each in stored if isinstance(each, dict) and each["id"] not in living]
    return [*known, *waiting]
