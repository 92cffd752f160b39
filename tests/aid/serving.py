"""A served application, and the sockets of those who talk to it: pages, commands, replicas and strangers."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

import headwater
from headwater import Cell, Piece, Refused, cell, computed, handler
from headwater.clock import Clock
from headwater.server import DEFAULT_SERVER_LIMITS, Server, ServerLimits, new_key

SPACE = "pads"
WITHIN_S = 20


class Note(headwater.Model):
    text: str
    stars: int = 0


class Pad(Piece, name="aid.Pad"):
    notes: Cell[Mapping[str, Note]] = cell(default={})
    title: Cell[str] = cell(default="")
    count: Cell[int] = cell(default=0)

    @computed
    def loud(self) -> str:
        return self.title.get().upper()

    @handler
    def rename(self, title: str) -> str:
        if not title:
            raise Refused("a title has letters")
        self.title.set(title)
        return title

    @handler
    def longest(self, texts: tuple[str, ...]) -> int:
        return max(map(len, texts), default=0)

    @handler
    def count_notes(self, notes: Mapping[str, Note]) -> int:
        return len(notes)


@asynccontextmanager
async def serving(
    directory: Path,
    *,
    limits: ServerLimits = DEFAULT_SERVER_LIMITS,
    with_keys: bool = False,
    clock: Clock | None = None,
) -> AsyncIterator[Server]:
    """A server of an application with one open piece, `Pad` "main". With keys, "ann" owns its space."""
    if with_keys:
        new_key(directory)
    owner = "ann" if with_keys else ""
    server = Server(
        directory, port=0, insecure_local=not with_keys, owner=owner, classes=(Pad,), limits=limits, clock=clock
    )
    running = asyncio.create_task(server.run_until_stopped())
    try:
        await server.application().runtime.space(SPACE).open(Pad, "main")
        async with asyncio.timeout(WITHIN_S):
            yield server
    finally:
        server.stop()
        await running


def place(member: str, **rest: Any) -> dict[str, Any]:
    """The place of a member of the open piece, as a page names it."""
    return {"space": SPACE, "cls": "aid.Pad", "name": "main", "member": member, **rest}


class Page:
    """The browser's end of a page's connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._heard: list[dict[str, Any]] = []
        self._numbers = 0

    async def say(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    async def hear(self, **wanted: Any) -> dict[str, Any]:
        """The next message with these fields. Others stay for later; `made` is passed over unless it is wanted."""
        while True:
            for at, message in enumerate(self._heard):
                is_wanted = message["type"] != "made" or wanted.get("type") == "made"
                if is_wanted and all(message.get(name) == value for name, value in wanted.items()):
                    return self._heard.pop(at)
            self._heard.append(json.loads(await self.socket.recv()))

    async def ask(self, **message: Any) -> dict[str, Any]:
        """Make one call, and return its answer."""
        self._numbers += 1
        id = self._numbers
        await self.say(**message, id=id)
        return await self.hear(id=id)

    async def send(self, member: str, args: Any) -> dict[str, Any]:
        return await self.ask(type="send", place=place(member), args=args)


@asynccontextmanager
async def page(server: Server, *, user: str = "ann", token: str = "") -> AsyncIterator[Page]:
    """A page that has entered."""
    url = f"ws://127.0.0.1:{server.address[1]}/v1/page"
    async with connect(url, max_size=None) as socket:
        made = Page(socket)
        await made.say(type="enter", version=1, user=user, token=token)
        await made.hear(type="entered")
        yield made


@contextmanager
def threads_that_call(*functions: str) -> Iterator[set[int]]:
    """The threads that call functions with these qualified names, this one and those that are started from now on."""
    found: set[int] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname in functions:
            found.add(threading.get_ident())

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
