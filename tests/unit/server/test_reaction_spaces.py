"""A served application looks for records in spaces that no client has open, and looks again after a failure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.engine import Engine
from headwater.errors import StorageError
from headwater.protocol.reactions import QueryReactions
from tests.scenario.test_reactions_operated import HEARD, application, placed, run, until
from tests.unit.runtime.kit import serving


@pytest.mark.parametrize("failures", [1, 2])
def test_space_is_looked_at_again_after_its_engine_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    real, left = Engine.deliver, [StorageError("the disk is busy")] * failures

    def deliver(engine: Engine, question: object) -> object:
        if isinstance(question, QueryReactions) and left:
            raise left.pop()
        return real(engine, question)  # type: ignore[arg-type]

    async def story() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            await placed(server, "1", "2")
        monkeypatch.setattr(Engine, "deliver", deliver)
        async with application(tmp_path):
            await until(lambda: HEARD == ["1", "2"])
        assert left == []

    run(story)


def test_application_that_ends_does_not_look_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def deliver(engine: Engine, question: object) -> object:
        asked.append(question)
        raise StorageError("the disk is busy")

    async def story() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            await placed(server, "1")
        monkeypatch.setattr(Engine, "deliver", deliver)
        async with application(tmp_path):
            await until(lambda: len(asked) > 0)
        count = len(asked)
        await asyncio.sleep(0)
        assert len(asked) == count
        assert HEARD == []

    run(story)
