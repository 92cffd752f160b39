"""Runs whose commits were rejected, seen from a runtime: what reads them waits with them."""

from __future__ import annotations

from headwater.protocol.verdict import Conflict
from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec
from tests.unit.runtime.test_core_writing import Scripted


def test_superseded_results_stay_shown_and_nothing_runs_again() -> None:
    """I3: the inputs are the same, so that the results are sent again without a run."""
    shop = Scripted()
    for id, value in (("n", 1), ("double", None), ("sum", None)):
        shop.arrive(id) if value is None else shop.arrive(id, value)
    n = shop.core.cell("shop", "n", int)
    double, total = shop.core.cell("shop", "double", int), shop.core.cell("shop", "sum", int)
    for id, fn, output in (("double", lambda: n.get() * 2, double), ("sum", lambda: double.get() + n.get(), total)):
        shop.core.register(
            NodeSpec(id=id, kind=NodeKind.COMPUTATION, fn=fn, home=shop.replica, outputs=(output.document,))
        )
    seen: list[int] = []
    total.sink(seen.append)
    shop.core.settle()
    assert seen == [3]
    for sent in shop.replica.compose_wave(10):
        shop.replica.result_rejected(sent, Conflict())
    shop.core.settle()
    assert not shop.errors, shop.errors
    shop.arrive("double", 2)
    assert seen == [3]
    assert total.get() == 3
    assert not shop.errors


def test_what_a_run_read_before_it_wrote_there_is_a_read() -> None:
    """Otherwise two runtimes that count the same thing would each overwrite what the other counted."""
    shop = Scripted()
    for id, value in (("n", 1), ("counter", 5)):
        shop.arrive(id, value)
    shop.arrive("out")
    n, counter = shop.core.cell("shop", "n", int), shop.core.cell("shop", "counter", int)
    out = shop.core.cell("shop", "out", int)

    def count() -> object:
        counter.set(counter.get() + n.get())
        return n.get()

    outputs = (out.document, counter.document)
    shop.core.register(NodeSpec(id="count", kind=NodeKind.COMPUTATION, fn=count, home=shop.replica, outputs=outputs))
    out.sink(lambda _: None)
    shop.core.settle()
    assert counter.get() == 6
    (layer,) = shop.layers()
    assert {read.doc.id for read in layer.commit.reads} == {"n", "counter"}
