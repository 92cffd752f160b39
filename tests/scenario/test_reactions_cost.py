"""What one record costs, from the event that emits it to its acknowledgement: counted, never timed."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from headwater import Piece, Runtime, Topic, handler, reaction, topic
from headwater.engine.delivery import Delivery
from headwater.engine.store.database import Database
from headwater.protocol.reactions import Claim, Delivering, Delivers, Finish
from headwater.reactions.drain import Pace

RECORDS = 40
SLOTS = 4
BEGUN: list[int] = []


class Counted(Piece, name="cost.Counted"):
    asked: Topic[int] = topic()

    @handler
    def ask(self, number: int) -> None:
        self.asked.emit(number)

    @reaction(on=asked)
    async def does(self, number: int) -> None:
        BEGUN.append(number)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    found: Counter[str] = Counter()
    commit, answer = Database.commit, Delivery.answer

    def committed(database: Database) -> None:
        found["transactions"] += 1
        commit(database)

    def answered(delivery: Delivery, question: Delivers) -> Delivering:
        found["claims"] += isinstance(question, Claim)
        found["outcomes"] += isinstance(question, Finish)
        return answer(delivery, question)

    monkeypatch.setattr(Database, "commit", committed)
    monkeypatch.setattr(Delivery, "answer", answered)
    return found


def test_a_record_costs_its_commit_and_its_acknowledgement_and_hardly_a_claim(
    tmp_path: Path, counts: Counter[str]
) -> None:
    async def work() -> None:
        async with Runtime(tmp_path, pace=Pace(slots=SLOTS)) as rt:
            piece = await rt.space("shop").open(Counted, "one")
            await piece.ask.send(-1)
            await rt.reactions.drained()
            BEGUN.clear()
            counts.clear()
            for number in range(RECORDS):
                await piece.ask.send(number)
                while not BEGUN or BEGUN[-1] != number:
                    await asyncio.sleep(0)
            spent = dict(counts)
            await rt.reactions.drained()
            assert list(range(RECORDS)) == BEGUN, "each once, in order"
            # What is left of a claim lasts for as many records as the worker has slots, or for half of them, where the
            # acknowledgement of one comes before the next is emitted and where it comes after it.
            assert spent.get("claims", 0) <= 2 * RECORDS / SLOTS + 2
            assert spent["transactions"] <= 2 * RECORDS + spent.get("claims", 0) + 2

    asyncio.run(work())


def test_records_of_many_targets_at_once_are_claimed_together(tmp_path: Path, counts: Counter[str]) -> None:
    async def work() -> None:
        async with Runtime(tmp_path, pace=Pace(slots=RECORDS)) as rt:
            space = rt.space("shop")
            pieces = [await space.open(Counted, f"piece {number}") for number in range(RECORDS)]
            await pieces[0].ask.send(-1)
            await rt.reactions.drained()
            await rt.reactions.pause("cost.Counted.does")
            await asyncio.gather(*(piece.ask.send(number) for number, piece in enumerate(pieces)))
            BEGUN.clear()
            counts.clear()
            await rt.reactions.resume("cost.Counted.does")
            await rt.reactions.drained()
            assert sorted(BEGUN) == list(range(RECORDS))
            assert counts["claims"] + counts["outcomes"] <= RECORDS / 4, "not one for each"

    asyncio.run(work())
