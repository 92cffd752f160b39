"""The outbox of a client: what was sent and has no end survives the client, and is handled once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

import headwater
from headwater import Cell, Piece, cell, handler
from headwater.errors import DirectoryInUseError, HeadwaterError, LimitError, NewerVersionError, StorageError
from headwater.protocol.commit import SentEvent
from headwater.runtime import outbox as module
from headwater.runtime.attachment import Remote
from headwater.runtime.outbox import Outbox
from headwater.runtime.runtime import Runtime
from tests.scenario.runtime_kit import Cable
from tests.unit.runtime.kit import address, run, serving


class Book(Piece, name="outbox.Book"):
    lines: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def write(self, text: str) -> str:
        self.lines.push(text)
        return text


def test_what_is_put_stays_until_it_is_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "sent.outbox")
    events = [SentEvent(f"e{n}", "s/p:go", {"n": n, "b": b"x"}, n) for n in range(3)]
    box = Outbox(path)
    for event in events:
        box.put("s", event)
        box.put("s", event)  # A second time is nothing.
    box.remove("e1")
    box.remove("nothing")
    assert len(box) == 2
    box.close()
    again = Outbox(path)
    assert again.rows() == [("s", events[0]), ("s", events[2])]
    with pytest.raises(DirectoryInUseError, match="another program has the outbox"):
        Outbox(path)
    again.close()


def test_a_file_that_is_no_outbox_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StorageError, match="is no outbox"):
        Outbox(str(other))
    (tmp_path / "text").write_text("no database at all, but long enough to be read as one" * 40)
    with pytest.raises(StorageError):
        Outbox(str(tmp_path / "text"))
    newer = str(tmp_path / "newer")
    Outbox(newer).close()
    connection = apsw.Connection(newer)
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(NewerVersionError, match="newer version"):
        Outbox(newer)


def test_an_outbox_is_bounded_and_says_when_it_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 1)
    box = Outbox(str(tmp_path / "box"))
    box.put("s", SentEvent("e1", "s/p:go", {}))
    with pytest.raises(LimitError, match="holds 1 sends without an end"):
        box.put("s", SentEvent("e2", "s/p:go", {}))
    box._connection.execute("UPDATE sent SET event=x'00'")
    with pytest.raises(StorageError, match="is damaged"):
        box.rows()
    box.close()


def test_what_was_sent_without_a_connection_is_handled_after_a_restart(tmp_path: Path) -> None:
    box = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data", insecure_local=True) as server:
            where = address(server)
            async with Runtime(where) as other:
                await other.space("s").open(Book, "b")
                cable = Cable(Remote(where))
                client = Runtime(cable, outbox=box, close_s=0.01)
                book = client.space("s").piece(Book, "b")
                assert await book.write.send("online") == "online"
                cable.unplug()
                sent = [asyncio.ensure_future(book.write.send(f"{n}")) for n in range(3)]
                book.write.post("posted")
                for _ in range(20):
                    await asyncio.sleep(0)
                assert book.lines.get()[1:] == ("posted", "0", "1", "2")  # What is sent is shown at once.
                with pytest.raises(HeadwaterError):
                    await client.close()  # The program ends before there is a connection again.
                for each in sent:
                    with pytest.raises(headwater.SessionExpiredError):
                        await each
                async with headwater.connect(where, token="", outbox=box) as rt:
                    await rt.durable()
                    again = rt.space("s").piece(Book, "b")
                    assert await again.lines.pull() == ("online", "posted", "0", "1", "2")
                left = Outbox(str(box))
                assert len(left) == 0
                left.close()

    run(work)


def test_what_landed_although_nobody_heard_it_is_not_handled_again(tmp_path: Path) -> None:
    box = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data", insecure_local=True) as server:
            where = address(server)
            async with headwater.connect(where, token="", outbox=box) as rt:
                book = await rt.space("s").open(Book, "b")
                kept: list[tuple[str, SentEvent]] = []
                storing = rt.pieces.handling.storing
                assert storing.outbox is not None
                sent = asyncio.ensure_future(book.write.send("once"))
                await asyncio.sleep(0)
                kept += storing.outbox.rows()
                assert await sent == "once"
                assert len(kept) == 1
            again = Outbox(str(box))  # As if it had ended before it heard the verdict.
            for space, event in kept:
                again.put(space, event)
            again.close()
            async with headwater.connect(where, token="", outbox=box) as rt:
                await rt.durable()
                assert await rt.space("s").piece(Book, "b").lines.pull() == ("once",)
                assert [row.state for row in rt.intents()] == ["handled before"]
            left = Outbox(str(box))
            assert len(left) == 0
            left.close()

    run(work)
