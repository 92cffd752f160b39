"""Reactions that are declared by a session: before every commit that follows, on whichever connection that goes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.errors import LoadError
from headwater.protocol.messages import FromReplica
from headwater.protocol.reactions import Subscribe, Subscribed
from headwater.replica.queries import Queries


class Line:
    """A connection that comes and goes."""

    def __init__(self) -> None:
        self.is_up = True
        self.said: list[Any] = []
        self.numbers = iter(range(1, 100))
        self.queries = Queries(self.say, lambda: next(self.numbers))
        self.answers: list[Any] = []

    def say(self, message: FromReplica) -> bool:
        if self.is_up:
            self.said.append(message)
        return self.is_up

    def declare(self, reaction: str) -> None:
        self.queries.declare(Subscribe(0, reaction, "topic"), self.answers.append)

    def answer(self, make: Callable[[int], Any]) -> None:
        """The engine answers what was said last."""
        number = self.said[-1].id
        assert self.queries.answered(number, make(number))


def heard(number: int) -> Subscribed:
    return Subscribed(number, 7, True)


def test_with_a_connection_it_is_said_at_once_and_once() -> None:
    line = Line()
    line.declare("r")
    assert [each.reaction for each in line.said] == ["r"]
    line.answer(heard)
    assert [type(each) for each in line.answers] == [Subscribed]
    assert line.queries.first() == []


def test_without_a_connection_it_is_the_first_thing_on_the_next_one() -> None:
    line = Line()
    line.is_up = False
    line.declare("r")
    line.declare("other")
    assert line.said == line.answers == []
    line.is_up = True
    line.said += line.queries.first()
    assert [each.reaction for each in line.said] == ["r", "other"]
    line.answer(heard)
    assert len(line.answers) == 1


def test_a_connection_that_ends_before_the_answer_is_no_answer() -> None:
    line = Line()
    line.declare("r")
    line.queries.fail("the connection was lost")
    assert line.answers == []
    assert [getattr(each, "reaction", "") for each in line.queries.first()] == ["r"]


def test_what_is_refused_or_fails_is_told_and_not_said_again_by_itself() -> None:
    for code in ("protocol", "storage"):
        line = Line()
        line.declare("r")
        line.answer(lambda _, code=code: LoadError("no", code=code))  # type: ignore[misc]
        assert [each.code for each in line.answers] == [code]
        assert line.queries.first() == []
