"""The last chapter of the demo: the board of `examples/board`, served to browsers, with two people at work on it.

The two are simulated: each has a page's connection and does what a person would do in a browser. Whoever opens the
printed address works beside them. As a check they do their work once and the board is looked at.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import logging
import sys
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from examples.demo_graph import Tells
from headwater.clock import Random, RealClock, seeded
from headwater.pieces.piece import Piece
from headwater.runtime.api.runtime import Runtime
from headwater.server.operation.service import make_logger
from headwater.server.server import Server

HERE = Path(__file__).parent / "board"
COLUMNS = ("todo", "doing", "done")
THOUGHTS = (
    *("Write the guide", "Draw the map", "Measure twice", "Cut once", "Feed the cat", "Name the boat", "Buy tea"),
    *("Ask the neighbours", "Mend the fence", "Read the log", "Plant a tree", "Send the letter", "Wind the clock"),
)
AS_A_CHECK = 12
"""What each of the two does as a check, before they stop."""
PAUSE_S = 1.2


class Person:
    """Somebody with the page open."""

    def __init__(self, name: str, socket: ClientConnection) -> None:
        self.name = name
        self.done = 0
        self.refused = 0
        self._socket = socket
        self._numbers = itertools.count(1)
        self._random: Random = seeded(f"demo {name}")
        self.cards: dict[str, dict[str, Any]] = {}

    async def enter(self) -> None:
        await self._say(type="enter", version=1, user=self.name)
        await self._say(type="look", id=0, place=self._place("cards"))
        await self._until(lambda message: message["type"] == "shown")

    async def act(self) -> None:
        """Add a card, move one, or rename one, as it comes."""
        if len(self.cards) < 6 or (len(self.cards) < 18 and self._random.random() < 0.3):
            await self._send("add", column=self._random.choice(COLUMNS), title=self._random.choice(THOUGHTS))
        elif len(self.cards) >= 18 and self._random.random() < 0.5:
            await self._send("remove", card=self._random.choice(list(self.cards)))
        else:
            column = self._random.choice(COLUMNS)
            card = self._random.choice(list(self.cards))
            ranks = sorted(each["rank"] for key, each in self.cards.items() if each["column"] == column and key != card)
            at = self._random.randint(0, len(ranks))
            after = ranks[at - 1] if at else None
            before = ranks[at] if at < len(ranks) else None
            await self._send("move", card=card, column=column, after=after, before=before)

    async def _send(self, member: str, **args: object) -> None:
        id = next(self._numbers)
        await self._say(type="send", id=id, place=self._place(member), args=args, key=f"{self.name} {id}")
        answer = await self._until(lambda message: message.get("id") == id)
        if answer["type"] == "failed":
            raise RuntimeError(f"{member} failed: {answer['error']}")
        self.refused += answer["type"] == "refused"
        self.done += answer["type"] == "done"

    async def _until(self, wanted: Any) -> dict[str, Any]:
        while True:
            message: dict[str, Any] = json.loads(await self._socket.recv())
            if message["type"] == "shown" and message["id"] == 0:
                self.cards = message["value"]
            if wanted(message):
                return message

    async def _say(self, **message: object) -> None:
        await self._socket.send(json.dumps(message))

    def _place(self, member: str) -> dict[str, str]:
        return {"space": "team", "cls": "board.Board", "name": "main", "member": member}


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("board_app", HERE / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["board_app"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def a_board_is_shared(story: Tells, folder: Path, *, for_s: float | None) -> None:
    """Serve the board, and let two people work on it: for so long, or until somebody says stop; 0: as a check."""
    check = for_s == 0
    story.chapter("12. A board for several people, in a browser")
    app = _load()
    quiet = make_logger(RealClock(), level=logging.WARNING)
    server = Server(folder, port=0, insecure_local=True, log=quiet, classes=(app.Board,), pages=HERE / "page")
    serving = asyncio.get_running_loop().create_task(server.run_until_stopped(signals=not check))
    try:
        runtime = server.application().runtime
        await app.start(runtime)
        url = f"http://127.0.0.1:{server.address[1]}/"
        if for_s:
            asyncio.get_running_loop().call_later(for_s, server.stop)
        end = f"it ends after {for_s:g} s, because this is no terminal" if for_s else "end with Ctrl-C"
        story.show(f"open {url} in as many windows as you like; {end}")
        done = await asyncio.gather(*(_work(name, server.address[1], serving, check=check) for name in ("ann", "bob")))
        if check:
            await _looked_at(story, runtime, app.Board, done)
    finally:
        server.stop()
        await serving
    story.because("A page has no replica: it looks, sends and types, and the serving process does the rest.")


async def _work(name: str, port: int, serving: asyncio.Task[None], *, check: bool) -> Person:
    async with connect(f"ws://127.0.0.1:{port}/v1/page") as socket:
        person = Person(name, socket)
        try:
            await person.enter()
            for _ in range(AS_A_CHECK) if check else itertools.count():
                await person.act()
                if not check:
                    stopped, _ = await asyncio.wait([serving], timeout=PAUSE_S)
                    if stopped:
                        break
        except ConnectionClosed:
            if check:
                raise
            # The server was stopped while a person waited for an answer.
        return person


async def _looked_at(story: Tells, runtime: Runtime, board: type[Piece], done: list[Person]) -> None:
    """What two people did is there, once each, and the totals follow."""
    there: Any = runtime.space("team", user="ann", session="demo").piece(board, "main")
    cards = await there.cards.pull()
    points = await there.points.pull()
    acted = sum(person.done for person in done)
    refused = sum(person.refused for person in done)
    story.show(f"{acted} events landed, {refused} were refused, {len(cards)} cards are there: {dict(points)}")
    story.holds(acted + refused == 2 * AS_A_CHECK, "every event has an answer")
    story.holds(
        sum(points.values()) == sum(card.points for card in cards.values()), "the totals are those of the cards"
    )
    story.holds(all(card.by in ("ann", "bob") for card in cards.values()), "every card knows who made it")
