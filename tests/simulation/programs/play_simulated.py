"""Plays shared programs in a simulation: virtual time, a network and a disk with faults, all decided by the seed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from random import Random

from headwater import Policy, Runtime
from headwater.testing import Simulation
from headwater.testing.author.seeds import run_seed
from tests.simulation.programs.description import Program
from tests.simulation.programs.expected_shared import Entry, entries_of
from tests.simulation.programs.play_shared import GRACE_MS, SharedPlayer
from tests.simulation.programs.stored import StoredSend, stored_sends

__all__ = ["play_simulated"]

FAULTS = (("delay",), ("delay", "drop"), ("delay", "drop", "partition", "duplicate"), ("delay", "crash", "disk"))


class _SimulatedSite:
    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._offline: dict[str, ExitStack] = {}

    def runtime(self, user: str) -> Runtime:
        return self._sim.runtime(user, policy=Policy(grace_ms=GRACE_MS))

    def go_offline(self, user: str) -> None:
        if user not in self._offline:
            self._offline[user] = ExitStack()
            self._offline[user].enter_context(self._sim.offline(user))

    def go_online(self, user: str) -> None:
        if user in self._offline:
            self._offline.pop(user).close()

    async def crash(self, who: str) -> None:
        await self._sim.crash(who) if who != "server" else await self._sim.crash()

    async def wait(self, seconds: float) -> None:
        await self._sim.advance(seconds=seconds)

    def set_clock(self, seconds: int) -> None:
        self._sim.set_wall_clock(seconds=seconds)

    async def settle(self) -> None:
        for user in tuple(self._offline):
            self.go_online(user)
        await self._sim.settle()

    def log(self, space: str, program: Program) -> list[Entry]:
        return self._sim.server.read(lambda engines: entries_of(program, engines[space]) if space in engines else [])

    def stored(self, space: str) -> list[StoredSend]:
        return self._sim.server.read(lambda engines: stored_sends(space, engines[space]) if space in engines else [])


def play_simulated(program: Program, folder: Path) -> None:
    """Play a shared program in a simulation with the faults that its seed draws."""

    async def play(sim: Simulation) -> None:
        await SharedPlayer(program, _SimulatedSite(sim)).play()

    faults = Random(program.seed).choice(FAULTS)
    run_seed(play, program.seed, faults)
