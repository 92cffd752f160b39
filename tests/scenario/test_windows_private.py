"""A window that the application only has a name for is nobody's to open: not by guessing, not by reading the name."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headwater
from headwater import Cell, Piece, Policy, cell, handler
from headwater.data.patch import append
from headwater.engine import ACCESS
from headwater.errors import HeadwaterError
from headwater.protocol.messages import FromReplica, Open, Query
from headwater.runtime import RemoteServer, Runtime
from headwater.server import new_key, new_token
from tests.scenario.desk_kit import ask
from tests.scenario.runtime_kit import Cable
from tests.scenario.test_events_waiting import moments
from tests.scenario.wire_kit import Wire
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
def test_nobody_opens_the_window_of_an_application_s_user(tmp_path: Path, guess: str) -> None:
    """By the name that the application uses, by the one that is stored, and by each that stands in a stored event."""

    async def stolen(where: str, key: str) -> object:
        """What eve reads there, with a client that opens its session under that key."""

        def opened_as(space: str, message: FromReplica) -> FromReplica:
            return msgspec.structs.replace(message, session=key) if isinstance(message, Open) else message

        eve = Runtime(Wire(RemoteServer(where, token=new_token(tmp_path, "eve")), opened_as), policy=PATIENT)
        try:
            eve.space("s", user="eve")
            driver = eve.channel("s").driver  # type: ignore[union-attr]
            await asyncio.wait_for(driver.opened(), 60)
            return [each.get() for each in (await driver.query(Query(0, f"session:{key}", "n:draft"))).documents]
        except HeadwaterError as error:
            return str(error)
        finally:
            await eve.close()

    async def work() -> None:
        new_key(tmp_path)
        async with serving(tmp_path, classes=(Note,), owner="ann") as server:
            where = address(server)
            ann = await headwater.connect(where, token=new_token(tmp_path, "ann"), policy=PATIENT)
            await ann.space("s", user="ann").open(Note, "n")
            founder = ann.channel("s")
            assert founder is not None
            await founder.land(lambda tx: tx.write(ACCESS, append(("writers",), ["eve"])), node="grant")
            await ann.close()
            async with Runtime(server.application().backend, policy=PATIENT) as app:
                windows = {"ann": "a1", "bob": "", "cy": ""}
                for user, session in windows.items():
                    await app.space("s", user=user, session=session).piece(Note, "n").write.send(f"secret of {user}")
                channel = app.channel("s")
                assert channel is not None
                stored = await channel.driver.stored_events(limit=10)
                payloads: list[Any] = [event.payload for event in stored.events]
                keys = {str(payload["session"]) for payload in payloads}
                assert len(keys) == 3
                for key in {guess} if guess else keys:
                    assert "secret" not in str(await stolen(where, key))

    run(work)


def test_a_mere_reader_who_asks_first_does_not_have_the_application_s_own_window(tmp_path: Path) -> None:
    async def work() -> None:
        new_key(tmp_path)
        async with serving(tmp_path, classes=(Note,), owner="ann") as server:
            app = server.application().runtime
            ann = await headwater.connect(address(server), token=new_token(tmp_path, "ann"))
            await ann.space("s", user="ann").open(Note, "n")
            founder = ann.channel("s")
            assert founder is not None
            await founder.land(lambda tx: tx.write(ACCESS, append(("readers",), ["eve"])), node="grant")
            await ann.close()
            note, eve = await app.space("s").open(Note, "n"), "eve"

            async def asks(what: str, value: str | None = None) -> str:
                question = {"what": what, "space": "s", "place": "n.draft", "value": value}
                return (await ask(server, question, token=new_token(tmp_path, eve)))[1]

            assert "n.draft" in await asks("get")
            await note.write.send("secret")
            assert "secret" not in await asks("get")
            await asks("set", "of eve")
            assert "of eve" in await asks("get")
            assert await note.draft.pull() == "secret"

    run(work)


def test_what_was_sent_from_a_window_that_is_over_is_handled_in_the_one_in_its_place(tmp_path: Path) -> None:
    """Offline, and then the process ended: its outbox is sent again from the window of the next one."""

    async def work() -> None:
        new_key(tmp_path)
        async with serving(tmp_path, anyone_founds=True) as server:
            where, token, path = address(server), new_token(tmp_path, "ann"), tmp_path / "outbox"
            cable = Cable(RemoteServer(where, token=token))
            client = Runtime(cable, outbox=path, close_s=0.01)
            note = await client.space("s", user="ann").open(Note, "n")
            await note.write.send("before")
            cable.unplug()
            note.write.post("tea")
            await moments()
            with pytest.raises(HeadwaterError):
                await client.close()
            async with headwater.connect(where, token=token, outbox=path) as rt:
                again = await rt.space("s", user="ann").open(Note, "n")
                await rt.idle()
                assert await again.draft.pull() == "tea"

    run(work)
