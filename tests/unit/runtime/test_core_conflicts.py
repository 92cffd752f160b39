"""Runs whose commits were rejected, seen from a runtime: what reads them waits with them."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.data.path import Path
from headwater.protocol.verdict import Conflict
from headwater.replica.pending import Layer
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
    shop.judge_results(Conflict())
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


def test_set_that_is_made_again_removes_a_key_that_is_gone() -> None:
    """Another writer removed the key before it. One who writes the key again meanwhile is not to be left in it."""
    shop = Scripted()
    shop.arrive("rows", {"c": 0})
    rows = shop.core.cell("shop", "rows", Mapping[str, int], default={})
    rows.set({"b": 3})
    (first,) = shop.layers()
    shop.conflict(first)
    shop.arrive("rows", {})
    assert rows.get() == {"b": 3}
    (again,) = shop.layers()
    assert written(again) == [("add", ("b",)), ("remove", ("c",))]


def test_plain_write_leaves_fields_alone_that_an_accepted_write_of_its_runtime_wrote() -> None:
    """Only a write that may still be rejected is written again: another writer may have changed the field since."""
    shop = Scripted()
    shop.arrive("rows", {"a": 1})
    rows = shop.core.cell("shop", "rows", Mapping[str, int], default={})
    rows.key("b").set(2)
    (first,) = shop.layers()
    first.send(first.local_seq)
    shop.replica.pending.sent(first)
    rows.set({"a": 3, "b": 2})
    assert written(shop.layers()[-1]) == [("replace", ("a",)), ("add", ("b",))]
    shop.replica.accepted(first.local_seq, 1)
    rows.set({"a": 4, "b": 2})
    shop.replica.accepted(shop.layers()[1].local_seq, 2)
    rows.set({"a": 5, "b": 2})
    assert written(shop.layers()[-1]) == [("replace", ("a",)), ("add", ("b",))]
    shop.replica.accepted(shop.layers()[2].local_seq, 3)
    shop.replica.accepted(shop.layers()[3].local_seq, 4)
    rows.set({"a": 6, "b": 2})
    assert written(shop.layers()[-1]) == [("replace", ("a",))]


def written(layer: Layer) -> list[tuple[str, Path]]:
    return [(patch.kind, patch.path) for operation in layer.commit.operations for patch in operation.patches]
