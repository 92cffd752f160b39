"""Writes that were on their way together: rejected together, tried again together, and told in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from headwater.data.address import Depth
from headwater.data.patch import replace
from headwater.protocol.messages import FromReplica, Patched, Sync, Transact, Verdicts, Watch, Watched, state_of
from headwater.protocol.verdict import Accepted, Collision, Conflict, Rejected
from headwater.replica.transaction import Transaction
from headwater.runtime.channel.driver import Driver
from headwater.runtime.writing.retry import Writer
from tests.unit.runtime.kit import doc, run
from tests.unit.runtime.test_driver import Scripted, opened_by, session


class Pieces(Scripted):
    """Remembers which messages were sent in one piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[list[int]] = []  # of commits, by their local_seq

    def send(self, messages: Iterable[FromReplica]) -> None:
        told = tuple(messages)
        super().send(told)
        commits = [commit.local_seq for message in told if isinstance(message, Transact) for commit in message.commits]
        if commits:
            self.pieces.append(commits)


async def counting(wire: Pieces, driver: Driver) -> Writer:
    await opened_by(wire, driver)
    driver.watch([doc()])
    (watch,) = [message for message in wire.heard if isinstance(message, Watch)]
    wire.say(Watched(watch.id, 0, (state_of(doc(), 0, {"n": 0}),)))
    return Writer(driver)


def count_up(transaction: Transaction) -> int:
    number = transaction.read(doc(), ("n",))
    assert isinstance(number, int)
    transaction.write(doc(), replace(("n",), number + 1))
    return number + 1


def conflict(seq: int) -> Conflict:
    return Conflict((Collision(doc(), ("n",), Depth.DEEP, 0, seq, "other", ""),))


async def turns_of_the_loop(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_was_rejected_together_is_sent_again_in_one_piece_and_in_its_order() -> None:
    async def story() -> None:
        wire = Pieces()
        async with Driver(session(), wire) as driver:
            writer = await counting(wire, driver)
            tasks = [asyncio.ensure_future(writer.transact(count_up)) for _ in range(4)]
            await turns_of_the_loop()
            wire.pieces.clear()
            for local_seq in range(1, 5):
                wire.say(Verdicts((Rejected(local_seq, conflict(1)),)))
            await turns_of_the_loop()
            assert wire.pieces == []  # What won is not here yet.
            wire.say(Sync(1, (Patched(doc(), 1, (replace(("n",), 10),)),), turn=0))
            await turns_of_the_loop()
            assert wire.pieces == [[5, 6, 7, 8]]
            for local_seq in range(5, 9):
                wire.say(Verdicts((Accepted(local_seq, local_seq),)))
            assert await asyncio.gather(*tasks) == [11, 12, 13, 14]

    run(story)


def test_what_was_rejected_alone_is_sent_again_at_once() -> None:
    async def story() -> None:
        wire = Pieces()
        async with Driver(session(), wire) as driver:
            writer = await counting(wire, driver)
            task = asyncio.ensure_future(writer.transact(count_up))
            await turns_of_the_loop()
            wire.say(Verdicts((Rejected(1, conflict(1)),)))
            await turns_of_the_loop()
            wire.say(Sync(1, (Patched(doc(), 1, (replace(("n",), 10),)),), turn=0))
            await turns_of_the_loop(2)
            assert wire.pieces == [[1], [2]]
            wire.say(Verdicts((Accepted(2, 2),)))
            assert await task == 11

    run(story)


def test_all_verdicts_that_come_together_are_heard_before_anybody_goes_on() -> None:
    async def story() -> None:
        wire = Pieces()
        seen: list[int] = []
        async with Driver(session(), wire) as driver:
            writer = await counting(wire, driver)

            async def one() -> None:
                await writer.transact(count_up)
                seen.append(driver.session.replica.pending.in_flight())

            tasks = [asyncio.ensure_future(one()) for _ in range(3)]
            await turns_of_the_loop()
            for say in [partial(wire.say, Verdicts((Accepted(n, n),))) for n in (1, 2, 3)]:
                say()
            wire.say(Sync(3, ()))
            await asyncio.gather(*tasks)
            assert seen == [0, 0, 0]

    run(story)


def test_who_gives_up_waiting_behind_another_s_conflict_lets_the_others_go_on() -> None:
    async def story() -> None:
        wire = Pieces()
        async with Driver(session(), wire) as driver:
            writer = await counting(wire, driver)
            tasks = [asyncio.ensure_future(writer.transact(count_up)) for _ in range(3)]
            await turns_of_the_loop()
            for local_seq in range(1, 4):
                wire.say(Verdicts((Rejected(local_seq, conflict(1)),)))
            await turns_of_the_loop()
            tasks[1].cancel()
            await turns_of_the_loop()
            wire.pieces.clear()
            wire.say(Sync(1, (Patched(doc(), 1, (replace(("n",), 10),)),), turn=0))
            await turns_of_the_loop()
            assert wire.pieces == [[4, 5]]
            for local_seq in (4, 5):
                wire.say(Verdicts((Accepted(local_seq, local_seq),)))
            assert [await tasks[0], await tasks[2]] == [11, 12]

    run(story)
