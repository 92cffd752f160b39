"""Two runtimes on one space: both derive, both write, and they agree; cut, offline, and after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater import Model
from headwater.data.address import Link
from headwater.errors import HeadwaterError
from headwater.runtime import LocalDirectory, Runtime
from tests.scenario.runtime_kit import TRANSPORTS, Rig, rig_on
from tests.unit.runtime.kit import run


class Card(Model):
    title: str
    points: int = 1


def total_of(runtime: Runtime, *, id: str = "total") -> tuple[Any, Any, Any]:
    """A space with lines and a computed total of them."""
    shop = runtime.space("shop")
    lines, total = shop.cell("lines", tuple[int, ...], default=()), shop.cell("total", int)
    return lines, total, runtime.register(lambda: sum(lines.get()), output=total, id=id)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_one_runtime_writes_the_other_computes(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            (one, _), (two, _) = rig.runtime(), rig.runtime()
            lines, _, _ = total_of(one)
            _, total, _ = total_of(two)
            seen: list[int] = []
            total.sink(seen.append)
            lines.push(450)
            await one.durable()
            await until(lambda: seen[-1:] == [450])
            lines.push(50)
            await until(lambda: seen[-1:] == [500])
            assert not rig.errors

    run(work)


async def until(holds: Any) -> None:
    """Let the others have their turns until something holds. The test's own time limit ends it otherwise."""
    while not holds():
        await asyncio.sleep(0)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_computed_in_both_runtimes_agrees_whatever_both_write(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            (one, _), (two, _) = rig.runtime(), rig.runtime()
            (lines, total, _), (other_lines, other_total, _) = total_of(one), total_of(two)
            for handle in (total, other_total):
                handle.sink(lambda _: None)
            for number in range(1, 21):
                (lines if number % 2 else other_lines).push(number)
                if number % 5 == 0:
                    await asyncio.sleep(0)
            assert await rig.agreed(total, other_total) == 210
            assert sorted(lines.get()) == list(range(1, 21))
            assert not rig.errors

    run(work)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_read_modify_writes_from_both_sides_all_count(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            runtimes = [rig.runtime()[0] for _ in range(3)]
            cells = [runtime.cell("shop", "n", int, default=0) for runtime in runtimes]
            for cell in cells:
                assert await cell.pull() == 0
            for _ in range(10):
                for cell in cells:
                    cell.update(lambda n: n + 1)
            assert await rig.agreed(*cells) == 30
            assert not rig.errors

    run(work)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_transactions_from_both_sides_all_count(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            runtimes = [rig.runtime()[0] for _ in range(2)]

            async def count_up(runtime: Runtime) -> None:
                shop = runtime.space("shop")
                cell, log = shop.cell("n", int, default=0), shop.cell("log", tuple[int, ...], default=())

                def step() -> None:
                    cell.set(cell.get() + 1)
                    log.push(cell.get())

                for _ in range(8):
                    await shop.transact(step)

            await asyncio.gather(*[count_up(runtime) for runtime in runtimes])
            cells = [runtime.cell("shop", "n", int) for runtime in runtimes]
            assert await rig.agreed(*cells) == 16
            assert await runtimes[0].cell("shop", "log", tuple[int, ...]).pull() == tuple(range(1, 17))

    run(work)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_who_make_the_same_mapping_at_once_do_not_overwrite_each_other(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            runtimes = [rig.runtime()[0] for _ in range(4)]
            cards = [runtime.cell("shop", "cards", Mapping[str, Card], default={}) for runtime in runtimes]
            for handle in cards:
                assert dict(await handle.pull()) == {}
            for number, handle in enumerate(cards):
                handle.key(f"k{number}").set(Card(title=f"card {number}"))
            assert set(await rig.agreed(*cards)) == {"k0", "k1", "k2", "k3"}
            assert not rig.errors

    run(work)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_conflicting_run_is_made_again_and_both_agree(transport: str, tmp_path: Path) -> None:
    """Both runtimes derive the same document from the same input; whoever is late reads again."""

    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            runtimes = [rig.runtime()[0] for _ in range(2)]
            sources = [runtime.cell("shop", "n", int, default=0) for runtime in runtimes]
            outs = []
            for runtime, source in zip(runtimes, sources, strict=True):
                out = runtime.cell("shop", "out", int)
                runtime.register(lambda s=source: s.get() * 2, output=out, id="double")  # type: ignore[misc]
                out.sink(lambda _: None)
                outs.append(out)
            for number in range(30):
                sources[number % 2].set(number)
                if number % 3 == 0:
                    await asyncio.sleep(0)
            value = await rig.agreed(*outs)
            assert value == await rig.agreed(*sources) * 2
            assert not rig.errors

    run(work)


# ---- connections -------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_is_written_while_the_cable_is_out_lands_when_it_is_back(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            (one, cable), (two, _) = rig.runtime(), rig.runtime()
            (lines, total, _), (other_lines, other_total, _) = total_of(one), total_of(two)
            name = one.cell("shop", "name", str, default="")
            total.sink(lambda _: None)
            lines.push(1)
            assert await rig.agreed(total, other_total) == 1
            await name.pull()
            cable.unplug()
            lines.push(2)
            name.set("first")
            name.set("second")
            lines.update(lambda all_: (*all_, 3))
            other_lines.push(10)
            await one.idle()
            assert total.get() == 6  # Everything keeps working on what is here.
            await two.durable()
            cable.plug_in()
            assert await rig.agreed(total, other_total) == 16
            assert await rig.agreed(name, two.cell("shop", "name", str)) == "second"
            assert sorted(lines.get()) == [1, 2, 3, 10]
            assert not [failure for failure in rig.errors if "connection" not in str(failure.error)]

    run(work)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_cut_again_and_again_nothing_is_lost_and_nothing_twice(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            (one, cable), (two, other_cable) = rig.runtime(), rig.runtime()
            counters = [runtime.cell("shop", "n", int, default=0) for runtime in (one, two)]
            doubles = []
            for runtime, counter in zip((one, two), counters, strict=True):
                out = runtime.cell("shop", "double", int)
                runtime.register(lambda c=counter: c.get() * 2, output=out, id="double")  # type: ignore[misc]
                out.sink(lambda _: None)
                doubles.append(out)
                await counter.pull()
            for number in range(40):
                counters[number % 2].increment()
                if number % 7 == 0:
                    (cable if number % 2 else other_cable).cut()
                await asyncio.sleep(0)
            assert await rig.agreed(*counters) == 40
            assert await rig.agreed(*doubles) == 80

    run(work)


# ---- restart -----------------------------------------------------------------------------------------


def test_a_restart_keeps_cells_and_what_was_derived_of_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with Runtime(tmp_path / "data") as rt:
            lines, total, _ = total_of(rt)
            lines.push(450)
            assert await total.pull() == 450
        async with Runtime(tmp_path / "data") as rt:
            lines, total, node = total_of(rt)
            assert await lines.pull() == (450,)
            assert await rt.cell("shop", "total", int).pull() == 450
            lines.push(50)
            assert await total.pull() == 500
            assert node.runs >= 1

    run(work)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_link_leads_into_another_space_of_the_same_source(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            (one, _), (two, _) = rig.runtime(), rig.runtime()
            one.cell("stock", "tea", int).set(7)
            one.cell("shop", "pointer", Link).set(Link(space="stock", id="tea"))
            await one.durable()
            through = two.cell("shop", "pointer", int)
            assert await through.pull() == 7
            seen: list[int] = []
            through.sink(seen.append)
            await until(lambda: seen == [7])
            one.cell("stock", "tea", int).increment()
            await until(lambda: seen == [7, 8])
            through.set(20)
            await two.durable()
            assert await rig.agreed(one.cell("stock", "tea", int), through) == 20

    run(work)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_settled_through_a_number_waits_for_what_somebody_else_wrote(transport: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with rig_on(transport, tmp_path) as rig:
            (one, _), (two, _) = rig.runtime(), rig.runtime()
            lines, _, _ = total_of(one)
            _, total, _ = total_of(two)
            total.sink(lambda _: None)
            await total.pull()
            lines.push(5)
            one.cell("shop", "unrelated", int).set(1)
            await one.durable()
            seq = one.space("shop").seq
            await two.settled(through=seq)
            assert total.get() == 5
            assert two.space("shop").seq >= seq
            with pytest.raises(HeadwaterError, match="there is no commit 1000000 to wait for"):
                await two.settled(through=1_000_000)

    run(work)


def test_damaged_space_is_reported_on_the_error_channel(tmp_path: Path) -> None:
    async def work() -> None:
        folder = tmp_path / "data"
        folder.mkdir()
        (folder / "shop.space").write_bytes(b"this is no database, and long enough to be looked at" * 100)
        rig = Rig(lambda: data)
        async with LocalDirectory(folder) as data:
            rt = Runtime(data, close_s=0.05)
            rt.on_failure(rig.errors.append)
            rt.space("shop")
            await until(lambda: rig.errors)
            channel = rt.channel("shop")
            assert channel is not None
            assert "shop.space is damaged" in str(rig.errors[0].error)
            await rt.close()

    run(work)
