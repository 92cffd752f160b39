"""What an engine refuses a runtime: whoever awaits it gets it, the rest is told once, and nothing hangs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.errors import AccessError, HeadwaterError, LoadError, SessionExpiredError
from headwater.runtime import Runtime
from headwater.scheduler import Failure
from headwater.server import new_key
from tests.unit.runtime.kit import address, run, serving


def test_a_document_of_somebody_else_cannot_be_pulled_read_or_written(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "data", insecure_local=True) as server, Runtime(address(server)) as rt:
            errors: list[Failure] = []
            rt.on_failure(errors.append)
            theirs = rt.space("shop", user="ann").cell("secret", int, scope="user")
            with pytest.raises(LoadError, match="is not for 'local'"):
                await theirs.pull()
            theirs.set(1)
            with pytest.raises(LoadError):
                await rt.space("shop").transact(lambda: theirs.set(2))
            ours = rt.cell("shop", "n", int)
            ours.set(3)
            assert await ours.pull() == 3  # Everything else goes on.
            await rt.settled()
            assert {type(failure.error) for failure in errors} == {LoadError}
            assert "a write outside any run" in [failure.node for failure in errors]

    run(work)


def test_without_access_everybody_who_waits_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        new_key(tmp_path / "data")
        async with serving(tmp_path / "data") as server:
            errors: list[Failure] = []
            rt = Runtime(address(server), token="not a token")
            rt.on_failure(errors.append)
            cell = rt.cell("shop", "n", int)
            cell.set(1)
            with pytest.raises(AccessError):
                await cell.pull()
            with pytest.raises(AccessError):
                await rt.durable()
            with pytest.raises(AccessError):
                await rt.close()  # What was written did not land, and closing says so.
            assert [failure.node for failure in errors] == ["space shop"]

    run(work)


def test_a_transaction_that_is_under_way_when_the_runtime_closes_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        rt = Runtime("ws://127.0.0.1:9", close_s=0.01)
        cell = rt.cell("shop", "n", int, default=0)
        writing = asyncio.get_running_loop().create_task(rt.space("shop").transact(lambda: cell.set(1)))
        await asyncio.sleep(0)
        await rt.close()
        with pytest.raises((SessionExpiredError, HeadwaterError)):
            await writing

    run(work)
