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
        self.seen = 0  # of the log

    def say(self, message: FromReplica) -> bool:
        if self.is_up:
            self.said.append(message)
        return self.is_up

    def declare(self, reaction: str) -> None:
        self.queries.declare(Subscribe(0, reaction, "topic", after=self.seen), self.heard)

    def heard(self, answer: Any) -> bool:
        self.answers.append(answer)
        return not isinstance(answer, LoadError) or answer.code != "storage"

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
    assert line.queries.first(1) == []
    assert not line.queries.is_declaring


def test_without_a_connection_it_is_the_first_thing_on_the_next_one() -> None:
    line = Line()
    line.is_up = False
    line.declare("r")
    line.declare("other")
    assert line.said == line.answers == []
    line.is_up = True
    line.said += line.queries.first(1)
    assert [each.reaction for each in line.said] == ["r", "other"]
    assert [each.after for each in line.said] == [None, None], "it is from then on"
    line.answer(heard)
    assert len(line.answers) == 1


def test_a_connection_that_ends_before_the_answer_is_no_answer() -> None:
    line = Line()
    line.declare("r")
    line.queries.fail("the connection was lost")
    assert line.answers == []
    assert [getattr(each, "reaction", "") for each in line.queries.first(1)] == ["r"]


def refused(_: int) -> LoadError:
    return LoadError("no", code="protocol")


def failed(_: int) -> LoadError:
    return LoadError("the disk is full (planted)", code="storage")


def test_what_is_refused_is_told_and_not_said_again() -> None:
    line = Line()
    line.declare("r")
    line.answer(refused)
    assert [each.code for each in line.answers] == ["protocol"]
    line.queries.again("r")
    assert len(line.said) == 1
    assert line.queries.first(1) == []
    assert not line.queries.is_declaring


def test_what_fails_is_said_again_from_where_the_log_was_before_it_was_said_first() -> None:
    line = Line()
    line.seen = 5
    line.declare("r")
    for _ in range(2):
        line.answer(failed)
        assert line.queries.is_declaring
        line.seen += 3
        line.queries.again("r")
    assert [each.after for each in line.said] == [None, 5, 5]
    line.answer(heard)
    line.queries.again("r")
    assert len(line.said) == 3
    assert not line.queries.is_declaring


def test_on_the_next_connection_it_is_from_where_the_log_was_when_it_was_said_first() -> None:
    line = Line()
    line.seen = 5
    line.declare("r")
    line.queries.fail("the connection was lost")
    line.said += line.queries.first(9)
    assert [each.after for each in line.said] == [None, 5], "what was sent behind it may be in the log"


def test_declared_without_a_connection_it_is_from_where_the_log_was_when_there_was_one() -> None:
    line = Line()
    line.is_up = False
    line.declare("r")
    line.said += line.queries.first(9)
    line.is_up = True
    line.answer(failed)
    line.queries.again("r")
    assert [each.after for each in line.said] == [None, 9], "nothing that relies on it was sent before"


def test_a_session_that_has_seen_nothing_yet_knows_where_the_log_was_when_it_was_opened() -> None:
    line = Line()
    line.queries.first(7)
    line.declare("r")
    line.answer(failed)
    line.queries.again("r")
    assert [each.after for each in line.said] == [None, 7]


def test_two_answers_are_one() -> None:
    line = Line()
    line.declare("r")
    line.queries.again("r")
    for each in line.said:
        assert line.queries.answered(each.id, heard(each.id))
    assert len(line.answers) == 1
