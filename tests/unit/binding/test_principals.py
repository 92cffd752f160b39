"""Whom an event is handled for that somebody else stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from headwater.data.value import freeze
from headwater.protocol.stored_events import StoredEvent
from headwater.runtime.binding.principals import Principals


def believed(said: str, stored_by: str) -> str:
    row = StoredEvent("e", 1, "s/b:publish", freeze({"user": said, "session": ""}), 0, 0, stored_by, "key")
    event: Any = SimpleNamespace(id="e", user=said, session="", principal="", row="")
    Principals(cast(Any, None), "s", cast(Any, None)).believe(event, row)
    return str(event.user)


def test_what_somebody_stored_for_themselves_or_for_nobody_is_theirs() -> None:
    assert believed("ann", "ann") == "ann"
    assert believed("", "ann") == "ann"
    assert believed("eve", "") == "eve", "what the application stored was checked where it came from"


def test_the_follow_up_of_anothers_event_is_neither_theirs_nor_that_others() -> None:
    """Ann's runtime handled eve's event and stored its follow-up: taken up as ann's, that would read her drafts."""
    user = believed("eve", "ann")
    assert user not in ("", "ann", "eve")
    assert user == believed("eve", "ann")
