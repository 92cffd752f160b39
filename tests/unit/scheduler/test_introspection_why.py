"""`why`: the exact chain of causes of the last run, with where, before, after, which commit and who."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.data.patch import Patch
from headwater.data.value import ABSENT
from headwater.errors import AuthoringError
from headwater.protocol.messages import Patched, Sync
from headwater.protocol.verdict import Conflict
from headwater.scheduler.introspection.causes import End
from headwater.scheduler.limits import SchedulerLimits
from headwater.testing.scheduler.kit import Handle, World
from tests.unit.scheduler.introspection_kit import Inspected


def test_a_chain_leads_from_the_effect_to_the_write_that_began_it() -> None:
    world = World(traced=False)
    source = world.cell({"x": 1, "y": 1}, id="source")
    double = world.computed(lambda: source.at("x").get() * 2, id="double")
    world.look(double, id="show")
    world.settle()
    source.at("x").set(5)
    world.settle()
    why = Inspected(world).look.why("show")
    assert (why.node, why.kind, why.runs, why.pending, why.left_out) == ("show", "effect", 2, (), 0)
    first, second = why.steps
    assert (first.level, first.node, first.end) == (0, "show", End.GOES_ON)
    assert (first.cause.address, first.cause.before, first.cause.after) == ("space:double", 2, 10)
    assert (first.cause.kind, first.cause.writer) == ("commit", "double")
    assert first.cause.local_seq == 0, "a result has no number before it is sent"
    assert (second.level, second.node, second.end) == (1, "double", End.OUTSIDE)
    assert (second.cause.address, second.cause.before, second.cause.after) == ("space:source#/x", 1, 5)
    assert (second.cause.kind, second.cause.writer) == ("commit", "")
    assert second.cause.who == "a write outside of any run"
    assert second.cause.local_seq > 0
    lines = str(why).splitlines()
    assert lines[0] == "effect show, clean, 2 runs"
    assert lines[2].startswith("    space:double: 2 -> 10, commit, seq ")
    assert lines[2].endswith("by double")
    assert lines[3].startswith("      space:source#/x: 1 -> 5")
    json.dumps(why.as_json())
    assert why.as_json()["steps"][0]["cause"]["after"] == 10


def test_every_cause_is_there_when_several_changes_made_one_run() -> None:
    world = World(traced=False)
    cells = [world.cell(0, id=f"cell{number}") for number in range(3)]
    world.effect(lambda: [cell.get() for cell in cells], id="show")
    world.settle()
    cells[2].set("a")
    cells[0].set("b")
    world.settle()
    why = Inspected(world).look.why("show")
    assert [(step.cause.address, step.cause.before, step.cause.after) for step in why.steps] == [
        ("space:cell2", 0, "a"),
        ("space:cell0", 0, "b"),
    ]


def test_a_place_that_changed_twice_before_the_run_shows_the_last_change() -> None:
    world = World(traced=False)
    source = world.cell(0, id="source")
    world.effect(source.get, id="show")
    world.settle()
    source.set(1)
    source.set(2)
    world.settle()
    (step,) = Inspected(world).look.why("show").steps
    assert (step.cause.before, step.cause.after) == (1, 2)


def test_the_first_run_has_no_cause_and_a_node_that_never_ran_has_no_run() -> None:
    world = World(traced=False)
    source = world.cell(0)
    world.computed(source.get, id="dormant")
    world.effect(source.get, id="show")
    world.settle()
    look = Inspected(world).look
    assert look.why("show").steps == ()
    assert "not caused by a change" in str(look.why("show"))
    assert look.why("dormant").runs == 0
    assert "it has not run" in str(look.why("dormant"))


def test_a_writer_that_ran_for_the_first_time_ends_the_chain() -> None:
    world = World(traced=False)
    source = world.cell(1, id="source")
    late = Handle(world, world.document("late"))
    world.look(late, id="show")
    world.settle()
    world.computed(source.get, id="late", output=late.document)
    world.settle()
    (step,) = Inspected(world).look.why("show").steps
    assert (step.cause.writer, step.end) == ("late", End.FIRST_RUN)
    assert (step.cause.before, step.cause.after) == (ABSENT, 1)
    assert "before" not in step.cause.as_json()


def test_a_writer_that_has_run_again_is_not_followed_into_what_made_it_run_later() -> None:
    """The chain is exact or ends: causes of another commit of the same writer are never shown."""
    world = World(traced=False)
    source, other = world.cell(1, id="source"), world.cell(1, id="other")
    sign = world.computed(lambda: source.get() > 0 and bool(other.get()), id="sign")
    world.look(sign, id="show")
    world.settle()
    source.set(-1)
    world.settle()
    assert Inspected(world).look.why("show").steps[0].end is End.GOES_ON
    source.set(-2)  # It runs again and writes what was there.
    world.settle()
    (step,) = Inspected(world).look.why("show").steps
    assert (step.cause.before, step.cause.after, step.cause.writer) == (True, False, "sign")
    assert step.end is End.NOT_KEPT


def test_a_gated_reader_shows_what_is_pending_beside_what_made_it_run() -> None:
    world = World(traced=False)
    source = world.cell(0, id="source")
    world.effect(source.get, id="show", debounce_ms=50)
    world.settle()
    source.set(1)
    world.advance(60)
    source.set(2)
    world.settle()
    why = Inspected(world).look.why("show")
    assert (why.status, why.runs) == ("invalid", 2)
    assert [(step.cause.before, step.cause.after) for step in why.steps] == [(0, 1)]
    assert [(cause.before, cause.after) for cause in why.pending] == [(1, 2)]
    assert "it is invalid because of" in str(why)


def test_two_ways_to_one_writer_show_its_causes_once() -> None:
    world = World(traced=False)
    source = world.cell(1, id="source")
    base = world.computed(source.get, id="base")
    left = world.computed(lambda: base.get() + 1, id="left")
    right = world.computed(lambda: base.get() + 2, id="right")
    world.effect(lambda: (left.get(), right.get()), id="show")
    world.settle()
    source.set(2)
    world.settle()
    steps = Inspected(world).look.why("show").steps
    assert [(step.level, step.node, step.cause.writer, step.end) for step in steps] == [
        (0, "show", "left", End.GOES_ON),
        (1, "left", "base", End.GOES_ON),
        (2, "base", "", End.OUTSIDE),
        (0, "show", "right", End.GOES_ON),
        (1, "right", "base", End.SHOWN_ABOVE),
    ]


def test_a_cycle_is_cut_where_it_closes() -> None:
    world = World(traced=False)
    ping, pong = (Handle(world, world.document(id)) for id in ("ping", "pong"))
    world.computed(lambda: min((pong.get() if type(pong.get()) is int else 0) + 1, 6), id="ping", output=ping.document)
    world.computed(lambda: min((ping.get() if type(ping.get()) is int else 0) + 1, 6), id="pong", output=pong.document)
    world.look(pong, id="show")
    world.settle()
    look = Inspected(world).look
    for id in ("ping", "pong", "show"):
        steps = look.why(id).steps
        assert len(steps) <= 4
        assert steps[-1].end in (End.SHOWN_ABOVE, End.NOT_KEPT)


def test_a_long_chain_is_bounded_and_says_so() -> None:
    world = World(traced=False, limits=SchedulerLimits(causes_shown=5))
    last = source = world.cell(0, id="source")
    for number in range(2_000):
        last = world.computed(lambda above=last: above.get() + 1, id=f"c{number}")  # type: ignore[misc]
    world.look(last, id="show")
    world.settle()
    source.set(1)
    world.settle()
    steps = Inspected(world).look.why("show").steps
    assert len(steps) == 5
    assert [step.end for step in steps] == [End.GOES_ON] * 4 + [End.TOO_LONG]


def test_a_wide_run_is_bounded_and_says_how_many_are_left_out() -> None:
    world = World(traced=False, limits=SchedulerLimits(causes_shown=5))
    cells = [world.cell(0) for _ in range(20)]
    world.effect(lambda: [cell.get() for cell in cells], id="show")
    world.settle()
    for cell in cells:
        cell.set(1)
    world.settle()
    why = Inspected(world).look.why("show")
    assert (len(why.steps), why.left_out) == (5, 15)
    assert "and 15 more" in str(why)


def test_a_deep_chain_costs_no_stack() -> None:
    world = World(traced=False, limits=SchedulerLimits(causes_shown=100_000))
    last = source = world.cell(0, id="source")
    for number in range(5_000):
        last = world.computed(lambda above=last: above.get() + 1, id=f"c{number}")  # type: ignore[misc]
    world.look(last, id="show")
    world.settle()
    source.set(1)
    world.settle()
    steps = Inspected(world).look.why("show").steps
    assert len(steps) == 5_001
    assert steps[-1].cause.address == "space:source"


def test_what_the_log_brought_names_its_seq() -> None:
    world = World(traced=False)
    source = world.cell(0, id="source")
    world.effect(source.get, id="show")
    world.settle()
    seq = world.replica.confirmed.seq + 1
    world.replica.integrate(Sync(seq, (Patched(source.document.key, seq, (Patch("replace", (), 7),)),)))
    world.settle()
    (step,) = Inspected(world).look.why("show").steps
    assert (step.cause.before, step.cause.after, step.cause.seq, step.cause.local_seq) == (0, 7, seq, 0)
    assert (step.cause.kind, step.cause.who) == ("integrate", "the log of the space")


def test_an_arrival_says_that_what_was_before_is_not_known() -> None:
    world = World(traced=False, lazy=True)
    source = world.absent_cell(id="source")
    world.effect(source.get, id="show")
    world.settle()
    world.arrive(source, 3)
    world.settle()
    (step,) = Inspected(world).look.why("show").steps
    assert (step.cause.kind, step.cause.known_before, step.cause.after) == ("pull", False, 3)
    assert "not known -> 3" in str(step.cause)
    assert "before" not in step.cause.as_json()


def test_a_failure_above_is_a_cause_and_is_followed() -> None:
    world = World(traced=False)
    source = world.cell(1, id="source")
    ratio = world.computed(lambda: 10 // source.get(), id="ratio")
    world.look(ratio, id="show")
    world.settle()
    source.set(0)
    world.settle()
    first, second = Inspected(world).look.why("show").steps
    assert (first.cause.kind, first.cause.writer, first.end) == ("failure", "ratio", End.GOES_ON)
    assert (second.node, second.cause.before, second.cause.after) == ("ratio", 1, 0)
    assert "ratio failed" in str(first.cause)
    source.set(2)
    world.settle()
    (step,) = Inspected(world).look.why("show").steps
    assert (step.cause.kind, step.end) == ("failure", End.NOT_KEPT)


def test_a_writer_that_is_no_more_ends_the_chain() -> None:
    world = World(traced=False)
    source = world.cell(1, id="source")
    double = world.computed(lambda: source.get() * 2, id="double")
    world.look(double, id="show")
    world.settle()
    source.set(2)
    world.settle()
    world.scheduler.remove(world.node("double"))
    (step,) = Inspected(world).look.why("show").steps
    assert (step.cause.writer, step.end) == ("double", End.REMOVED)


def test_a_side_write_names_its_commit_and_its_causes() -> None:
    world = World(traced=False)
    source, side = world.cell(1, id="source"), world.cell({"n": 0}, id="side")

    def both() -> int:
        side.at("n").set(source.get())
        return 0

    world.computed(both, id="both", writes=[side])
    world.look(side.at("n"), id="show")
    world.settle()
    source.set(2)
    world.settle()
    first, second = Inspected(world).look.why("show").steps
    assert (first.cause.address, first.cause.before, first.cause.after) == ("space:side#/n", 1, 2)
    assert (first.cause.writer, first.cause.local_seq) == ("both", world.node("both").wrote)
    assert second.cause.address == "space:source"


@pytest.mark.parametrize("is_side", [False, True])
def test_what_made_a_run_whose_commit_was_rejected_is_pending_again(is_side: bool) -> None:
    """I8: of a run that wrote by itself as well as of one that only returned something."""
    world = World(traced=False)
    source, side = world.cell(1, id="source"), world.cell(0, id="side")

    def fn() -> Any:
        if is_side:
            side.set(source.get())
        return source.get()

    world.look(world.computed(fn, id="node", writes=[side]), id="show")
    world.settle()
    source.set(2)
    while world.tick():
        pass
    world.replica.rejected(world.node("node").wrote, Conflict())
    (cause,) = Inspected(world).look.why("node").pending
    assert (cause.address, cause.before, cause.after) == ("space:source", 1, 2)


def test_asking_about_nobody_says_where_to_look() -> None:
    look = Inspected(World(traced=False)).look
    with pytest.raises(AuthoringError, match="there is no node 'nobody': `snapshot` lists"):
        look.why("nobody")
