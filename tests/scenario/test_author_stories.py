"""Stories under many seeds: several people, a network that fails, a server that crashes, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import headwater
from headwater import (
    AbsentError,
    AuthoringError,
    Cell,
    HandlerFailed,
    Input,
    Piece,
    Ready,
    Refused,
    Topic,
    cell,
    child,
    computed,
    effect,
    fold,
    given,
    handler,
    resource,
    topic,
)
from headwater.testing import Simulation, simulated
from tests.programs.b_kanban import Board

USERS = ("ann", "bob", "cy")


class Order(headwater.Model):
    id: str
    cents: int


class Till(Piece):
    lines: Cell[tuple[int, ...]] = cell(default=())
    orders: Cell[Mapping[str, Order]] = cell(default={})
    placed: Topic[Order] = topic()
    seen: Cell[int] = cell(default=0, scope="user")

    @computed
    def total(self) -> int:
        return sum(self.lines.get())

    @computed
    def taxed(self) -> int:
        return self.total.get() * 2

    earned = fold(orders, start=0, add=lambda n, o: n + o.cents, remove=lambda n, o: n - o.cents)

    @handler
    def add(self, cents: int) -> None:
        self.lines.push(cents)

    @handler
    def checkout(self) -> Order:
        total = self.taxed.get()
        if total == 0:
            raise Refused("the cart is empty")
        order = Order(id=self.ctx.new_id(), cents=total)
        self.placed.emit(order)
        self.orders.key(order.id).set(order)
        self.lines.set(())
        self.count.post()
        return order

    @handler
    def count(self) -> None:
        self.seen.update(lambda n: n + 1)


@simulated(seeds=300)
async def test_everything_that_was_added_is_in_exactly_one_order(sim: Simulation) -> None:
    tills = [sim.runtime(user).space("shop").piece(Till, "main") for user in USERS]

    async def work(till: Till) -> list[Order]:
        orders = []
        for cents in (1, 10, 100):
            await till.add.send(cents)
            with contextlib.suppress(Refused):  # Somebody else was faster, and has it in their order.
                orders.append(await till.checkout.send())
        return orders

    made = [order for orders in await asyncio.gather(*map(work, tills)) for order in orders]
    await sim.settle()
    assert sum(order.cents for order in made) == 2 * 333
    assert sorted(each.id for each in sim.records(Till.placed)) == sorted(each.id for each in made)
    assert [await till.earned.pull() for till in tills] == [2 * 333] * 3
    assert [await till.total.pull() for till in tills] == [0] * 3
    assert sum([await till.seen.pull() for till in tills]) == len(made)
    assert sim.lost() == 0


class Poll(Piece):
    votes: Cell[Mapping[str, str]] = cell(default={})
    ends: Cell[datetime] = cell(default=datetime.max.replace(tzinfo=UTC))

    @computed
    def result(self) -> Mapping[str, int]:
        return Counter(self.votes.get().values())

    @computed
    def is_over(self) -> bool:
        return self.ctx.past(self.ends.get())

    @handler
    def vote(self, choice: str) -> None:
        if self.is_over.get():
            raise Refused("too late")
        self.votes.key(self.ctx.user).set(choice)


@simulated(seeds=200)
async def test_every_vote_counts_once_and_none_after_the_end(sim: Simulation) -> None:
    users = [f"voter{n}" for n in range(6)]
    polls = [sim.runtime(user).space("poll").piece(Poll, "lunch") for user in users]
    polls[0].ends.set(sim.now() + timedelta(minutes=10))
    await sim.runtime(users[0]).durable()

    async def votes(poll: Poll) -> None:
        for choice in ("soup", "rice", "soup"):
            await poll.vote.send(choice)

    await asyncio.gather(*map(votes, polls))
    await sim.settle()
    assert [await poll.result.pull() for poll in polls] == [{"soup": 6}] * 6
    watched = [poll.is_over.sink(lambda _: None) for poll in polls]
    await sim.advance(until=sim.now() + timedelta(minutes=11))
    for poll in polls:
        try:
            await poll.vote.send("rice")
        except Refused:
            continue
        raise AssertionError("a vote after the end was taken")
    await sim.settle()
    assert [await poll.result.pull() for poll in polls] == [{"soup": 6}] * 6
    for look in watched:
        look.close()


@simulated(seeds=150)
async def test_what_is_done_offline_lands_when_there_is_a_connection(sim: Simulation) -> None:
    boards = {user: await sim.runtime(user).space("team").open(Board, "main") for user in USERS}
    first = await boards["ann"].add.send("todo", "first")
    await sim.settle()
    with sim.offline("ann", "bob"):
        late = [
            asyncio.ensure_future(boards["ann"].add.send("todo", "of ann")),
            asyncio.ensure_future(boards["bob"].add.send("doing", "of bob")),
            asyncio.ensure_future(boards["bob"].move.send(first, "done", None, None)),
        ]
        await boards["cy"].add.send("done", "of cy")
        await sim.advance(seconds=20)
        assert len(boards["cy"].cards.get()) == 2
    await asyncio.gather(*late)
    await sim.settle()
    for board in boards.values():
        assert await board.points.pull() == {"todo": 1, "doing": 1, "done": 2}
        assert len(board.views.get()) == 4


@simulated(seeds=150)
async def test_cards_that_are_archived_by_their_views_are_gone_for_everybody(sim: Simulation) -> None:
    boards = [await sim.runtime(user).space("team").open(Board, "main") for user in USERS]
    ids = [await boards[n % 3].add.send("todo", f"card {n}") for n in range(6)]
    await sim.settle()
    ends = await asyncio.gather(
        *(board.views.get()[card].archive.send() for board in boards for card in ids[:4]), return_exceptions=True
    )
    late = [end for end in ends if end is not None]
    # Each sender whose card was gone is told so: before the handler was called, or by the handler, which read it.
    for end in late:
        is_found_by_handler = isinstance(end, HandlerFailed) and isinstance(end.__cause__, AbsentError)
        assert is_found_by_handler or (isinstance(end, Refused) and "its piece is gone" in str(end)), repr(end)
    assert len(ends) - len(late) >= 4
    await sim.settle()
    for board in boards:
        assert set(board.views.get()) == set(ids[4:])
        assert await board.points.pull() == {"todo": 2}


FETCHED: list[str] = []


class Weather(Piece):
    town: Cell[str] = cell(default="Bonn")

    @resource(town)
    async def report(self, town: str) -> str:
        FETCHED.append(town)
        await asyncio.sleep(0.5)
        return f"rain in {town}"

    @handler
    def go(self, town: str) -> None:
        self.town.set(town)


@simulated(seeds=150)
async def test_everybody_who_looks_gets_the_weather_of_the_last_town(sim: Simulation) -> None:
    places = [sim.runtime(user).space("trip").piece(Weather, "here") for user in USERS]
    seen: dict[str, object] = {}
    looks = []
    for user, place in zip(USERS, places, strict=True):

        def look(state: object, user: str = user) -> None:
            seen[user] = state

        looks.append(place.report.sink(look))
    for town in ("Rome", "Oslo"):
        await places[0].go.send(town)
        await sim.advance(seconds=0.2)
    await sim.settle()
    await sim.advance(seconds=90)  # A claim of a runtime that was cut off ends by itself.
    await sim.settle()
    for user in USERS:
        state = seen[user]
        assert isinstance(state, Ready), (user, state)
        assert state.value == "rain in Oslo"
    for each_look in looks:
        each_look.close()


class Tally(Piece):
    """Reads and writes the same cell, so that everybody collides with everybody."""

    n: Cell[int] = cell(default=0)
    by: Cell[Mapping[str, int]] = cell(default={})

    @handler
    def more(self) -> int:
        self.n.set(self.n.get() + 1)
        user = self.ctx.user
        self.by.key(user).set(self.by.key(user).get(0) + 1)
        return self.n.get()


@simulated(seeds=200)
async def test_no_increment_is_lost_and_none_is_made_twice(sim: Simulation) -> None:
    tallies = [sim.runtime(user).space("count").piece(Tally, "t") for user in USERS]
    got = await asyncio.gather(*(tally.more.send() for tally in tallies for _ in range(5)))
    assert sorted(got) == list(range(1, 16))
    await sim.settle()
    for tally in tallies:
        assert await tally.n.pull() == 15
        assert await tally.by.pull() == dict.fromkeys(USERS, 5)


@simulated(seeds=150)
async def test_a_runtime_that_crashes_loses_nothing_that_it_was_told_is_durable(sim: Simulation) -> None:
    durable = 0
    for life in range(3):
        tally = sim.runtime("ann").space("count").piece(Tally, "t")
        for _ in range(2):
            await tally.more.send()
            durable += 1
        doomed = asyncio.ensure_future(tally.more.send())
        await sim.advance(seconds=0.004 * life)
        await sim.crash("ann")
        assert not isinstance((await asyncio.gather(doomed, return_exceptions=True))[0], AuthoringError)
    await sim.settle()
    assert durable <= await sim.runtime("bob").space("count").piece(Tally, "t").n.pull() <= durable + 3
    assert sim.lost() == 0


class Shelf(Piece):
    """A child of another class for each mood, and an effect that shows what is there."""

    mood: Cell[str] = cell(default="calm")
    shown: Cell[int] = cell(default=0, scope="session")

    @child
    def face(self) -> Calm | Angry:
        return Calm(mood=self.mood) if self.mood.get() == "calm" else Angry(mood=self.mood)

    @effect
    def show(self) -> None:
        self.face.get()

    @handler
    def feel(self, mood: str) -> None:
        self.mood.set(mood)


class Calm(Piece):
    mood: Input[str] = given()

    @computed
    def text(self) -> str:
        return f"({self.mood.get()})"


class Angry(Piece):
    mood: Input[str] = given()

    @computed
    def text(self) -> str:
        return self.mood.get().upper()


@simulated(seeds=150)
async def test_a_child_that_changes_its_class_is_the_same_for_everybody(sim: Simulation) -> None:
    shelves = [await sim.runtime(user).space("home").open(Shelf, "s") for user in USERS]
    await asyncio.gather(*(s.feel.send(mood) for s, mood in zip(shelves, ("wild", "calm", "furious"), strict=True)))
    await sim.settle()
    mood = await shelves[0].mood.pull()
    expected = "(calm)" if mood == "calm" else mood.upper()
    assert [await s.face.get().text.pull() for s in shelves] == [expected] * 3


class Names(Piece):
    names: Cell[Mapping[str, int]] = cell(default={})

    @computed
    def ordered(self) -> tuple[str, ...]:
        return tuple(sorted(self.names.get()))

    @effect
    def show(self) -> None:
        self.ordered.get()

    @handler
    def add(self, name: str) -> None:
        self.names.key(name).set(1)


@simulated(seeds=300, faults=())
async def test_what_several_runtimes_derive_at_once_is_there_once(sim: Simulation) -> None:
    ann, bob = [await sim.runtime(user).space("s").open(Names, "n") for user in ("ann", "bob")]
    for name in "bcad":
        await ann.add.send(name)
        await sim.settle()
    assert await ann.ordered.pull() == await bob.ordered.pull() == ("a", "b", "c", "d")


@simulated(seeds=300, faults=())
async def test_two_who_check_out_at_once_are_charged_once(sim: Simulation) -> None:
    """What a handler read of a computed stands on what that was computed from, also when the engine judges it."""
    ann, bob = [sim.runtime(user).space("shop").piece(Till, "t") for user in ("ann", "bob")]
    await ann.add.send(5)
    await sim.settle()
    assert (await ann.taxed.pull(), await bob.taxed.pull()) == (10, 10)
    both = await asyncio.gather(ann.checkout.send(), bob.checkout.send(), return_exceptions=True)
    assert sorted(type(each) is Order for each in both) == [False, True], both
