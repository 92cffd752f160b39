"""Nothing unchecked enters: what no document can hold is refused where it arrives, from a wire or from a program.

A commit that got past the door with such a value would be acknowledged and could never be read again. One frame
that is refused here changes nothing and costs nobody else anything.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.data.address import DocKey
from headwater.data.limits import ValueLimits
from headwater.data.patch import Patch, replace
from headwater.data.value import freeze
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.verify.oracle import verify_file
from headwater.errors import ProtocolError
from headwater.protocol.commit import (
    Checked,
    Commit,
    EntityAbsent,
    LeaseHeld,
    Operation,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
    checked_frame,
    decode_frame,
    encode_frame,
)
from headwater.protocol.verdict import Accepted
from tests.unit.engine.kit import DEEP, Writer, doc, open_engine, value_of, write

LONE = "\ud800"


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def append_of(value: Any) -> Patch:
    values: Any = [value]
    return Patch("append", (), values)


def cycle() -> object:
    value: list[object] = []
    value.append(value)
    return value


UNHOLDABLE = {
    "not-a-number": float("nan"),
    "infinity": float("-inf"),
    "a-time": datetime(2026, 1, 1, tzinfo=UTC),
    "a-large-number": 2**60,
    "a-key-that-is-no-text": {1: 2},
    "a-lone-surrogate": LONE,
    "a-lone-surrogate-in-a-key": {LONE: 1},
    "an-object": object(),
    "a-set": {1, 2},
    "a-decimal": Decimal("1.5"),
    "an-id": UUID(int=7),
    "a-complex-number": 1j,
    "a-cycle": cycle(),
    "too-deep": deep(100),
}
CARRIERS: dict[str, Callable[[Any], Commit]] = {
    "event": lambda value: Commit(1, events=(SentEvent("e1", "s", value),)),
    "record": lambda value: Commit(1, records=(TopicRecord("t", "k", value),)),
    "patch": lambda value: Commit(1, (Operation(doc("d"), (Patch("replace", (), value),)),)),
    "element": lambda value: Commit(1, (Operation(doc("d"), (append_of(value),)),)),
}


def refused_alone(path: Path, commit: Commit) -> str:
    """The frame is refused, the one beside it lands, and the file reads and verifies as if it had never come."""
    engine = open_engine(path)
    engine.open_session("s")
    Writer(engine, "beside")
    beside = Commit(1, (write("beside", replace((), 1)),))
    outcomes = engine.submit_group([("s", (commit,)), ("beside", (beside,))])
    assert isinstance(outcomes[0], ProtocolError)
    assert outcomes[1] == (Accepted(1, 1),)
    assert [change.commit for change in engine.changes().items] == [beside]
    assert engine.submit("s", Commit(1))[0] == Accepted(1, 2)  # its number was not used up
    engine.close()
    engine = open_engine(path)
    assert len(engine.changes().items) == 2
    engine.close()
    assert verify_file(path).ok
    return str(outcomes[0])


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("name", UNHOLDABLE)
def test_a_value_no_document_can_hold_is_refused_and_nothing_else_is(tmp_path: Path, name: str, carrier: str) -> None:
    says = refused_alone(tmp_path / "s.space", CARRIERS[carrier](UNHOLDABLE[name]))
    assert says.startswith("commit 1 holds a value no document can hold: ")


@pytest.mark.parametrize(
    "commit",
    [
        Commit(1, events=(SentEvent(LONE, "s", 1),)),
        Commit(1, events=(SentEvent("e", LONE, 1),)),
        Commit(1, records=(TopicRecord(LONE, "k", 1),)),
        Commit(1, records=(TopicRecord("t", LONE, 1),)),
        Commit(1, provenance=Provenance(LONE)),
        Commit(1, provenance=Provenance("n", LONE)),
        Commit(1, provenance=Provenance("n", "f", ((doc("d"), (LONE,)),))),
        Commit(1, provenance=Provenance("n", "f", ((doc("d"), (2**70,)),))),
        Commit(1, preconditions=(LeaseHeld(LONE, 1),)),
        Commit(1, preconditions=(EntityAbsent(doc(LONE)),)),
        Commit(1, reads=(Read(doc(LONE), (), DEEP, 0),)),
        Commit(1, reads=(Read(doc("d"), (LONE,), DEEP, 0),)),
        Commit(1, (Operation(DocKey("space", LONE), (replace((), 1),)),)),
        Commit(1, (Operation(doc("d"), (Patch("replace", (LONE,), 1),)),)),
    ],
    ids=[
        *("event-id", "stream", "topic", "topic-key", "node", "fingerprint", "cause-text", "cause-number", "lease"),
        *("absent-document", "read-document", "read-path", "written-document", "written-path"),
    ],
)
def test_a_name_that_cannot_be_written_down_is_refused_and_nothing_else_is(tmp_path: Path, commit: Commit) -> None:
    assert "commit 1" in refused_alone(tmp_path / "s.space", commit)


@pytest.mark.parametrize(
    ("limits", "value"),
    [
        (ValueLimits(depth=2), [[[1]]]),
        (ValueLimits(string_bytes=3), ["four"]),
        (ValueLimits(container_items=2), [1, 2, 3]),
        (ValueLimits(total_bytes=100), ["x" * 60, "y" * 60]),
    ],
)
def test_every_limit_on_values_is_the_engine_s_own_not_the_default(limits: ValueLimits, value: object) -> None:
    engine = open_engine(limits=Limits(values=limits))
    engine.open_session("s")
    commit = Commit(1, (Operation(doc("d"), (Patch("replace", (), freeze(value)),)),))
    with pytest.raises(ProtocolError, match="commit 1 holds a value no document can hold"):
        engine.submit("s", commit)
    # Also when it was checked, but by somebody with other limits.
    (outcome,) = engine.submit_group([("s", decode_frame(encode_frame([commit])))])
    assert isinstance(outcome, ProtocolError)
    assert isinstance(open_engine_with_session().submit("s", commit)[0], Accepted)


def open_engine_with_session() -> Engine:
    engine = open_engine()
    engine.open_session("s")
    return engine


def test_what_was_accepted_under_larger_limits_is_read_and_replayed_under_smaller_ones(tmp_path: Path) -> None:
    """Limits are for what comes in. What is in the log was let in, and stays readable."""
    path = tmp_path / "s.space"
    engine = open_engine(path, limits=Limits(values=ValueLimits(depth=128)))
    engine.open_session("s")
    value = freeze(deep(100), ValueLimits(depth=128))
    commit = Commit(1, (Operation(doc("d"), (Patch("replace", (), value),)),), events=(SentEvent("e", "s", value),))
    engine.submit("s", commit)
    assert engine.submit("s", commit)[0] == Accepted(1, 1, replayed=True)
    engine.close()
    engine = open_engine(path)
    assert value_of(engine, "d") == value
    assert engine.changes().items[0].commit == commit
    engine.close()
    assert verify_file(path).ok


def test_a_frame_checked_for_the_same_limits_is_not_checked_again() -> None:
    limits = ValueLimits()
    engine = open_engine(limits=Limits(values=limits))
    engine.open_session("s")
    checked = checked_frame((Commit(1, (write("d", replace((), [1])),)),), limits)
    assert isinstance(checked, Checked)
    assert engine.submit_group([("s", checked)]) == [(Accepted(1, 1),)]


def test_what_a_program_does_to_its_value_afterwards_changes_no_document() -> None:
    engine = open_engine_with_session()
    mine: Any = {"l": [1]}
    engine.submit("s", Commit(1, (Operation(doc("d"), (Patch("replace", (), mine),)),)))
    mine["l"].append(2)
    mine["other"] = []
    assert value_of(engine, "d") == {"l": (1,)}
    engine.drop_caches()
    assert value_of(engine, "d") == {"l": (1,)}
