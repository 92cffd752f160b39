"""Declared reads: hints that order a first pass. They never make anything run, and nothing is fetched for them."""

from __future__ import annotations

from headwater.data.trace import Suspended
from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.testing.scheduler.kit import Handle, World


def test_what_a_node_names_and_runs_anyway_runs_before_it_without_a_stopped_attempt() -> None:
    world = World()
    source = world.cell(1)
    reader_sees: list[int] = []
    made = world.document("made")

    def register(id: str, kind: NodeKind, fn: object, **more: object) -> None:
        spec = NodeSpec(id=id, kind=kind, fn=fn, home=world.replica, **more)  # type: ignore[arg-type]
        world.scheduler.register(spec, rooted=True)

    handle = Handle(world, made)
    register("reader", NodeKind.EFFECT, lambda: reader_sees.append(handle.get()), declared=(made,), returns=False)
    register("writer", NodeKind.COMPUTATION, lambda: source.get() + 1, outputs=(made,))
    world.settle()
    assert reader_sees == [2]
    assert not [event for event in world.trace.of(Suspended) if event.node == "reader"]


def test_naming_a_dormant_node_does_not_make_it_run() -> None:
    world = World()
    source = world.cell(1)
    writer = world.computed(lambda: source.get() + 1, id="writer")
    spec = NodeSpec(
        id="reader",
        kind=NodeKind.EFFECT,
        fn=lambda: None,
        home=world.replica,
        returns=False,
        declared=(writer.document,),
    )
    world.scheduler.register(spec)
    world.settle()
    assert world.node("writer").runs == 0
