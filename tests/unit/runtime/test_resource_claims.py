"""Whose claim holds: nobody waits for a process that owned the directory before, and is gone."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from headwater import Cell, Piece, Ready, cell, resource
from headwater.clock import VirtualClock
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import Backend, InMemory, LocalDirectory
from headwater.runtime.pieces.resource import FetchClaim, Worker
from tests.scenario.pieces_kit import run

BEGUN: list[str] = []


class Job(Piece, name="claims.Job"):
    what: Cell[str] = cell(default="tea")

    @resource(what)
    async def made(self, what: str) -> str:
        BEGUN.append(what)
        if len(BEGUN) == 1:
            await asyncio.get_running_loop().create_future()  # until it is killed
        return what.upper()


class Owner:
    """The backend of a runtime in the process that owns a directory which others may connect to."""

    def __init__(self, life: str) -> None:
        self.life = life
        self.is_only = False
        self.token = ""

    def transport(self, space: str) -> None:
        return None

    async def close(self) -> None:
        """There is nothing to let go of."""


def test_after_a_kill_the_only_runtime_of_a_directory_goes_on_at_once(tmp_path: Path) -> None:
    BEGUN.clear()

    async def work() -> None:
        async with LocalDirectory(tmp_path / "killed") as data:
            rt = Runtime(data)
            job = await rt.space("s").open(Job, "j")
            look = job.made.sink(lambda _: None)
            while not BEGUN:
                await asyncio.sleep(0)
            await rt.written()
            shutil.copytree(tmp_path / "killed", tmp_path / "left")  # what a kill at this moment leaves behind
            look.close()
            await rt.close()
        async with asyncio.timeout(20), Runtime(tmp_path / "left") as again:  # A claim holds for 30 s.
            async for state in again.space("s").piece(Job, "j").made.watch():
                if state == Ready("TEA"):
                    break

    run(work)
    assert BEGUN == ["tea", "tea"]


def test_whose_claims_hold(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path) as data:
            other = Worker(data, "one").name
            former = Worker(Owner("before"), "two").name
            remote = Worker(InMemory(), "three").name

            def waits(backend: Backend, by: str) -> bool:
                claim = FetchClaim(wanted="w", by=by, until_us=10)
                assert not Worker(backend, "me").waits_for(claim, "another", 0)
                assert not Worker(backend, "me").waits_for(claim, "w", 10)
                return Worker(backend, "me").waits_for(claim, "w", 9)

            # In one directory that nobody connects to: for those of this process only.
            assert [waits(data, by) for by in (other, former, remote)] == [True, False, False]
            # In a process that serves: not for its own former lives, but for whoever connects, or is cut off.
            assert [waits(Owner("now"), by) for by in (former, Owner("now").life + "/x", remote)] == [False, True, True]
            # Elsewhere nobody knows who is gone.
            assert [waits(InMemory(), by) for by in (other, former, remote)] == [True, True, True]

    run(work)


def test_a_claim_is_known_as_one_s_own() -> None:
    worker = Worker(Owner("now"), VirtualClock(seed=1).new_token())
    claim = FetchClaim(wanted="w", by=worker.name, until_us=10)
    assert worker.has(claim)
    assert not worker.has(None)
    assert not Worker(Owner("later"), "x").has(claim)
    assert not worker.waits_for(claim, "w", 0)
