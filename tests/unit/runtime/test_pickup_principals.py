"""Whom an event is handled for that somebody else stored."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.data.value import freeze
from headwater.errors import LoadError
from headwater.protocol.messages import StoredEvent
from headwater.runtime.events.event import Event
from headwater.runtime.events.pickup import Principals


def event_for(user: str) -> Event:
    unused: Any = None
    return Event(
        id="e", instance=unused, user=user, session="", minted_us=0, member=unused, stream="s/b:publish", payload=None
    )


def believed(said: str, stored_by: str) -> str:
    row = StoredEvent("e", 1, "s/b:publish", freeze({"user": said, "session": ""}), 0, 0, stored_by, "key")
    return Principals(cast(Any, None), "s", cast(Any, None)).believe(event_for(said), row).user


def test_what_somebody_stored_for_themselves_or_for_nobody_is_theirs() -> None:
    assert believed("ann", "ann") == "ann"
    assert believed("", "ann") == "ann"
    assert believed("eve", "") == "eve", "what the application stored was checked where it came from"


def test_the_follow_up_of_anothers_event_is_neither_theirs_nor_that_others() -> None:
    """Ann's runtime handled eve's event and stored its follow-up: taken up as ann's, that would read her drafts."""
    user = believed("eve", "ann")
    assert user not in ("", "ann", "eve")
    assert user == believed("eve", "ann")


class Line:
    """A connection that answers what is one user's alone as it is told to."""

    def __init__(self, *answers: LoadError | None) -> None:
        self.reconnects = 0
        self.driver = self
        self.asked: list[str] = []
        self._answers = list(answers)

    async def query(self, query: Any) -> None:
        self.asked.append(query.scope)
        answer = self._answers.pop(0)
        if answer is not None:
            raise answer


def test_a_question_that_could_not_be_answered_makes_nobody_somebody() -> None:
    """The application's own connection, and a disk that fails once: eve's row is not believed for that."""
    line = Line(LoadError("the disk is full", code="storage"), None)
    core = SimpleNamespace(clock=SimpleNamespace(new_token=lambda: "anybody"))
    principals = Principals(cast(Any, SimpleNamespace(core=core)), "s", cast(Any, line))
    row = StoredEvent("e", 1, "s/b:publish", freeze({"user": "ann", "session": ""}), 0, 0, "eve", "key")
    with pytest.raises(LoadError, match="full"):
        asyncio.run(principals.find_out(row))
    asyncio.run(principals.find_out(row))
    assert line.asked == ["user:anybody", "user:anybody"]
    event = principals.believe(event_for("ann"), row)
    assert event.user not in ("ann", "eve", "")


def test_what_may_not_be_read_is_not_one_s_own_and_the_first_that_may_is() -> None:
    refused = LoadError("not for 'eve'", code="access")
    line = Line(refused, None)
    core = SimpleNamespace(clock=SimpleNamespace(new_token=lambda: "anybody"))
    principals = Principals(cast(Any, SimpleNamespace(core=core)), "s", cast(Any, line))
    row = StoredEvent("e", 1, "s/b:publish", freeze({"user": "ann", "session": ""}), 0, 0, "eve", "key")
    asyncio.run(principals.find_out(row))
    event = principals.believe(event_for("ann"), row)
    assert (line.asked, event.user) == (["user:anybody", "user:eve"], "ann")
