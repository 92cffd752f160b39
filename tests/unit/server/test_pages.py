"""Pages: what a browser may ask of the application that this process serves, and what it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

import headwater
from headwater import Cell, Piece, Refused, cell, computed, each, given, handler
from headwater.engine import ACCESS
from headwater.errors import AccessError
from headwater.server import DEFAULT_SERVER_LIMITS, Server, ServerLimits, new_key, new_token


class Note(headwater.Model):
    text: str
    stars: int = 0


class NoteView(Piece, name="pages.NoteView"):
    note: Cell[Note] = given()

    @computed
    def loud(self) -> str:
        return self.note.get().text.upper()

    @handler
    def star(self) -> int:
        self.note.at(lambda note: note.stars).increment()
        return self.note.get().stars


class Pad(Piece, name="pages.Pad"):
    notes: Cell[Mapping[str, Note]] = cell(default={})
    title: Cell[str] = cell(default="")
    tags: Cell[tuple[str, ...]] = cell(default=())
    draft: Cell[str] = cell(default="", scope="user")
    cursor: Cell[int] = cell(default=0, scope="session")

    @each(notes)
    def views(self, note: Cell[Note]) -> NoteView:
        return NoteView(note=note)

    @handler
    def write(self, key: str, text: str) -> str:
        if not text:
            raise Refused("nothing to write")
        self.notes.key(key).set(Note(text=text))
        return self.ctx.user

    @handler(allow="reader")
    def peek(self) -> int:
        return len(self.notes.get())

    @handler(allow="owner")
    def clear(self) -> None:
        self.notes.set({})

    @handler
    def fail(self) -> None:
        raise ZeroDivisionError("a defect")


class Browser:
    """The other end of a page's connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: list[dict[str, Any]] = []
        self._numbers = 0

    async def say(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    async def hear(self, **wanted: Any) -> dict[str, Any]:
        """The next message that says this, whatever else is said before; that a write is made only if that is asked."""
        while True:
            for place, message in enumerate(self.heard):
                is_wanted = message["type"] != "made" or wanted.get("type") == "made"
                if is_wanted and all(message.get(name) == value for name, value in wanted.items()):
                    return self.heard.pop(place)
            async with asyncio.timeout(20):
                self.heard.append(json.loads(await self.socket.recv()))

    async def ask(self, what: str, member: str, /, **rest: Any) -> dict[str, Any]:
        self._numbers += 1
        id = self._numbers
        place = {"space": "pads", "cls": "pages.Pad", "name": "main", "member": member, **rest.pop("place", {})}
        await self.say(type=what, id=id, place=place, **rest)
        return await self.hear(id=id)

    async def send(self, member: str, **args: Any) -> dict[str, Any]:
        return await self.ask("send", member, args=args)


Story = Callable[["World"], Awaitable[None]]


class World:
    """A server with an application, and browsers that come to it."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self._directory = directory

    @asynccontextmanager
    async def browser(self, user: str, *, token: str = "", session: str = "") -> AsyncIterator[Browser]:
        url = f"ws://127.0.0.1:{self.server.address[1]}/v1/page"
        async with connect(url) as socket:
            made = Browser(socket)
            await made.say(type="enter", version=1, user=user, token=token, session=session)
            await made.hear(type="entered")
            yield made

    def token(self, user: str, *, ttl_s: int = 3_600) -> str:
        return new_token(self._directory, user, ttl_s=ttl_s)


def run(
    directory: Path,
    story: Story,
    *,
    with_keys: bool = False,
    owner: str = "ann",
    classes: tuple[type[Piece], ...] = (Pad, NoteView),
    limits: ServerLimits = DEFAULT_SERVER_LIMITS,
) -> None:
    async def play() -> None:
        if with_keys:
            new_key(directory)
        runs_for = owner if with_keys else ""
        server = Server(directory, port=0, insecure_local=not with_keys, owner=runs_for, classes=classes, limits=limits)
        serving = asyncio.create_task(server.run_until_stopped())
        try:
            runtime = server.application().runtime
            await runtime.space("pads").open(classes[0], "main")
            async with asyncio.timeout(60):
                await story(World(server, directory))
        finally:
            server.stop()
            await serving

    asyncio.run(play())


def test_a_page_is_shown_what_a_member_is_and_the_latest_of_every_change(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann, world.browser("bob") as bob:
            await ann.say(type="look", id=100, place=place("notes"))
            assert (await ann.hear(type="shown", id=100))["value"] == {}
            assert (await bob.send("write", key="a", text="tea"))["value"] == "bob"
            shown = await ann.hear(type="shown", id=100)
            assert shown["value"]["a"] == {"text": "tea", "stars": 0} or shown["value"]["a"] == {"text": "tea"}
            await ann.say(type="look_away", id=100)

    run(tmp_path, story)


def place(member: str, **rest: Any) -> dict[str, Any]:
    return {"space": "pads", "cls": "pages.Pad", "name": "main", "member": member, **rest}


def test_children_are_shown_by_where_they_are_and_can_be_looked_at_and_sent_to(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            await ann.send("write", key="a", text="tea")
            await ann.say(type="look", id=100, place=place("views"))
            child = (await ann.hear(type="shown", id=100))["value"][0]
            assert (child["key"], child["cls"]) == ("a", "pages.NoteView")
            where = {"cls": child["cls"], "name": "", "id": child["id"]}
            await ann.say(type="look", id=101, place=place("loud", **where))
            assert (await ann.hear(type="shown", id=101))["value"] == "TEA"
            assert (await ann.ask("send", "star", place=where, args={}))["value"] == 1

    run(tmp_path, story)


def test_a_refusal_a_defect_and_a_wrong_argument_are_told_apart(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            assert await ann.send("write", key="a", text="") == {
                "type": "refused",
                "id": 1,
                "reason": "nothing to write",
            }
            failed = await ann.send("fail")
            assert failed["type"] == "failed"
            assert "ZeroDivisionError" in failed["error"]
            assert "argument text is missing" in (await ann.send("write", key="a"))["error"]
            assert "argument text" in (await ann.send("write", key="a", text=3))["error"]
            assert "no argument 'more'" in (await ann.send("write", key="a", text="b", more=1))["error"]
            assert "no member 'nothing'" in (await ann.send("nothing"))["error"]
            assert "no class" in (await ann.ask("send", "write", args={}, place={"cls": "Other"}))["error"]
            assert "is not a handler" in (await ann.send("title"))["error"]

    run(tmp_path, story)


def test_what_a_person_types_is_written_and_their_own_edits_are_not_echoed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann, world.browser("bob") as bob:
            for each_one, group in ((ann, "g1"), (bob, "g2")):
                await each_one.say(type="look", id=100, place=place("title"), group=group)
                await each_one.hear(type="shown", id=100)
            assert (await ann.ask("write", "title", kind="set", value="A", group="g1"))["type"] == "done"
            assert (await bob.hear(type="shown", id=100))["value"] == "A"
            assert (await bob.ask("write", "title", kind="set", value="B", group="g2"))["type"] == "done"
            assert (await ann.hear(type="shown", id=100))["value"] == "B"  # and never its own "A"
            assert (await ann.ask("write", "tags", kind="push", value="x"))["type"] == "done"
            assert (await ann.ask("write", "tags", kind="add", value="x"))["type"] == "done"
            assert "kind 'grow'" in (await ann.ask("write", "tags", kind="grow", value="x"))["error"]
            assert "expected str" in (await ann.ask("write", "title", kind="set", value=3))["error"]
            assert "is not a cell" in (await ann.ask("write", "write", kind="set", value=3))["error"]
            await ann.say(type="look", id=101, place=place("tags"))
            assert (await ann.hear(type="shown", id=101))["value"] == ["x"]

    run(tmp_path, story)


def test_a_part_of_a_cell_is_named_by_its_path(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            await ann.send("write", key="a", text="tea")
            await ann.say(type="look", id=100, place=place("notes", path=["a", "text"]))
            assert (await ann.hear(type="shown", id=100))["value"] == "tea"
            there = {"path": ["a", "stars"]}
            assert (await ann.ask("write", "notes", place=there, kind="increment", value=2))["type"] == "done"
            wrong = await ann.ask("write", "notes", place={"path": ["a", "colour"]}, kind="set", value=2)
            assert "there is no /a/colour" in wrong["error"]

    run(tmp_path, story)


def test_a_users_cells_are_theirs_and_a_sessions_are_this_windows(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann", session="s1") as one, world.browser("ann", session="s2") as two:
            await one.ask("write", "draft", kind="set", value="mine")
            await one.ask("write", "cursor", kind="set", value=7)
            await two.say(type="look", id=100, place=place("draft"))
            await two.say(type="look", id=101, place=place("cursor"))
            assert (await two.hear(type="shown", id=100))["value"] == "mine"
            assert (await two.hear(type="shown", id=101))["value"] == 0
        async with world.browser("bob") as bob:
            await bob.say(type="look", id=100, place=place("draft"))
            assert (await bob.hear(type="shown", id=100))["value"] == ""

    run(tmp_path, story)


def test_rights_are_looked_at_for_every_event_and_every_write(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        rt = world.server.application().runtime
        access = rt.cell("pads", ACCESS.id, headwater.Json)
        assert await access.pull() == {"owners": ("ann",), "writers": (), "readers": ()}  # since it was made
        access.set({"owners": ("ann",), "writers": ("bob",), "readers": ("cy",)})
        await rt.durable()
        expected = {  # of write, peek, clear, typing, looking
            "ann": ("done", "done", "done", "done", "shown"),
            "bob": ("done", "done", "failed", "done", "shown"),
            "cy": ("failed", "done", "failed", "failed", "shown"),
            "eve": ("failed", "failed", "failed", "failed", "failed"),
        }
        for user, wanted in expected.items():
            async with world.browser("", token=world.token(user)) as page:
                said = (
                    (await page.send("write", key="a", text="b"))["type"],
                    (await page.send("peek"))["type"],
                    (await page.send("clear"))["type"],
                    (await page.ask("write", "title", kind="set", value=user))["type"],
                    (await page.ask("look", "title"))["type"],
                )
                assert said == wanted, user
                own = await page.ask("write", "draft", kind="set", value="x")
                assert own["type"] == ("failed" if user == "eve" else "done")

    run(tmp_path, story, with_keys=True)


def test_a_page_that_breaks_the_rules_is_told_how_and_closed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        url = f"ws://127.0.0.1:{world.server.address[1]}/v1/page"
        for first, why in (
            ("nonsense", "cannot be understood"),
            (json.dumps({"type": "look_away", "id": 1}), "the first message is 'enter'"),
            (json.dumps({"type": "enter", "version": 99}), "version 99"),
            (json.dumps({"type": "enter", "version": 1, "more": 1}), "cannot be understood"),
        ):
            async with connect(url) as socket:
                await socket.send(first)
                assert why in json.loads(await socket.recv())["error"]
                with pytest.raises(websockets.ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1008
        async with world.browser("ann") as ann:  # and everybody else goes on
            await ann.say(type="look", id=100, place=place("title"))
            await ann.hear(type="shown", id=100)
            await ann.say(type="look", id=100, place=place("title"))
            assert "there already" in (await ann.hear(type="failed", id=100))["error"]

    run(tmp_path, story)


def test_a_page_names_spaces_of_the_application_only(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.browser("ann") as ann:
            told = await ann.ask("look", "title", place={"space": "elsewhere"})
            assert "this application has no space 'elsewhere'" in told["error"]
        assert not (tmp_path / "elsewhere.space").exists()

    run(tmp_path, story)


def test_with_keys_somebody_owns_what_the_application_makes(tmp_path: Path) -> None:
    new_key(tmp_path)
    with pytest.raises(AccessError, match="--owner USER"):
        Server(tmp_path, port=0, classes=(Pad,))


def test_a_token_is_needed_where_there_are_keys(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with connect(f"ws://127.0.0.1:{world.server.address[1]}/v1/page") as socket:
            await socket.send(json.dumps({"type": "enter", "version": 1, "user": "ann"}))
            assert json.loads(await socket.recv())["type"] == "failed"

    run(tmp_path, story, with_keys=True)
