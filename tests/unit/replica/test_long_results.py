"""A result that is longer than a message may be is refused here: a server would end every connection on which it is."""

from __future__ import annotations

from headwater.data.value import ABSENT
from headwater.protocol.verdict import RuleRefused
from headwater.replica.limits import DEFAULT_REPLICA_LIMITS
from tests.unit.replica.kit import doc
from tests.unit.replica.results_kit import Calls, Node, flushed, settled, started

LONG = "z" * (DEFAULT_REPLICA_LIMITS.commit_bytes + 1)


def test_result_that_is_too_long_is_refused_without_being_sent() -> None:
    world, (ann,) = started("ann")
    calls = Calls(ann)
    long, short = Node(ann, "a", "x"), Node(ann, "b", "x")
    long.show(LONG)
    short.show(2)
    ((sent,),) = flushed(ann)
    assert [operation.doc for operation in sent.operations] == [doc("b")]
    ((id, _, rejection, is_newest),) = calls.refused
    assert (id, is_newest) == ("a", True)
    assert isinstance(rejection, RuleRefused)
    assert rejection.rule == "commit_bytes"
    settled(world)
    assert ann.replica.is_durable()
    assert ann.replica.is_confirmed()
    assert _values(world.value("a"), world.value("b")) == (ABSENT, 2)


def test_reader_of_a_result_that_is_too_long_is_sent_when_it_has_run_again() -> None:
    world, (ann,) = started("ann")
    long, reader = Node(ann, "a", "x"), Node(ann, "b", "a")
    long.show(LONG)
    reader.show(2)
    ann.session.flush()
    long.is_current = False
    long.show("short")
    long.is_current = True
    reader.show(3)
    settled(world)
    assert _values(world.value("a"), world.value("b")) == ("short", 3)
    assert ann.replica.is_confirmed()


def _values(*values: object) -> tuple[object, ...]:
    return values
