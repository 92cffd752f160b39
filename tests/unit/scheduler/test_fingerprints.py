"""I8: a commit of a run says which code it was, as far as whoever registered the node knows."""

from __future__ import annotations

from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.testing.scheduler.kit import World


def test_every_commit_of_a_run_has_the_fingerprint_of_its_code() -> None:
    """One replaces its output, the other writes by itself: two ways to a commit."""
    world = World()
    source, side = world.cell(1), world.cell(0)
    world.settle()
    world.computed(lambda: source.get() + 1, id="plain", fingerprint="f1")

    def writes() -> int:
        side.set(source.get())
        return int(source.get())

    world.computed(writes, id="both", writes=(side,), fingerprint="f2")
    world.computed(lambda: source.get() * 2, id="unknown")
    for id in ("plain", "both", "unknown"):
        world.look(world.cell(id=id))
    while world.tick():
        pass
    said = {layer.commit.provenance for layer in world.replica.pending.queued()}
    sent = world.send_results()
    assert sent is not None
    said |= {result.provenance for result in sent.commit.results}
    assert {each.node: each.fingerprint for each in said} == {"plain": "f1", "both": "f2", "unknown": ""}


def test_a_node_has_the_fingerprint_it_was_registered_with() -> None:
    world = World()
    spec = NodeSpec(id="e", kind=NodeKind.EFFECT, fn=int, home=world.replica, returns=False, fingerprint="f")
    assert world.scheduler.register(spec).fingerprint == "f"
