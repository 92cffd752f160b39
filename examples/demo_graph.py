"""The chapters of the demo that need a runtime: values that are derived, and only when somebody looks.

Told by `examples.demo`. Two runtimes share one space, as two programs of one application do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from headwater.cells.model import Model
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import LocalDirectory


class Tells(Protocol):
    """The story that the demo tells, as far as these chapters need it."""

    def chapter(self, title: str) -> None: ...

    def tell(self, line: str) -> None: ...

    def because(self, line: str) -> None: ...

    def show(self, line: str) -> None: ...

    def holds(self, condition: bool, claim: str) -> None: ...


class Line(Model):
    """One line of a cart."""

    sku: str
    cents: int
    qty: int = 1


async def a_graph_settles(story: Tells, folder: Path) -> None:
    async with LocalDirectory(folder) as data, Runtime(data) as rt:
        shop = rt.space("shop")
        lines = shop.cell("lines", Mapping[str, Line], default={})
        total, report = shop.cell("total", int), shop.cell("report", str)
        shown: list[int] = []

        story.chapter("8. A value that follows")
        rt.register(lambda: sum(line.cents * line.qty for line in lines.get().values()), output=total, id="total")
        rt.register(lambda: shown.append(total.get()), kind="effect", id="show")
        dormant = rt.register(lambda: f"{len(lines.get())} lines, {total.get()} cents", output=report, id="report")
        lines.key("a").set(Line(sku="tea", cents=450))
        lines.key("b").set(Line(sku="milk", cents=120))
        await rt.settled()
        lines.key("a").at(lambda line: line.qty).set(2)
        await rt.settled()
        story.tell("A total is computed from the lines of a cart, and an effect shows it.")
        story.show(f"shown: {shown}")
        story.holds(shown[-1] == 1020, "the effect has seen the total of what was written last")
        story.holds(dormant.runs == 0, "what nobody looks at has not run")
        before = len(shown)
        lines.key("b").at(lambda line: line.sku).set("oat milk")
        await rt.settled()
        story.holds(len(shown) == before, "an equal total makes nobody run")
        story.because("Writes say what changed; what was read decides who runs, and an equal result stops there.")

        story.chapter("9. Only when somebody looks")
        story.holds(await report.pull() == "2 lines, 1020 cents", "looking brings it up to date")
        story.tell(f"The report ran {dormant.runs} time, when it was pulled, after all those changes.")
        story.holds(dormant.runs == 1, "it ran once for all that had changed")
        story.because("Demand comes from below. A thousand reports that nobody reads cost nothing.")

        story.chapter("10. Why?")
        lines.key("a").at(lambda line: line.qty).set(3)
        await rt.settled()
        why = rt.why("show")
        for line in str(why).splitlines():
            story.show(line)
        causes = [step.cause for step in why.steps]
        story.holds(
            [(cause.address, cause.writer) for cause in causes[:2]] == [("space:total", "total"), ("space:lines", "")],
            "the chain of causes leads from the effect through the total to the line that was written",
        )
        story.because("Every run knows which value, before and after, made it run, and who wrote that.")

        story.chapter("11. Two programs, one cart")
        async with Runtime(data) as other:
            theirs = other.cell("shop", "lines", Mapping[str, Line], default={})
            their_total = other.cell("shop", "total", int)
            await theirs.pull()
            theirs.key("c").set(Line(sku="cake", cents=80))
            lines.key("b").at(lambda line: line.qty).set(2)
            await other.durable()
            await rt.durable()
            await rt.settled(through=other.space("shop").seq)
            story.holds(await total.pull() == 3 * 450 + 2 * 120 + 80, "both writes are in the total")
            await rt.durable()
            await other.settled(through=rt.space("shop").seq)
            story.holds(await their_total.pull() == await total.pull(), "both programs show the same total")
            story.tell(f"Both wrote at once, neither waited: {total.get()} cents, on both screens.")
    async with Runtime(folder) as again:
        kept = await again.cell("shop", "total", int).pull()
        story.holds(kept == 3 * 450 + 2 * 120 + 80, "what was derived is there after a restart")
