"""A record says what a piece was given. All writers may write it: it leads nobody where they may not go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Handler, Input, Piece, Runtime, cell, computed, effect, given, handler
from headwater.engine.admission.access import ACCESS
from headwater.errors import HandlerFailed, UpstreamFailedError
from tests.scenario.pieces_kit import at
from tests.scenario.pieces_kit import run as play
from tests.unit.server.test_pages import Browser, World, run

ROLES: dict[str, tuple[str, ...]] = {"owners": ("cy",), "writers": ("ann", "bob"), "readers": ("dan",)}
SHOWN: list[str] = []


class Pad(Piece, name="rewritten.Pad"):
    shared: Cell[str] = cell(default="shared")
    secret: Cell[str] = cell(default="nobody's", scope="user")

    @handler(allow="owner")
    def wipe(self) -> None:
        self.shared.set("wiped")

    @handler
    def note(self) -> None:
        self.shared.set("noted")


class Safe(Piece, name="rewritten.Safe"):
    word: Cell[str] = cell(default="top secret")

    @handler(allow="reader")
    def empty(self) -> str:
        self.word.set("")
        return "emptied"


class Kid(Piece, name="rewritten.Kid"):
    src: Input[str] = given()

    @computed
    def low(self) -> str:
        return self.src.get().lower()


class Taker(Piece, name="rewritten.Taker"):
    src: Input[str] = given()
    into: Cell[str] = given()
    call: Handler[[], Any] = given()

    @computed
    def seen(self) -> str:
        return self.src.get()

    @computed(scope="user")
    def mine(self) -> str:
        return self.src.get()

    @headwater.child
    def kid(self) -> Kid:
        return Kid(src=self.src)

    @effect
    def show(self) -> None:
        SHOWN.append(self.src.get())

    @handler
    def put(self, value: str) -> None:
        self.into.set(value)

    @handler
    def ring(self) -> None:
        self.call.post()


CLASSES = (Pad, Safe, Taker, Kid)
PLAIN = {
    "src": "pads/space:main:shared",
    "into": "pads/space:main:shared",
    "call": "handler pads/main:note",
}


def place(member: str, name: str = "evil") -> dict[str, Any]:
    return {"space": "pads", "cls": "rewritten.Taker", "name": name, "member": member, "path": []}


async def told(page: Browser, number: int, member: str) -> str:
    await page.say(type="look", id=number, place=place(member))
    return str(await page.hear(id=number))


def story(test: Callable[[World, Runtime, Runtime], Awaitable[None]], folder: Path) -> None:
    """A server whose application has ann's diary and a space that is not for bob; and a program of bob's own."""

    async def work(world: World) -> None:
        rt = world.server.application().runtime
        rt.cell("pads", ACCESS.id, headwater.Json).set(ROLES)
        rt.cell("private", ACCESS.id, headwater.Json).set({"owners": ("cy",), "readers": ("ann",)})
        rt.space("pads", user="ann").piece(Pad, "main").secret.set("ann's diary")
        await rt.space("private").open(Safe, "safe", setup=lambda safe: safe.word.set("top secret"))
        await rt.durable()
        address = f"ws://127.0.0.1:{world.server.address[1]}"
        async with Runtime(address, token=world.token("bob")) as bobs:
            await test(world, rt, bobs)

    run(folder, work, with_keys=True, owner="cy", classes=CLASSES)


async def rewrite(bobs: Runtime, **inputs: str) -> None:
    """What bob may do: the record is a document that all writers share."""
    record = {"cls": "rewritten.Taker", "name": "evil", "inputs": {**PLAIN, **inputs}}
    bobs.cell("pads", "evil:@", headwater.Json).set(record)
    await bobs.durable()


def test_a_rewritten_record_shows_nobody_what_is_one_user_s(tmp_path: Path) -> None:
    async def test(world: World, rt: Runtime, bobs: Runtime) -> None:
        await rewrite(bobs, src="pads/user:ann:main:secret")
        async with world.browser("", token=world.token("bob")) as bob:
            for number, member in enumerate(("seen", "mine", "src"), 101):
                assert "diary" not in await told(bob, number, member)
        evil: Any = rt.space("pads").piece(Taker, "evil")
        with pytest.raises(UpstreamFailedError, match=r"the record of .*evil.* leads to data of user:ann"):
            await evil.seen.pull()
        with pytest.raises(UpstreamFailedError, match="data of user:ann"):
            await (await evil.kid.pull()).low.pull()
        # For ann herself it is her own.
        assert await rt.space("pads", user="ann").piece(Taker, "evil").mine.pull() == "ann's diary"

    story(test, tmp_path)


def test_a_rewritten_record_makes_nobody_write_what_its_writer_may_not(tmp_path: Path) -> None:
    async def test(world: World, rt: Runtime, bobs: Runtime) -> None:
        await rewrite(bobs, into="pads/user:ann:main:secret")
        async with world.browser("", token=world.token("bob")) as bob:
            sent = await bob.ask("send", "put", place=place("put"), args={"value": "HACKED"})
            assert sent["type"] == "failed"
        assert rt.space("pads", user="ann").piece(Pad, "main").secret.get() == "ann's diary"

    story(test, tmp_path)


def test_a_rewritten_record_makes_nobody_an_owner(tmp_path: Path) -> None:
    class Grab(Piece, name="rewritten.Grab"):
        into: Cell[headwater.Json] = given()

        @handler
        def put(self, value: headwater.Json) -> None:
            self.into.set(value)

    async def test(world: World, rt: Runtime, bobs: Runtime) -> None:
        record = {"cls": "rewritten.Grab", "name": "grab", "inputs": {"into": "pads/space:$access"}}
        bobs.cell("pads", "grab:@", headwater.Json).set(record)
        await bobs.durable()
        grab = rt.space("pads", user="cy").piece(Grab, "grab")
        with pytest.raises(HandlerFailed, match="the access document"):
            await grab.put.send({"owners": ("bob",), "writers": (), "readers": ()})
        assert (await rt.cell("pads", ACCESS.id, headwater.Json).pull())["owners"] == ("cy",)

    story(test, tmp_path)


def test_a_rewritten_record_leads_into_no_space_that_its_writers_may_not_read(tmp_path: Path) -> None:
    async def test(world: World, rt: Runtime, bobs: Runtime) -> None:
        await rewrite(bobs, src="private/space:safe:word", call="handler private/safe:empty")
        evil: Any = rt.space("pads", user="ann").piece(Taker, "evil")
        async with world.browser("", token=world.token("bob")) as bob:
            for number, member in enumerate(("seen", "src"), 101):
                assert "top secret" not in await told(bob, number, member)
            with pytest.raises(UpstreamFailedError, match="leads into private"):
                await evil.seen.pull()
            with pytest.raises(UpstreamFailedError, match="leads into private"):
                await (await evil.kid.pull()).low.pull()
            assert (await bob.ask("send", "ring", place=place("ring"), args={}))["type"] == "failed"
            assert "private" in str(await bob.ask("send", "call", place=place("call"), args={}))
            with pytest.raises(HandlerFailed, match="leads into private"):
                await evil.ring.send()
        await rt.durable()
        assert rt.space("private").piece(Safe, "safe").word.get() == "top secret"
        # Whoever opens it to them changes what is shown, with nothing else to do.
        rt.cell("private", ACCESS.id, headwater.Json).set({"owners": ("cy",), "readers": ("ann", "bob")})
        assert await evil.seen.pull() == "top secret"
        await evil.ring.send()
        await rt.durable()
        assert rt.space("private").piece(Safe, "safe").word.get() == ""

    story(test, tmp_path)


def test_a_rewritten_record_lets_nobody_s_event_call_what_is_for_owners(tmp_path: Path) -> None:
    async def test(world: World, rt: Runtime, bobs: Runtime) -> None:
        await rewrite(bobs, call="handler pads/main:wipe")
        owners: Any = rt.space("pads", user="cy").piece(Taker, "evil")
        with pytest.raises(HandlerFailed, match="may not send to it"):
            await owners.ring.send()  # An owner may, and did not mean to.
        async with world.browser("", token=world.token("bob")) as bob:
            assert (await bob.ask("send", "ring", place=place("ring"), args={}))["type"] == "failed"
        await rt.durable()
        assert rt.space("pads").piece(Pad, "main").shared.get() == "shared"
        rt.cell("pads", ACCESS.id, headwater.Json).set({"owners": ("cy",), "readers": ("bob",)})
        await owners.ring.send()
        await rt.durable()
        assert rt.space("pads").piece(Pad, "main").shared.get() == "wiped"

    story(test, tmp_path)


def test_an_effect_shows_nobody_what_is_another_user_s(tmp_path: Path) -> None:
    async def test(world: World, rt: Runtime, bobs: Runtime) -> None:
        SHOWN.clear()
        await rewrite(bobs, src="pads/user:ann:main:secret")
        home = rt.pieces.find_or_make(rt.core.space("pads"), Taker, "evil")
        rt.pieces.run_piece(home, "cy", "c1")
        await rt.settled()
        assert SHOWN == []

    story(test, tmp_path)


def test_what_a_record_says_in_order_is_found_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            first = site.runtime()
            pads = first.space("pads", user="ann")
            pad = await pads.open(Pad, "main")
            safe = await first.space("private").open(Safe, "safe")
            await pads.open(Taker(src=safe.word, into=pad.shared, call=pad.wipe), "taker")
            await site.settled()
            pads_again = site.runtime().space("pads")
            again: Any = pads_again.piece(Taker, "taker")
            assert await again.seen.pull() == "top secret"
            assert await (await again.kid.pull()).low.pull() == "top secret"
            await again.put.send("put")
            mine = pads_again.piece(Pad, "main").shared
            assert await site.agreed(mine, pad.shared) == "put"
            await again.ring.send()
            await site.settled()
            assert await site.agreed(mine, pad.shared) == "wiped"

    play(work)
