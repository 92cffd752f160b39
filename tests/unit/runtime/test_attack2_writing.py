"""What a second outside attack found about writes: none may vanish, and none may come in another order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.data.address import Link
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import LocalDirectory
from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec
from tests.unit.runtime.kit import run
from tests.unit.runtime.test_core_writing import Scripted


def test_a_transaction_reads_what_it_reads_also_while_runs_are_checked() -> None:
    shop = Scripted()
    core = shop.core
    n, double = core.cell("shop", "n", int), core.cell("shop", "double", int)
    shop.arrive("n", 1)
    shop.arrive("double")
    core.scheduler.introspection.idempotency.switch(on=True)
    spec = NodeSpec(
        id="double",
        kind=NodeKind.COMPUTATION,
        fn=lambda: n.get() * 2,
        home=shop.replica,
        outputs=(double.document,),
    )
    core.register(spec)
    double.sink(lambda _: None)
    core.settle()
    before = {layer.local_seq for layer in shop.layers()}
    n.update(lambda value: value + 1)
    layer = next(layer for layer in shop.layers() if layer.local_seq not in before)
    assert [read.doc.id for read in layer.commit.reads] == ["n"]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_write_of_what_a_link_leads_to_has_its_turn_after_one_through_the_link(is_known: bool) -> None:
    shop = Scripted()
    n, through = shop.core.cell("shop", "n", int), shop.core.cell("shop", "link", int)
    shop.arrive("n", 100)
    shop.arrive("link")
    shop.core.cell("shop", "link", Link).set(n.link())
    shop.confirm()
    shop.core.settle()
    through.update(lambda value: value + 10)
    if not is_known:
        n.set(5)
    shop.ready = False
    shop.conflict(shop.layers()[0])
    shop.core.settle()
    if is_known:
        n.set(5)
    shop.core.settle()
    shop.ready = True
    shop.core.heard()
    shop.core.settle()
    assert n.get() == 5


def test_whoever_was_told_that_its_edit_was_taken_back_is_told_that_it_is_there_again() -> None:
    shop = Scripted()
    text = shop.core.cell("shop", "n", str)
    shop.arrive("n", "base")
    heard: list[str] = []
    text.sink(heard.append, group="editor")
    shop.core.settle()
    text.update(lambda value: value + " mine", group="editor")
    shop.core.settle()
    shown = "base mine"  # by the editor itself
    shop.ready = False
    before = len(heard)
    shop.conflict(shop.layers()[0])
    shop.core.settle()
    shop.ready = True
    shop.core.heard()
    shop.core.settle()
    if len(heard) > before:
        shown = heard[-1]
    assert shown == text.get() == "base mine"


def test_a_write_that_waits_for_another_document_is_not_overtaken() -> None:
    shop = Scripted()
    log, other = shop.core.cell("shop", "log", tuple[int, ...], default=()), shop.core.cell("shop", "other", int)
    shop.arrive("log", (0,))
    log.update(lambda value: (*value, other.get()))
    log.set((7,))
    shop.core.settle()
    shop.arrive("other", 1)
    assert log.get() == (7,)


def test_a_whole_write_that_is_made_again_does_not_erase_a_later_one_of_another_key() -> None:
    shop = Scripted()
    counts = shop.core.cell("shop", "n", Mapping[str, int])
    shop.arrive("n", {"b": 1})
    counts.key("b").update(lambda value: value + 1)
    counts.set({"b": 35})
    counts.key("a").set(38)
    assert dict(counts.get()) == {"b": 35, "a": 38}
    shop.conflict(shop.layers()[0])
    shop.core.heard()
    shop.core.settle()
    shop.confirm()
    shop.core.settle()
    assert dict(counts.get()) == {"b": 35, "a": 38}


def test_a_write_that_raises_what_is_no_exception_takes_nobody_along(tmp_path: Path) -> None:
    async def work() -> None:
        where = LocalDirectory(tmp_path, synchronous="OFF")
        async with where:
            rt = Runtime(where, close_s=0.1)
            cancelled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            told: list[BaseException] = []
            rt.on_error(told.append)
            n = rt.cell("shop", "n", int, default=0)
            n.update(lambda _: cancelled.result())
            n.set(5)
            try:
                async with asyncio.timeout(30):
                    await rt.durable()
                assert await n.pull() == 5
                assert told
            finally:
                rt.core.observers.end(AssertionError("the test is over"))  # type: ignore[arg-type]
                await rt.close()

    run(work)
