"""The outbox of a client: sends without an outcome survive the client and are handled once after a restart.

How the file stores them is not looked at. A crash between a commit and its verdict is made by copying the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import apsw
import pytest

import headwater
from headwater import BacklogFullError, Cell, Piece, Policy, cell, each, given, handler
from headwater.clock import VirtualClock
from headwater.errors import DirectoryInUseError, HeadwaterError, LimitError, NewerVersionError, StorageError
from headwater.runtime import RemoteServer, Runtime
from tests.scenario.pieces_kit import run, serving
from tests.scenario.runtime_kit import Cable


class Row(Piece, name="mended.Row"):
    n: Cell[int] = given()

    @handler
    def bump(self) -> None:
        self.n.set(self.n.get() + 1)


class Book(Piece, name="mended.Book"):
    lines: Cell[tuple[str, ...]] = cell(default=())
    counts: Cell[Mapping[str, int]] = cell(default={})

    @each(counts)
    def rows(self, n: Cell[int]) -> Row:
        return Row(n=n)

    @handler
    def write(self, text: str) -> str:
        self.lines.push(text)
        return text

    @handler
    def add(self, key: str) -> None:
        self.counts.key(key).set(0)


async def is_empty(box: Path) -> bool:
    """Whether a program that uses the file next has nothing to send."""
    async with Runtime(outbox=box) as rt:
        return rt.intents() == ()


async def died(client: Runtime) -> None:
    """The program ends before there is a connection."""
    with pytest.raises(HeadwaterError):
        await client.close()


def test_sends_without_a_connection_are_handled_after_a_restart(tmp_path: Path) -> None:
    box = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data") as where, Runtime(where) as other:
            await other.space("s").open(Book, "b")
            cable = Cable(RemoteServer(where))
            client = Runtime(cable, outbox=box, close_s=0.01)
            book = client.space("s").piece(Book, "b")
            assert await book.write.send("online") == "online"
            cable.unplug()
            sent = [asyncio.ensure_future(book.write.send(f"{n}")) for n in range(3)]
            book.write.post("posted")
            await asyncio.sleep(0)  # Each send begins in a task of its own.
            await client.idle()
            assert book.lines.get()[1:] == ("posted", "0", "1", "2")  # Pending writes are shown at once.
            await died(client)
            for each in sent:
                with pytest.raises(headwater.SessionExpiredError):
                    await each
            async with headwater.connect(where, token="", outbox=box) as rt:
                await rt.durable()
                again = rt.space("s").piece(Book, "b")
                assert await again.lines.pull() == ("online", "posted", "0", "1", "2")
            assert await is_empty(box)

    run(work)


def test_idle_does_not_wait_for_a_connection(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "data") as where:
            cable = Cable(RemoteServer(where))
            async with Runtime(cable) as client:
                book = client.space("s").piece(Book, "b")
                assert await book.write.send("online") == "online"
                cable.unplug()
                for text in "abc":
                    book.write.post(text)
                await client.idle()
                assert book.lines.get() == ("online", "a", "b", "c")
                assert [row.state for row in client.intents()] == ["landed", "sent", "sent", "sent"]
                cable.plug_in()
                await client.durable()
                assert await book.lines.pull() == ("online", "a", "b", "c")

    run(work)


def test_event_that_committed_before_the_client_heard_of_it_is_not_handled_again(tmp_path: Path) -> None:
    box = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data") as where:
            async with headwater.connect(where, token="", outbox=box) as rt:
                book = await rt.space("s").open(Book, "b")
                book.write.post("once")
                copies = {file.name: file.read_bytes() for file in tmp_path.glob("client.outbox*")}
                await rt.durable()
                assert await book.lines.pull() == ("once",)
            assert await is_empty(box)
            for name, data in copies.items():
                (tmp_path / name).write_bytes(data)
            async with headwater.connect(where, token="", outbox=box) as rt:
                await rt.durable()
                assert await rt.space("s").piece(Book, "b").lines.pull() == ("once",)
                assert [row.state for row in rt.intents()] == ["handled before"]
            assert await is_empty(box)

    run(work)


def test_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    box = tmp_path / "client.outbox"

    async def work() -> None:
        async with Runtime(outbox=box):
            with pytest.raises(DirectoryInUseError, match="another program has the outbox"):
                Runtime(outbox=box)
        database = apsw.Connection(str(tmp_path / "other"))
        database.execute("CREATE TABLE t (x)")
        database.close()
        with pytest.raises(StorageError, match="is not an outbox"):
            Runtime(outbox=tmp_path / "other")
        (tmp_path / "text").write_text("no database at all, but long enough to be read as one" * 40)
        with pytest.raises(StorageError):
            Runtime(outbox=tmp_path / "text")
        database = apsw.Connection(str(box))
        database.pragma("user_version", 99)
        database.close()
        with pytest.raises(NewerVersionError, match="newer version"):
            Runtime(outbox=box)

    run(work)


def test_damaged_outbox_is_refused_and_says_so(tmp_path: Path) -> None:
    box = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data") as where:
            cable = Cable(RemoteServer(where))
            client = Runtime(cable, outbox=box, close_s=0.01)
            book = await client.space("s").open(Book, "b")
            await client.durable()
            cable.unplug()
            book.write.post("kept")
            await died(client)
            database = apsw.Connection(str(box))
            for (table,) in database.execute("SELECT name FROM sqlite_schema WHERE type='table'").fetchall():
                for column in [row[1] for row in database.execute(f"PRAGMA table_info({table})").fetchall()]:
                    database.execute(f"UPDATE {table} SET {column}=x'00' WHERE typeof({column})='blob'")
            database.close()
            with pytest.raises(StorageError, match="is damaged"):
                Runtime(where, outbox=box)

    run(work)


def test_outbox_is_bounded(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "data") as where:
            cable = Cable(RemoteServer(where))
            client = Runtime(cable, outbox=tmp_path / "box", close_s=0.01, policy=Policy(in_outbox=2))
            book = await client.space("s").open(Book, "b")
            await client.durable()
            cable.unplug()
            for text in ("one", "two"):
                book.write.post(text)
            with pytest.raises(LimitError, match="holds 2 sends without an end"):
                book.write.post("three")
            cable.plug_in()
            await client.durable()
            assert await book.write.send("four") == "four"
            assert await book.lines.pull() == ("one", "two", "four")
            await client.close()

    run(work)


def test_sends_of_an_outbox_are_not_refused_after_a_restart(tmp_path: Path) -> None:
    box = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data") as where:
            cable = Cable(RemoteServer(where))
            client = Runtime(cable, outbox=box, close_s=0.01, policy=Policy(backlog=50))
            book = await client.space("s").open(Book, "b")
            await client.durable()
            cable.unplug()
            for n in range(20):
                book.write.post(str(n))
            await died(client)
            errors: list[BaseException] = []
            tight = Policy(backlog=5, in_hand=5, in_outbox=20)  # It is full, and its sends go on all the same.
            async with Runtime(where, outbox=box, policy=tight) as rt:
                rt.on_error(errors.append)
                again = rt.space("s").piece(Book, "b")
                with pytest.raises(BacklogFullError):
                    again.write.post("overtaking")
                await rt.durable()
                assert await again.lines.pull() == tuple(str(n) for n in range(20))
                assert errors == []
        assert await is_empty(box)

    run(work)


def test_an_event_for_a_child_is_sent_once_its_parent_is_open(tmp_path: Path) -> None:
    box = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data") as where:
            cable = Cable(RemoteServer(where))
            client = Runtime(cable, outbox=box, close_s=0.01)
            book = await client.space("s").open(Book, "b")
            await book.add.send("k")
            row = (await book.rows.pull())["k"]
            cable.unplug()
            row.bump.post()
            await died(client)
            errors: list[BaseException] = []
            async with headwater.connect(where, token="", outbox=box) as rt:
                rt.on_error(errors.append)
                await rt.durable()
                (parked,) = rt.intents()
                assert (parked.state, parked.stream) == ("parked", "s/b/rows/k:bump")
                assert "is part of a piece that is not open here" in parked.error
                again = await rt.space("s").open(Book, "b")
                await rt.until(lambda: all(each.ended_us for each in rt.intents()))
                await rt.durable()
                assert dict(await again.counts.pull()) == {"k": 1}
                assert [each.state for each in rt.intents()] == ["landed"]
            assert [str(each) for each in errors] == [
                "s/b/rows/k:bump waits: s/b/rows/k is part of a piece that is not open here"
            ]
        assert await is_empty(box)

    run(work)


def test_send_that_an_outbox_kept_for_longer_than_receipts_are_kept_is_handled(tmp_path: Path) -> None:
    box, clock = tmp_path / "client.outbox", VirtualClock()

    async def work() -> None:
        async with serving(tmp_path / "data") as where:
            cable = Cable(RemoteServer(where))
            client = Runtime(cable, outbox=box, clock=clock, close_s=0.01)
            book = await client.space("s").open(Book, "b")
            await client.durable()
            cable.unplug()
            book.write.post("old")
            await died(client)
            clock.advance(1_000_000)
            async with Runtime(where, clock=clock, outbox=box, policy=Policy(retention_ms=200)) as rt:
                await rt.durable()
                assert [each.state for each in rt.intents()] == ["landed"]
                assert await rt.space("s").piece(Book, "b").lines.pull() == ("old",)
        assert await is_empty(box)

    run(work)
