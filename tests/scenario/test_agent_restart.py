"""The agent: stopped in the middle of its work and started again, it goes on where it was."""

from __future__ import annotations

import asyncio

import pytest

from examples.agent import app
from examples.agent.app import Agent
from headwater import Refused
from headwater.testing import Simulation, simulated

QUESTION = "Where does the headwater of a river come from?"
PAGES = {file.stem for file in app.LIBRARY.glob("*.txt")}


class Reading:
    """Counts what is read, and holds a reader at a page until the test lets it go on."""

    def __init__(self, hold_at: str = "") -> None:
        self.began: list[str] = []
        self.done: list[str] = []
        self.hold_at = hold_at
        self.held = asyncio.Event()
        self.fails: dict[str, int] = {}

    async def __call__(self, name: str) -> str:
        self.began.append(name)
        if name == self.hold_at:
            self.held.set()
            await asyncio.Event().wait()
        if self.fails.get(name, 0):
            self.fails[name] -= 1
            raise ConnectionError("the library is closed")
        self.done.append(name)
        return (app.LIBRARY / f"{name}.txt").read_text(encoding="utf-8")


async def finished(agent: Agent) -> None:
    async for status in agent.status.watch():
        if status.startswith("done"):
            return


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a thread: in a simulation all time is virtual."""
    monkeypatch.setattr(app, "read", Reading())


@simulated(seeds=20, faults=("delay", "drop"))
async def test_a_restart_in_the_middle_reads_no_page_twice(sim: Simulation) -> None:
    before, after = Reading(hold_at="valleys"), Reading()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "read", before)
        await app.start(sim.runtime("agent"))
        working = asyncio.create_task(app.work(sim.runtime("agent")))
        await sim.runtime("ann").space("agent").piece(Agent, "main").ask.send(QUESTION)
        await before.held.wait()  # Some pages are learnt, and one is being read: the process ends here.
        working.cancel()
        await asyncio.wait([working])
        await sim.crash("agent")

        patched.setattr(app, "read", after)
        await app.start(sim.runtime("agent"))
        working = asyncio.create_task(app.work(sim.runtime("agent")))
        agent = sim.runtime("agent").space("agent").piece(Agent, "main")
        await finished(agent)
        memory = await agent.memory.pull()
        findings = await agent.findings.pull()
        working.cancel()
        await asyncio.wait([working])
    assert set(memory) == PAGES
    assert sorted(each.order for each in memory.values()) == list(range(len(PAGES)))
    assert "headwater" in findings[0]
    assert sorted(before.done + after.done) == sorted(PAGES)  # none was read twice
    assert after.began[0] == "valleys"  # the one that it was at


@simulated(seeds=20, faults=("delay", "drop", "crash"))
async def test_it_reads_everything_whatever_happens_to_the_server(sim: Simulation) -> None:
    await app.start(sim.runtime("agent"))
    working = asyncio.create_task(app.work(sim.runtime("agent")))
    agent = sim.runtime("ann").space("agent").piece(Agent, "main")
    await agent.ask.send(QUESTION)
    await finished(agent)
    assert set(await agent.memory.pull()) == PAGES
    working.cancel()
    await asyncio.wait([working])


@simulated(seeds=5)
async def test_a_page_that_fails_is_tried_again(sim: Simulation) -> None:
    reading = Reading()
    reading.fails = {"snow": 2}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "read", reading)
        await app.start(sim.runtime("agent"))
        working = asyncio.create_task(app.work(sim.runtime("agent")))
        agent = sim.runtime("agent").space("agent").piece(Agent, "main")
        await agent.ask.send(QUESTION)
        await finished(agent)
        working.cancel()
        await asyncio.wait([working])
    assert reading.began.count("snow") == 3
    assert sorted(reading.done) == sorted(PAGES)


@simulated(seeds=5)
async def test_another_question_begins_anew(sim: Simulation) -> None:
    await app.start(sim.runtime("agent"))
    working = asyncio.create_task(app.work(sim.runtime("agent")))
    agent = sim.runtime("agent").space("agent").piece(Agent, "main")
    with pytest.raises(Refused, match="a longer word"):
        await agent.ask.send("why?")
    await agent.ask.send(QUESTION)
    await finished(agent)
    await agent.ask.send("How long does snow store water?")
    await finished(agent)
    assert "Snow stores water for months" in await agent.findings.pull()
    working.cancel()
    await asyncio.wait([working])
