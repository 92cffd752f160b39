"""A window that the application only has a name for is nobody's to open: not by guessing, not by reading the name."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Piece, Policy, cell, handler
from headwater.data.patch import append
from headwater.engine.access import ACCESS
from headwater.errors import HeadwaterError
from headwater.protocol.messages import Query
from headwater.replica.session import Session
from headwater.runtime import attached
from headwater.runtime.runtime import Runtime
from headwater.server.application import Served
from headwater.server.keys import new_key, new_token
from tests.unit.runtime.kit import address, run, serving

PATIENT = Policy(grace_ms=1_000_000)


class Note(Piece, name="windows.Note"):
    draft: Cell[str] = cell(default="", scope="session")

    @handler
    def write(self, text: str) -> str:
        self.draft.set(text)
        self.wake.post_at(timedelta(hours=1))  # A stored row, which whoever may write here can read.
        return self.ctx.session

    @handler
    def wake(self) -> None:
        pass


def test_an_author_meets_the_name_that_the_application_gave(tmp_path: Path) -> None:
    async def work() -> None:
        async with Runtime(tmp_path) as rt:
            note = await rt.space("s", user="ann", session="a1").open(Note, "n")
            assert await note.write.send("tea") == "a1"
            assert note.draft.get() == "tea"

    run(work)


@pytest.mark.parametrize("guess", ["a1", "window a1", ""])
def test_nobody_opens_the_window_of_an_application_s_user(
    tmp_path: Path, guess: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name that the application uses, by the one that is stored, and by each that stands in a stored event."""

    async def stolen(where: str, key: str) -> object:
        """What eve reads there, with a client that opens its session under that key."""

        def opened_as(*args: Any, **options: Any) -> Session:
            return Session(*args, **{**options, "key": key})

        with monkeypatch.context() as patch:
            patch.setattr(attached, "Session", opened_as)
            eve = await headwater.connect(where, token=new_token(tmp_path, "eve"), policy=PATIENT)
            try:
                eve.space("s", user="eve")
                driver = eve.channel("s").driver  # type: ignore[union-attr]
                await asyncio.wait_for(driver.opened(), 5)
                return [each.get() for each in (await driver.query(Query(0, f"session:{key}", "n:draft"))).documents]
            except HeadwaterError as error:
                return str(error)
            finally:
                await eve.close()

    async def work() -> None:
        new_key(tmp_path)
        async with serving(tmp_path) as server:
            where = address(server)
            ann = await headwater.connect(where, token=new_token(tmp_path, "ann"), policy=PATIENT)
            await ann.space("s", user="ann").open(Note, "n")
            founder = ann.channel("s")
            assert founder is not None
            await founder.land(lambda tx: tx.write(ACCESS, append(("writers",), ["eve"])), node="grant")
            await ann.close()
            async with Runtime(Served(server.service), clock=server.service.clock, policy=PATIENT) as app:
                windows = {"ann": "a1", "bob": "", "cy": ""}
                for user, session in windows.items():
                    await app.space("s", user=user, session=session).piece(Note, "n").write.send(f"secret of {user}")
                channel = app.channel("s")
                assert channel is not None
                told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                channel.driver.session.queries.ask_events(told.set_result, due_by_us=2**52, after=(0, ""), limit=10)
                channel.driver.flush()
                keys = {str(event.payload["session"]) for event in (await told).events}
                assert len(keys) == 3
                for key in {guess} if guess else keys:
                    assert "secret" not in str(await stolen(where, key))

    run(work)
