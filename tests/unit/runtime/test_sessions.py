"""Which session a runtime is: in another space, for a second user, for whoever only asks, and by an author's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import AuthoringError, Cell, Handler, Piece, Runtime, cell, computed, given, handler
from headwater.engine.log.sessions import RESERVED, check_foreign
from headwater.errors import ProtocolError
from headwater.runtime.channel.sessions import UserSessions, beside, called, named
from tests.unit.runtime.kit import run


class Pad(Piece, name="windowed.Pad"):
    draft: Cell[str] = cell(default="", scope="session")

    @handler
    def keep(self, text: str) -> None:
        self.draft.set(text)

    @handler
    def keep_both(self, text: str) -> str:
        self.draft.set(text)
        self.ctx.space.piece(Pad, "beside").draft.set(text)
        return self.ctx.session

    @computed(scope="session")
    def both(self) -> str:
        return f"{self.draft.get()} and {self.ctx.space.piece(Pad, 'beside').draft.get()}"


class Front(Piece, name="windowed.Front"):
    keep: Handler[[str], None] = given()
    there: Cell[str] = given()

    @handler
    def write(self, text: str) -> None:
        self.keep.post(text)

    @handler
    def look(self) -> str:
        return self.there.get()


class FakeChannel:
    """A channel whose session has a known key."""

    def __init__(self, key: str) -> None:
        self.driver = self
        self.session = self
        self.key = key


def windows() -> UserSessions:
    return UserSessions(lambda space: FakeChannel(f"key of {space}"), "origin")  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("session", ["", "a1"])
@pytest.mark.parametrize("user", ["", "ann"])
def test_the_space_of_a_run_is_the_same_window(tmp_path: Path, user: str, session: str) -> None:
    async def work() -> None:
        async with Runtime(tmp_path) as rt:
            space = rt.space("s", user=user, session=session)
            pad, other = await space.open(Pad, "pad"), await space.open(Pad, "beside")
            told = await pad.keep_both.send("tea")
            assert told == (session or rt.sessions.own("s"))
            assert (await other.draft.pull(), await pad.both.pull()) == ("tea", "tea and tea")
            again = rt.space("s", user=user, session=told)  # A program that was told of its window has it.
            assert await again.piece(Pad, "pad").draft.pull() == "tea"

    run(work)


@pytest.mark.parametrize("session", ["", "a1"])
@pytest.mark.parametrize("user", ["ann", "bob"])
def test_a_window_that_leads_into_another_space_is_that_user_s_window_there(
    tmp_path: Path, user: str, session: str
) -> None:
    """Bob is the second user of this runtime in both spaces."""

    async def work() -> None:
        async with Runtime(tmp_path) as rt:
            for space in ("here", "there"):
                await rt.space(space, user="ann").open(Pad, "first")
            pad = await rt.space("there", user=user, session=session).open(Pad, "pad")
            front = await rt.space("here", user=user, session=session).open(
                Front(keep=pad.keep, there=pad.draft), "front"
            )
            await front.write.send("tea")
            await rt.settled()
            assert await pad.draft.pull() == "tea"
            assert await front.look.send() == "tea"

    run(work)


@pytest.mark.parametrize("prefix", RESERVED)
def test_an_application_names_no_window_that_is_nobody_s_to_name(tmp_path: Path, prefix: str) -> None:
    async def work() -> None:
        async with Runtime(tmp_path) as rt:
            with pytest.raises(AuthoringError, match="Name it otherwise"):
                rt.space("s", user="eve", session=f"{prefix}x")

    run(work)


def test_what_is_no_connection_cannot_be_opened_as_one() -> None:
    for session in (named("a1"), beside("key of s", "bob"), windows().asked("s", "eve")):
        with pytest.raises(ProtocolError, match="engine's own"):
            check_foreign(session)
    assert called(named("a1")) == "a1"


def test_in_another_space_no_session_keeps_the_name_of_a_connection() -> None:
    mine = windows()
    assert mine.of("s", "ann") == "key of s"
    assert mine.of("s", "bob") == beside("key of s", "bob")
    assert mine.there("s", "t", "ann", "key of s") == "key of t"
    assert mine.there("s", "t", "bob", beside("key of s", "bob")) == beside("key of t", "bob")
    assert mine.there("s", "t", "ann", "key of somebody else") == beside("key of somebody else", "ann")
    assert mine.there("s", "s", "ann", "key of somebody else") == "key of somebody else"
    assert mine.there("s", "t", "ann", named("a1")) == named("a1")
    assert mine.there("s", "t", "ann", "") == ""


def test_nobody_has_the_window_of_the_first_user_by_saying_its_name() -> None:
    mine = windows()
    assert mine.of("s", "ann") == "key of s"
    assert mine.called("s", "ann", "key of s") == "key of s"
    assert mine.called("s", "eve", "key of s") == named("key of s")


def test_nobody_becomes_the_first_user_of_a_space_by_what_follows_from_a_question() -> None:
    mine = windows()
    assert mine.there("s", "t", "eve", mine.asked("s", "eve")) == beside("key of t", "eve")
    assert mine.of("t", "ann") == "key of t"
    assert mine.of("s", "cy") == "key of s"
    assert mine.of("s", "ann") == beside("key of s", "ann")
    assert mine.there("s", "t", "ann", beside("key of s", "ann")) == "key of t", "she is the first one there"


def test_whoever_only_asks_is_not_the_first_user() -> None:
    mine = windows()
    assert mine.asked("s", "eve") == beside("key of s", "eve")
    assert mine.of("s", "ann") == "key of s"
