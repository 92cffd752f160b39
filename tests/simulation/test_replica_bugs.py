"""The histories of several runtimes find what they are for: each of these bugs, planted in the code that ships."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from headwater.data.spots import Spot, Twig
from headwater.data.value import MaybeValue
from headwater.replica import Changed, Document, Kind, Layer, Notification, Replica
from headwater.scheduler import Node, NodeSpec, Scheduler
from headwater.scheduler.fates import Fates
from headwater.scheduler.freshness import Freshness
from headwater.scheduler.gate import Gate
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.heights import Heights
from headwater.scheduler.graph.liveness import Liveness
from headwater.scheduler.introspection.non_settling import NonSettling
from headwater.scheduler.invalidation import Invalidation
from headwater.scheduler.registry import Registry
from headwater.scheduler.runner import Runner
from tests.counts import sampled
from tests.simulation.replica_checks import Broken
from tests.simulation.test_replica_invariants import FLAVOURS, play

Plant = AbstractContextManager[object]


class Bug(NamedTuple):
    """A mistake somebody could make, where it is looked for, and which invariant says so."""

    plant: Callable[[], Plant]
    flavour: str
    breaks: str
    within: int = 300


def found_after(bug: Bug) -> tuple[int, Broken]:
    """How many histories it took until the invariant said so that is there to say it, and what was found."""
    with bug.plant():
        for seed in range(bug.within):
            try:
                play(seed, FLAVOURS[bug.flavour])
            except Broken as broken:
                if broken.invariant == bug.breaks:
                    return seed + 1, broken
    raise AssertionError(f"{bug.plant.__name__} was not found in {bug.within} histories")


def nothing(*_: object, **__: object) -> None:
    """What somebody forgot to do."""


# ---- I1 ----------------------------------------------------------------------------------------------


def a_rejected_run_is_not_repeated() -> Plant:
    return patch.object(Fates, "_rearm", nothing)


def what_is_read_again_after_a_gap_is_taken_for_known() -> Plant:
    original = Invalidation.on_notification

    def on_notification(self: Invalidation, notification: Notification) -> None:
        if notification.kind is not Kind.RESET:
            original(self, notification)

    return patch.object(Invalidation, "on_notification", on_notification)


def what_others_derived_wakes_nobody() -> Plant:
    original = Invalidation.on_notification

    def on_notification(self: Invalidation, notification: Notification) -> None:
        if notification.kind is not Kind.INTEGRATE or not notification.document.key.id.startswith("node"):
            original(self, notification)

    return patch.object(Invalidation, "on_notification", on_notification)


# ---- I2 ----------------------------------------------------------------------------------------------


def registering_fetches_the_output() -> Plant:
    original = Scheduler.register

    def register(self: Scheduler, spec: NodeSpec, *, rooted: bool | None = None) -> Node:
        node = original(self, spec, rooted=rooted)
        for document in node.outputs:
            self._driver.load(document)
        return node

    return patch.object(Scheduler, "register", register)


def demand_is_never_withdrawn() -> Plant:
    return patch.object(Liveness, "_reconsider", nothing)


def whoever_is_registered_is_demanded() -> Plant:
    original = Scheduler.register

    def register(self: Scheduler, spec: NodeSpec, *, rooted: bool | None = None) -> Node:
        return original(self, spec, rooted=True)

    return patch.object(Scheduler, "register", register)


# ---- I3 ----------------------------------------------------------------------------------------------


def whoever_reads_a_document_reads_all_of_it() -> Plant:
    def spots(twig: Twig, change: Changed) -> list[Spot]:
        return list(twig.spots())

    return patch("headwater.scheduler.invalidation._spots", spots)


def a_result_that_is_the_same_is_told() -> Plant:
    original = Runner._commit

    def commit(self: Runner, node: Node, run: Any, result: object) -> Layer | None:
        layer = original(self, node, run, result)
        if layer is None and node.outputs:
            document = node.outputs[0]
            value: MaybeValue = document.value  # type: ignore[assignment]
            node.home.feed.emit(Notification(Kind.COMMIT, document, value, value, None, True, 0, node))
        return layer

    return patch.object(Runner, "_commit", commit)


# ---- I5 ----------------------------------------------------------------------------------------------


def a_run_hears_itself() -> Plant:
    original = Invalidation.on_notification

    def on_notification(self: Invalidation, notification: Notification) -> None:
        source, notification.source = notification.source, None
        try:
            original(self, notification)
        finally:
            notification.source = source

    return patch.object(Invalidation, "on_notification", on_notification)


def a_confirmation_is_told_as_a_change() -> Plant:
    original = Replica.accepted

    def accepted(self: Replica, local_seq: int, seq: int) -> None:
        layer = self.pending.get(local_seq)
        original(self, local_seq, seq)
        for doc in () if layer is None else layer.docs():
            document = self.documents.of(doc)
            value: MaybeValue = document.value  # type: ignore[assignment]
            self.feed.emit(Notification(Kind.INTEGRATE, document, None, value, None, True, seq))

    return patch.object(Replica, "accepted", accepted)


# ---- I6 ----------------------------------------------------------------------------------------------


def _held(change: Callable[[Gate], object]) -> Plant:
    original = Gates.exhausted

    def exhausted(self: Gates, node: Node, *more: Any) -> None:
        original(self, node, *more)
        change(self._gate(node))

    return patch.object(Gates, "exhausted", exhausted)


def whoever_spent_its_runs_goes_on_at_once() -> Plant:
    return _held(lambda gate: setattr(gate, "backoff_until", 0))


def waits_do_not_grow() -> Plant:
    return _held(lambda gate: setattr(gate, "exhaustions", 0))


def an_episode_is_told_each_time() -> Plant:
    return patch.object(NonSettling, "exhausted", lambda self, node: self._on_report(self._report(node, [])))


def a_cycle_through_others_is_none() -> Plant:
    return patch.object(Gates, "came", nothing)


# ---- I8 ----------------------------------------------------------------------------------------------


def causes_do_not_come_back() -> Plant:
    original = Fates._rearm

    def rearm(self: Fates, node: Node, causes: object, hops: int = 0) -> None:
        original(self, node, None, hops)

    return patch.object(Fates, "_rearm", rearm)


def _written(change: Callable[[dict[str, Any]], object]) -> Plant:
    original = Replica.write_whole

    def write_whole(
        self: Replica,
        document: Document,
        value: MaybeValue,
        spots: Any,
        source: object | None = None,
        group: object | None = None,
        node: str = "",
        causes: Mapping[Spot, object] | None = None,
        *more: Any,
    ) -> Layer | None:
        said = {"node": node, "causes": causes, "spots": spots}
        if source is not None:
            change(said)
        return original(self, document, value, spots, source, group, said["node"], said["causes"], *more)

    return patch.object(Replica, "write_whole", write_whole)


def causes_are_not_said() -> Plant:
    return _written(lambda said: said.update(causes=None))


def all_that_was_read_is_called_a_cause() -> Plant:
    return _written(lambda said: said.update(causes={spot: None for spot in said["spots"] if spot is not None}))


def nobody_says_who_it_was() -> Plant:
    return _written(lambda said: said.update(node=""))


# ---- I9 ----------------------------------------------------------------------------------------------


def heights_are_not_kept() -> Plant:
    return patch.object(Heights, "place", nothing)


def what_is_read_is_taken_for_fresh() -> Plant:
    return patch.object(Freshness, "_check", nothing)


def children_come_before_their_parents() -> Plant:
    original = Registry.add

    def add(self: Registry, spec: NodeSpec) -> Node:
        node = original(self, spec)
        node.low = ((15 - min(node.rank, 15)) << 40) + node.order
        return node

    return patch.object(Registry, "add", add)


def what_comes_between_two_slices_waits_for_the_next_sweep() -> Plant:
    return patch("headwater.scheduler.settle.pause", nothing)


BUGS = (
    Bug(a_rejected_run_is_not_repeated, "I1", "I1"),
    Bug(what_is_read_again_after_a_gap_is_taken_for_known, "I1", "I1"),
    Bug(what_others_derived_wakes_nobody, "I1", "I1"),
    Bug(registering_fetches_the_output, "I2", "I2"),
    Bug(demand_is_never_withdrawn, "I2", "I2"),
    Bug(whoever_is_registered_is_demanded, "I2", "I2"),
    Bug(whoever_reads_a_document_reads_all_of_it, "I3", "I3"),
    Bug(a_result_that_is_the_same_is_told, "I3", "I3"),
    Bug(a_run_hears_itself, "I5", "I5"),
    Bug(a_confirmation_is_told_as_a_change, "I5", "I5"),
    Bug(whoever_spent_its_runs_goes_on_at_once, "I6", "I6"),
    Bug(waits_do_not_grow, "I6", "I6"),
    Bug(an_episode_is_told_each_time, "I6", "I6"),
    Bug(a_cycle_through_others_is_none, "I6 across", "I6"),
    Bug(causes_do_not_come_back, "I8", "I8"),
    Bug(causes_are_not_said, "I8", "I8"),
    Bug(all_that_was_read_is_called_a_cause, "I8", "I8"),
    Bug(nobody_says_who_it_was, "I8", "I8"),
    Bug(heights_are_not_kept, "I9", "I9"),
    Bug(what_is_read_is_taken_for_fresh, "I9", "I9"),
    Bug(children_come_before_their_parents, "I9", "I9"),
    Bug(what_comes_between_two_slices_waits_for_the_next_sweep, "I9", "I9"),
)


@pytest.mark.parametrize("bug", sampled(BUGS), ids=lambda bug: bug.plant.__name__)
def test_it_is_found(bug: Bug) -> None:
    histories, broken = found_after(bug)
    assert histories <= bug.within
    assert broken.invariant == bug.breaks
