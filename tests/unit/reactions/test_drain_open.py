"""A drain that leaves room open: it begins what a commit gave it, within its slots, and closes behind itself."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from headwater.protocol.reactions import Claim, Claimed, Delivering, Delivers, Finish, Grant, RenewLeases
from headwater.reactions.drain import Drain, Pace
from headwater.reactions.port import Batch, StillRunsError
from tests.unit.reactions.kit import EngineDesk, Story, Stub, fails, played, takes


class OpenDesk(EngineDesk):
    """Keeps the room that claims leave open, as a hub does."""

    async def ask(self, question: Delivers) -> Delivering:
        answer = await super().ask(question)
        if isinstance(question, Claim) and isinstance(answer, Claimed):
            self.world.engine.delivery.idle_workers.register(self, question, question.limit - len(answer.grants))
        return answer

    def taken(self) -> list[Grant]:
        found, _ = self.world.engine.delivery.idle_workers.take_given()
        return found[self].grants if self in found else []

    @property
    def claims(self) -> list[Claim]:
        return [each for each in self.asked if isinstance(each, Claim)]


async def opened(s: Story, stub: Stub, *, slots: int = 4, lease_ms: int = 1_000) -> tuple[Drain, OpenDesk]:
    desk = OpenDesk(s.world)
    pace = Pace(slots=slots, lease_ms=lease_ms, grace_ms=2_000)
    drain = Drain(desk, [stub], clock=s.clock, worker="w", pace=pace, on_trace=s.traced.append, leaves_open=True)
    s.drains.append(drain)
    await drain.start()
    await s.passes(1)
    return drain, desk


def test_what_a_commit_gives_is_delivered_without_another_claim() -> None:
    async def story(s: Story) -> None:
        stub = s.stub()
        drain, desk = await opened(s, stub)
        for number in range(3):
            s.world.emit("a", number)
            drain.accept_given(desk.taken(), 0)
            await s.passes(1)
        assert stub.payloads == [0, 1, 2]
        assert len(desk.claims) == 1
        assert s.world.targets("r")["a"].state == "idle"

    played(story)


def test_a_given_record_that_fails_is_retried_at_its_own_pace() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(fails(ValueError("once"), None))
        drain, desk = await opened(s, stub)
        s.world.emit("a", 1)
        drain.accept_given(desk.taken(), 0)
        await s.passes(100)
        assert (stub.payloads, stub.attempts) == ([1, 1], [0, 1])

    played(story)


def test_more_than_there_are_slots_for_is_given_back_unspent() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(takes(300))
        drain, desk = await opened(s, stub, slots=1)
        s.world.emit("a", 1)
        first = desk.taken()
        # On its way is a claim that was made before it was known.
        question = Claim(2, "w", ("r",), 1, 1, 1_000_000, lane="default")
        s.world.engine.delivery.idle_workers.register(desk, question, 1)
        s.world.emit("b", 2)
        drain.accept_given([*first, *desk.taken()], 0)
        await s.passes(100)
        assert stub.payloads == [1], "one at a time"
        target = s.world.targets("r")["b"]
        assert (target.state, target.attempt) == ("due", 0)
        drain.notify()
        await s.passes(1_000)
        assert stub.payloads == [1, 2]

    played(story)


def test_a_worker_that_stops_closes_behind_itself_and_gives_back_what_came_meanwhile() -> None:
    async def story(s: Story) -> None:
        stub = s.stub()
        drain, desk = await opened(s, stub)
        s.world.emit("a", 1)
        stopping = asyncio.get_running_loop().create_task(drain.stop())
        await asyncio.sleep(0)
        drain.accept_given(desk.taken(), 0)
        await stopping
        assert stub.payloads == []
        assert (s.world.targets("r")["a"].state, s.world.targets("r")["a"].attempt) == ("due", 0)
        assert (desk.claims[-1].limit, desk.claims[-1].lane) == (0, "default")
        s.world.emit("b", 2)
        assert desk.taken() == []
        assert isinstance(desk.asked[-1], Finish)

    played(story)


def test_the_lease_counts_from_the_last_question_before_it_was_given() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(takes(5_000))
        drain, desk = await opened(s, stub)
        await s.passes(200)
        s.world.emit("a", 1)
        grants = desk.taken()
        await s.passes(100)
        desk.is_down = True  # No renewal arrives.
        drain.accept_given(grants, 0)
        await s.passes(600)
        assert (stub.payloads, s.ends) == ([1], [])
        await s.passes(150)
        assert s.ends == [("lost", "")], "it ends here before it ends there"

    played(story)


def test_what_was_on_its_way_for_long_is_begun_if_it_is_still_its_own() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(takes(900))
        drain, desk = await opened(s, stub)
        s.world.emit("a", 1)
        grants = desk.taken()
        await s.passes(900)
        drain.accept_given(grants, 0)
        await s.passes(1)
        assert [type(each) for each in desk.asked[-1:]] == [RenewLeases]
        assert stub.payloads == [1]
        await s.passes(950)
        assert s.ends == [("delivered", "")]
        assert s.world.targets("r")["a"].state == "idle"

    played(story)


def test_what_was_on_its_way_for_longer_than_its_lease_is_not_begun() -> None:
    async def story(s: Story) -> None:
        stub, lives = s.stub(), s.stub()
        drain, desk = await opened(s, stub)
        other = await s.worker(lives, name="other")
        s.world.emit("a", 1)
        grants = desk.taken()
        other.notify()
        await s.passes(1_100)
        s.world.engine.delivery.idle_workers.drop(desk)
        s.world.emit("a", 2)
        other.notify()
        await s.passes(10)
        assert lives.payloads == [1, 2]
        drain.accept_given(grants, 0)  # The process stood still meanwhile.
        await s.passes(100)
        assert stub.payloads == [], "a later record of the target was delivered"

    played(story)


def test_a_claim_whose_answer_was_on_its_way_for_longer_than_the_lease_is_not_begun() -> None:
    async def story(s: Story) -> None:
        stub, lives = s.stub(), s.stub()
        desk = EngineDesk(s.world)
        await s.worker(stub, desk=desk)
        other = await s.worker(lives, name="other")
        await s.passes(1)
        desk.latency_us = 1_100_000
        s.drains[0].notify()
        await s.passes(1_100)
        s.world.emit("a", 1)  # It is claimed with the question that arrives now.
        await s.passes(1)
        assert s.world.targets("r")["a"].holder == "w"
        desk.latency_us = 0
        await s.passes(1_050)
        other.notify()
        await s.passes(1_000)
        assert lives.payloads == [1]
        assert stub.payloads == [], "not even to its first await"

    played(story)


def test_a_slot_whose_thread_hangs_is_not_claimed_for() -> None:
    async def story(s: Story) -> None:
        hangs: Future[None] = Future()

        async def does(batch: Batch) -> None:
            if batch.records[0].payload == "hangs":
                try:
                    await asyncio.Event().wait()  # for ever
                except asyncio.CancelledError as error:
                    raise StillRunsError(hangs) from error

        stub, lives = s.stub(does), s.stub()
        await s.worker(stub, slots=1)
        s.emit("a", "hangs")
        await s.passes(10)
        s.world.operate("skip", key="a")
        await s.passes(1_100)
        s.emit("b", 1)
        await s.passes(2_000)
        assert s.world.targets("r")["b"].state == "due", "somebody else can have it"
        hangs.set_result(None)
        await s.passes(10)
        assert stub.payloads == ["hangs", 1], "its thread is free"
        assert lives.payloads == []

    played(story)


def test_what_was_on_its_way_for_long_is_given_back_if_nobody_says_whose_it_is() -> None:
    async def story(s: Story) -> None:
        stub = s.stub(max_retries=0)
        drain, desk = await opened(s, stub)
        s.world.emit("a", 1)
        grants = desk.taken()
        await s.passes(500)
        desk.is_down = True
        drain.accept_given(grants, 0)
        await s.passes(100)
        assert stub.payloads == []
        desk.is_down = False
        await s.passes(400)
        assert (stub.payloads, stub.attempts) == ([1], [0]), "it cost no attempt"

    played(story)


def test_a_worker_that_is_killed_is_taken_over_within_a_lease() -> None:
    async def story(s: Story) -> None:
        dies, lives = s.stub(takes(10_000)), s.stub()
        drain, desk = await opened(s, dies)
        other = await s.worker(lives, name="other")
        s.world.emit("a", 1)
        drain.accept_given(desk.taken(), 0)
        other.notify()  # As a hub tells whoever was given nothing.
        drain.kill()
        await s.passes(1_100)
        assert (lives.payloads, lives.attempts) == ([1], [1])

    played(story)


def test_a_lane_that_grows_takes_its_own_place() -> None:
    async def story(s: Story) -> None:
        one, two = s.stub(), s.stub(name="later")
        drain, desk = await opened(s, one)
        s.world.subscribe("later")
        drain.serve(two)
        await s.passes(1)
        s.world.emit("a", 1)
        drain.accept_given(desk.taken(), 0)
        await s.passes(1)
        assert (one.payloads, two.payloads) == ([1], [1])
        assert len(desk.claims) == 2

    played(story)
