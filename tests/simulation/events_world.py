"""Random histories of events: several runtimes send, lose their connections, die and come back, and it all lands once.

A world plays one history and remembers what every sender was told. What has to hold in the end is said in
`events_checks`. Nothing here knows how events are handled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from headwater import AuthoringError, Handler, Intent, Runtime, SessionExpiredError
from headwater.runtime import Outbox
from headwater.testing import Simulation
from headwater.testing.author.seeds import run_seed
from tests.simulation.events_checks import problems
from tests.simulation.events_program import PLACES, PLANS, Desk, Mix, Plan, drawn
from tests.simulation.events_watch import Watch

USERS: Final = ("ann", "bob")
KEEPER: Final = "cy"
GRACE_S: Final = 6.0
STEPS: Final = 4
CRASHES: Final = 2
OFFLINE: Final = 25
"""How many of a hundred crashes are none: somebody has no connection for a while, or longer than a session is kept."""
ROUNDS: Final = 15
"""How often it is waited for the grace after which what somebody left behind is taken up: a chain has three links, and
an event that several posted has a row of each, taken up one after the other."""
FAULTS: Final = ("delay", "drop", "partition", "duplicate", "crash", "disk")


@dataclass(kw_only=True, eq=False)
class Sent:
    """One sending of an event, and what its sender was told."""

    plan: Plan
    user: str
    life: int  # of the runtime that sent it
    place: tuple[str, str]
    key: str = ""  # the id that its sender gave it
    answer: Any = None
    is_answered: bool = False
    is_awaited: bool = True
    is_withdrawn: bool = False
    is_hasty: bool = False  # it is tried once

    def is_same(self, other: Sent) -> bool:
        """Whether it is the same event."""
        return bool(self.key) and (self.key, self.place) == (other.key, other.place)


class World:
    """One history."""

    def __init__(self, sim: Simulation, mix: Mix) -> None:
        self.sim = sim
        self.mix = mix
        self.draws = Random(f"events {sim.seed}")
        self.sent: list[Sent] = []
        self.lives: dict[str, int] = dict.fromkeys(USERS, 0)
        self.watch = Watch()
        self.runtimes: dict[str, Runtime] = {}  # those that live
        # What users' machines keep of what they sent, over all their lives.
        self.outboxes = {user: Outbox(":memory:") for user in USERS} if self.draws.randrange(100) < mix.kept else {}
        self._waiting: list[asyncio.Task[None]] = []
        self._tags: list[str] = []

    # ---- playing -----------------------------------------------------------------------------------

    async def play(self) -> list[str]:
        PLANS.clear()
        keeper = self.runtime(KEEPER)
        for space, name in PLACES:
            await keeper.space(space).open(Desk, name)
        if self.draws.random() < 0.7:  # Those who are connected meet more often than those who are about to be.
            for user in USERS:
                await self.runtime(user).space("a").open(Desk, "one")
        await asyncio.gather(*(self._work(user) for user in USERS), self._misfortune())
        for user in self.outboxes:
            self.runtime(user)  # Whoever has kept something comes back.
        await self._rest()
        return problems(self)

    async def _rest(self) -> None:
        """Until everything that is due was taken up, by whomever; what is left then is left for good."""
        await self.sim.settle()
        for _ in range(ROUNDS):
            if not self.sim.server.read(lambda engines: any(each.events(limit=1).items for each in engines.values())):
                return
            await self.sim.advance(seconds=GRACE_S)
            await self.sim.settle()

    async def _misfortune(self) -> None:
        for _ in range(self.draws.randint(0, CRASHES)):
            await asyncio.sleep(self.draws.choice((0.002, 0.01, 0.05, 1)) * self.draws.random())
            user = self.draws.choice((*USERS, "server"))
            if self.draws.randrange(100) < OFFLINE:
                with self.sim.offline(self.draws.choice(USERS)):
                    await asyncio.sleep(self.draws.choice((0.1, 5, 100)) * self.draws.random())
                continue
            if user != "server":
                self.runtime(user)
                self.lives[user] += 1
                del self.runtimes[user]
            await self.sim.crash(user)

    async def _work(self, user: str) -> None:
        for _ in range(self.draws.randint(2, STEPS)):
            try:
                self._act(user)
            except (AuthoringError, SessionExpiredError) as error:
                if "closed" not in str(error):
                    raise
            pause = self.draws.random()
            if pause < 0.4 and self._waiting:
                await asyncio.wait(self._waiting[-1:], timeout=0.1)
            elif pause < 0.6:
                await asyncio.sleep(self.draws.choice((0.002, 0.01, 0.3)) * self.draws.random())

    def _act(self, user: str) -> None:
        mix, draws = self.mix, self.draws
        place = PLACES[0] if draws.randrange(100) < mix.crowded else draws.choice(PLACES)
        again = [each for each in self.sent if each.key and each.user != user]
        if again and draws.randrange(100) < 3 * mix.redelivered:
            first = draws.choice(again)
            self._send(user, first.plan, first.place, first.key)
            return
        if draws.randrange(100) < mix.gambled:
            self._gamble(user, place)
            return
        tag = self._next_tag()
        here = [each.plan.tag for each in self.sent if each.place == place]
        plan = self._known(drawn(draws, mix, tag, here[-2:] or self._tags))
        key = f"key {draws.randrange(4)}" if draws.randrange(100) < mix.redelivered else ""
        if any(each.key == key and each.place == place for each in self.sent):
            key = f"key of {tag}"  # The same id sent to another handler is another event; to the same one it is none.
        self._send(user, plan, place, key)

    def _next_tag(self) -> str:
        return f"t{len(self._tags)}"

    def _known(self, plan: Plan) -> Plan:
        for each in plan.with_children():
            PLANS[each.tag] = each
            self._tags.append(each.tag)
        return plan

    def _gamble(self, user: str, place: tuple[str, str]) -> None:
        """Something that may lose and is not tried again, and right behind it somebody who says no if it is there."""
        first = self._known(Plan(tag=self._next_tag(), does=("push", "append")))
        self._send(user, first, place, "", is_hasty=True)
        second = self._known(Plan(tag=self._next_tag(), does=("push",), unless=first.tag))
        self._send(user, second, place, "")

    def _send(self, user: str, plan: Plan, place: tuple[str, str], key: str, *, is_hasty: bool = False) -> None:
        draws, mix = self.draws, self.mix
        sent = Sent(plan=plan, user=user, life=self.lives[user], place=place, key=key)
        desk = self.desk(user, place)
        to: Handler[[str], str] = desk.do
        if key:
            to = to.options(id=key)
        if is_hasty or (not key and draws.randrange(100) < mix.hasty):
            sent.is_hasty, to = True, to.options(retries=0)
        elif draws.randrange(100) < mix.durable:
            to = to.options(durable=True)
        self.sent.append(sent)
        if draws.randrange(100) < mix.posted:
            sent.is_awaited = False
            self._withdraw(sent, to.post(plan.tag))
        else:
            self._waiting.append(asyncio.ensure_future(self._told(sent, to.send(plan.tag))))

    def desk(self, user: str, place: tuple[str, str]) -> Desk:
        """A piece, for somebody for whom every runtime may act: so the same event can be sent from anywhere."""
        space, name = place
        return self.runtime(user).space(space, user="somebody", session="x").piece(Desk, name)

    def runtime(self, user: str) -> Runtime:
        """The runtime of a user, which begins with what the one before it has left undone."""
        if user not in self.runtimes:
            made = self.runtimes[user] = self.sim.runtime(user, outbox=self.outboxes.get(user))
            self.watch.join(made, round(self.sim.now().timestamp() * 1e6))
        return self.runtimes[user]

    def _withdraw(self, sent: Sent, intent: Intent) -> None:
        if not sent.key and self.draws.randrange(100) < 4 * self.mix.withdrawn:
            sent.is_withdrawn = intent.withdraw()

    async def _told(self, sent: Sent, work: Coroutine[Any, Any, str]) -> None:
        try:
            sent.answer = await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            sent.answer = error
        sent.is_answered = True

    # ---- what was seen -----------------------------------------------------------------------------

    def sent_by(self, user: str) -> list[Sent]:
        """What the runtime has sent that a user has now."""
        return [each for each in self.sent if each.user == user and not self.died(each)]

    def died(self, sent: Sent) -> bool:
        """Whether the runtime that sent it is gone."""
        return self.lives[sent.user] != sent.life


def played(seed: int, mix: Mix) -> list[str]:
    """Play one history. What is wrong in the end, in words."""
    found: list[str] = []

    async def history(sim: Simulation) -> None:
        found.extend(await World(sim, mix).play())

    run_seed(history, seed, FAULTS)
    return found


def found_after(mix: Mix, within: int, *, first: int = 0) -> tuple[int, list[str]]:
    """How many histories it took until something was wrong, and what. An error is wrong, too. 0: nothing was."""
    for seed in range(first, first + within):
        try:
            found = played(seed, mix)
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        if found:
            return seed - first + 1, [f"seed {seed}: {each}" for each in found]
    return 0, []
