"""Monkeys on a board: random actions of several people; in the end what is derived is what it is derived from."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random

from headwater import AuthoringError, Refused, SessionExpiredError
from headwater.testing import Simulation, simulated
from tests.programs.b_kanban import Board, Card

USERS = ("ann", "bob", "cy")
COLUMNS = ("todo", "doing", "done")


class Monkey:
    """One person who clicks around."""

    def __init__(self, sim: Simulation, user: str, draws: Random) -> None:
        self.sim = sim
        self.user = user
        self.draws = draws
        self.added = 0

    async def board(self) -> Board:
        return await self.sim.runtime(self.user).space("team", session=f"of {self.user}").open(Board, "main")

    async def work(self, steps: int) -> None:
        board = await self.board()
        for _ in range(steps):
            with contextlib.suppress(Refused):
                await self.act(board)
            if self.draws.random() < 0.3:
                await self.sim.advance(seconds=self.draws.random())

    async def act(self, board: Board) -> None:
        cards = list(await board.cards.pull())
        card = self.draws.choice(cards) if cards else ""
        match self.draws.randrange(8):
            case 0 | 1 | 2:
                await board.add.send(self.draws.choice(COLUMNS), f"{self.user} {self.added}")
                self.added += 1
            case 3 | 4:
                await board.move.send(card, self.draws.choice(COLUMNS), None, None)
            case 5:
                await board.finish.send(self.draws.choice(COLUMNS))
            case 6:
                await board.archive.send(card)
            case _:
                await board.select.send(card or None)


async def check(boards: dict[str, Board]) -> None:
    """Everybody sees the same, and what is derived is what it is derived from."""
    seen = {user: dict(await board.cards.pull()) for user, board in boards.items()}
    cards = seen["ann"]
    assert list(seen.values()) == [cards] * len(boards)
    points: Counter[str] = Counter()
    for card in cards.values():
        points[card.column] += card.points

    def place(card: Card) -> tuple[str, str]:
        return card.column, card.rank

    for user, board in boards.items():
        derived = {column: n for column, n in (await board.points.pull()).items() if n}
        assert derived == dict(points), user
        assert [place(cards[key]) for key in board.views.get()] == sorted(map(place, cards.values())), user
        assert set(board.views.get()) == set(cards), user
        assert set(await board.visible.pull()) == set(cards), user
        for key, view in board.views.get().items():
            assert await view.label.pull() == f"{cards[key].title} ({cards[key].points})", user


@simulated(seeds=300)
async def test_monkeys_on_a_board_leave_it_in_order(sim: Simulation) -> None:
    monkeys = [Monkey(sim, user, Random(f"{sim.seed} {user}")) for user in USERS]
    await asyncio.gather(*(monkey.work(8) for monkey in monkeys))
    await sim.settle()
    await check({monkey.user: await monkey.board() for monkey in monkeys})
    assert sim.lost() == 0


@simulated(seeds=200)
async def test_monkeys_whose_machines_crash_leave_it_in_order(sim: Simulation) -> None:
    draws = Random(f"crashes {sim.seed}")
    monkeys = [Monkey(sim, user, Random(f"{sim.seed} {user}")) for user in USERS]

    async def mortal(monkey: Monkey) -> None:
        sim.runtime(monkey.user)
        try:
            await monkey.work(8)
        except (SessionExpiredError, AuthoringError) as error:
            if "closed" not in str(error):  # It was waiting for something, or about to do something.
                raise

    working = [asyncio.ensure_future(mortal(monkey)) for monkey in monkeys]
    for victim in draws.sample(("server", "server", *USERS), 2):
        await sim.advance(seconds=0.001 + draws.random() * draws.choice((0.02, 0.2, 2)))
        await sim.crash(victim)
    await asyncio.gather(*working)
    await sim.settle()
    await check({monkey.user: await monkey.board() for monkey in monkeys})
    assert sim.lost() == 0
