"""Reactions of an application that is served: in every space of its directory, whoever emits there, and over starts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from websockets.asyncio.client import connect

import headwater
from headwater import Backoff, Cell, Delivery, Piece, Topic, cell, handler, reaction, topic
from headwater.runtime import Runtime, served
from headwater.server import Server, ServerLimits
from tests.scenario.preview_kit import answer
from tests.unit.runtime.kit import address, serving

HEARD: list[str] = []
IS_DOWN: list[bool] = [False]


class Shop(Piece):
    receipts: Cell[tuple[str, ...]] = cell(default=())
    placed: Topic[str] = topic()

    @handler
    def place(self, order: str) -> None:
        self.placed.emit(order)

    @handler
    def paid(self, receipt: str) -> None:
        self.receipts.push(receipt)

    @reaction(on=placed, then=paid, max_retries=50, backoff=Backoff.fixed(base_ms=20))
    async def charge(self, order: str, delivery: Delivery) -> str:
        if IS_DOWN[0]:
            raise ConnectionError("nobody there")
        HEARD.append(order)
        return f"paid {order}"


@asynccontextmanager
async def application(folder: Path, **options: Any) -> AsyncIterator[Server]:
    """As `headwater run` serves it."""
    async with serving(folder, insecure_local=True, classes=(Shop,), **options) as server:
        server.application()
        yield server


async def placed(server: Server, *orders: str, space: str = "s") -> None:
    """By a client, which delivers nothing itself."""
    async with Runtime(address(server)) as client:
        piece = await client.space(space).open(Shop, "ann")
        for order in orders:
            await piece.place.send(order)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0)


def run(story: Callable[[], Awaitable[None]]) -> None:
    HEARD.clear()
    IS_DOWN[0] = False

    async def main() -> None:
        await story()

    asyncio.run(main())


def test_a_disk_that_fails_while_a_space_is_looked_at_does_not_make_it_wait_for_a_visitor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            await placed(server, "1", "2")
        busy = apsw.Connection(str(tmp_path / "s.space"))
        busy.execute("BEGIN EXCLUSIVE")
        async with application(tmp_path) as server:
            await until(lambda: "s.space is in use" in caplog.text)
            assert HEARD == []
            busy.close()
            await until(lambda: HEARD == ["1", "2"])

    run(story)


def test_an_application_delivers_what_clients_emit_in_a_space_that_it_never_opened(tmp_path: Path) -> None:
    async def story() -> None:
        async with application(tmp_path) as server:
            await placed(server, "1", "2")
            await until(lambda: HEARD == ["1", "2"])
            # Pages still may not name it: the application did not open it.
            place = {"space": "s", "cls": "Shop", "name": "ann", "member": "receipts"}
            async with connect(f"{address(server)}/v1/page") as page, asyncio.timeout(20):
                await page.send(json.dumps({"type": "enter", "version": 1, "user": "ann"}))
                assert json.loads(await page.recv())["type"] == "entered"
                await page.send(json.dumps({"type": "look", "id": 1, "place": place}))
                told = json.loads(await page.recv())
                assert (told["type"], told["id"]) == ("failed", 1)
                assert "this application has no space 's'" in told["error"]
            # Commands find whoever delivers.
            where = address(server).replace("ws:", "http:")
            rows: list[tuple[str, str]] = []
            async with asyncio.timeout(20):
                while rows != [("s/ann:paid", "landed")] * 2:
                    rows = [(row["stream"], row["state"]) for row in await answer("intents", where, "s")]

    run(story)


def test_what_waited_when_a_server_ended_is_delivered_after_its_start_with_no_traffic(tmp_path: Path) -> None:
    async def story() -> None:
        IS_DOWN[0] = True
        async with application(tmp_path) as server:
            await placed(server, "1", space="a")
            await placed(server, "2", space="b")
        IS_DOWN[0] = False
        assert HEARD == []
        async with application(tmp_path) as server:
            await until(lambda: sorted(HEARD) == ["1", "2"])
            assert server.application().attended_spaces == {"a", "b"}

    run(story)


def test_a_client_that_stays_over_the_start_of_a_server_has_its_records_delivered(tmp_path: Path) -> None:
    """It declared its reactions to the server before, and does not again."""

    async def story() -> None:
        async with application(tmp_path) as server:
            port = server.address[1]
            client = Runtime(address(server))
            piece = await client.space("s").open(Shop, "ann")
            await piece.place.send("1")
            await until(lambda: HEARD == ["1"])
            await client.reactions.drained()
        async with again(tmp_path, port):
            await piece.place.send("2")
            await until(lambda: HEARD == ["1", "2"])
            await client.close()

    run(story)


@asynccontextmanager
async def again(folder: Path, port: int) -> AsyncIterator[Server]:
    server = Server(folder, port=port, insecure_local=True, classes=(Shop,))
    task = asyncio.get_running_loop().create_task(server.run_until_stopped())
    server.application()
    try:
        yield server
    finally:
        server.stop()
        await task


def test_a_space_with_nothing_to_deliver_is_not_kept_open(tmp_path: Path) -> None:
    async def story() -> None:
        async with application(tmp_path) as server:
            await placed(server, "1")
            await until(lambda: HEARD == ["1"])
        async with application(tmp_path) as server:
            await until(lambda: server.application().has_visited_all)
            assert not server.application().attended_spaces
            await placed(server, "2")
            await until(lambda: HEARD == ["1", "2"])

    run(story)


def test_a_program_beside_the_server_delivers_in_its_own_spaces_by_itself(tmp_path: Path) -> None:
    """And when it ends, what is left is the application's."""

    async def story() -> None:
        async with application(tmp_path) as server:
            with served(tmp_path, server.application().backend):
                async with headwater.open(tmp_path) as rt:
                    piece = await rt.space("s").open(Shop, "ann")
                    await piece.place.send("1")
                    await rt.reactions.drained()
                    assert await piece.receipts.pull() == ("paid 1",)
                    assert not server.application().attended_spaces
                    IS_DOWN[0] = True
                    await piece.place.send("2")
            IS_DOWN[0] = False
            await until(lambda: HEARD == ["1", "2"])
            assert server.application().attended_spaces == {"s"}

    run(story)


def test_what_an_application_attends_leaves_room_for_those_who_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        async with application(tmp_path, limits=ServerLimits(spaces=4)) as server:
            for space in ("a", "b", "c", "d", "e"):
                await placed(server, space, space=space)
            await until(lambda: HEARD == ["a", "b"])
            await until(lambda: server.application().has_visited_all)
            assert server.application().attended_spaces == {"a", "b"}

    run(story)
    assert "not attended" in "".join(capsys.readouterr())
