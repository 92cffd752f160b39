"""Stories of reactions: what leaves the process, as an author and an operator see it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import headwater
from headwater import Backoff, Cell, Delivery, Piece, Refused, Topic, cell, handler, reaction, topic
from headwater.errors import AuthoringError
from headwater.testing import Simulation
from tests.scenario.events_kit import told


class Order(headwater.Model):
    id: str
    cents: int


class Provider:
    """Stands for a payment provider that knows idempotency keys, and is not always there."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.calls: list[tuple[str, int, float]] = []  # the key, the attempt, and when
        self.paid: dict[str, int] = {}
        self.is_down_until = 0.0
        self.poison: set[int] = set()
        self.takes_s = 0.0

    async def pay(self, cents: int, delivery: Delivery) -> str:
        now = asyncio.get_running_loop().time()
        self.calls.append((delivery.id, delivery.attempt, now))
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        if now < self.is_down_until:
            raise ConnectionError("the provider is down")
        if cents in self.poison:
            raise Refused(f"no card pays {cents}")
        self.paid.setdefault(delivery.id, cents)
        return f"paid {cents}"


PROVIDER = Provider()


class Cart(Piece):
    receipts: Cell[tuple[str, ...]] = cell(default=())
    placed: Topic[Order] = topic()

    @handler
    def checkout(self, cents: int) -> Order:
        order = Order(id=self.ctx.new_id(), cents=cents)
        self.placed.emit(order)
        return order

    @handler
    def paid(self, receipt: str) -> None:
        self.receipts.push(receipt)

    @reaction(on=placed, then=paid, max_retries=5, backoff=Backoff.exponential(base_ms=200, max_ms=30_000))
    async def charge(self, order: Order, delivery: Delivery) -> str:
        return await PROVIDER.pay(order.cents, delivery)


def name_of_charge() -> str:
    return f"{Cart.__schema__.name}.charge"


@pytest.mark.parametrize("seed", range(3))
def test_drained_ends_after_writes_of_deliveries_by_other_processes_are_shown(seed: int) -> None:
    PROVIDER.reset()
    PROVIDER.takes_s = 0.01

    async def story(sim: Simulation) -> list[str]:
        wrong: list[str] = []
        here, there = [await sim.runtime(name).space("s").open(Cart, "a") for name in ("ann", "cid")]
        for count in range(1, 21):
            await here.checkout.send(count)
            await sim.runtime("cid").reactions.drained()
            shown = len(await there.receipts.pull())
            if shown != count:
                wrong.append(f"{shown} of {count}")
        return wrong

    assert told(story, seed=seed) == []


def test_what_a_reaction_returns_is_handled_with_the_acknowledgement_once() -> None:
    PROVIDER.reset()

    async def story(sim: Simulation) -> list[str]:
        cart = await sim.runtime("ann").space("s").open(Cart, "ann")
        heard: list[str] = []
        sim.runtime("ann").reactions.on_attempt(lambda attempt: heard.append(f"{attempt.how} {attempt.key}"))
        for cents in (1, 2, 3):
            await cart.checkout.send(cents)
        await sim.runtime("ann").reactions.drained()
        await sim.settle()
        assert heard == ["delivered ann"] * 3
        assert cart.receipts.get() == ("paid 1", "paid 2", "paid 3"), cart.receipts.get()
        assert len({key for key, *_ in PROVIDER.calls}) == 3
        return []

    assert told(story) == []


def test_a_flaky_provider_is_asked_again_at_the_pace_of_the_backoff_with_the_same_key() -> None:
    PROVIDER.reset()

    async def story(sim: Simulation) -> list[str]:
        cart = await sim.runtime("ann").space("s").open(Cart, "ann")
        PROVIDER.is_down_until = asyncio.get_running_loop().time() + 1.0
        await cart.checkout.send(450)
        await sim.runtime("ann").reactions.drained()
        await sim.settle()
        first = PROVIDER.calls[0][2]
        assert [round(at - first, 1) for *_, at in PROVIDER.calls] == [0, 0.2, 0.6, 1.4], PROVIDER.calls
        assert [attempt for _, attempt, _ in PROVIDER.calls] == [0, 1, 2, 3]
        assert len({key for key, *_ in PROVIDER.calls}) == 1
        assert cart.receipts.get() == ("paid 450",)
        return []

    assert told(story) == []


def test_a_poison_record_blocks_one_target_and_is_found_and_replayed_by_an_operator() -> None:
    PROVIDER.reset()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        carts = {name: await rt.space("s").open(Cart, name) for name in ("ann", "bob")}
        PROVIDER.poison = {13}
        await carts["ann"].checkout.send(13)
        await carts["ann"].checkout.send(14)
        await carts["bob"].checkout.send(15)
        await rt.reactions.drained()
        await sim.settle()
        assert carts["bob"].receipts.get() == ("paid 15",), "the others go on"
        assert carts["ann"].receipts.get() == ()
        (state,) = await rt.reactions.list()
        assert (state.name, state.blocked) == (name_of_charge(), 1)
        (target,) = await rt.reactions.targets(state.name, state="blocked")
        assert target.key == "ann"
        (group,) = await rt.reactions.groups(state.name)
        assert (group.error, group.keys, group.fingerprint) == ("Refused", ("ann",), target.fingerprint)
        failures = await rt.reactions.failures(state.name, key="ann")
        assert failures.attempts[0].message == "no card pays 13"
        PROVIDER.poison = set()  # mended
        assert await rt.reactions.unblock(state.name, fingerprint=target.fingerprint) == 1
        await rt.reactions.drained()
        await sim.settle()
        assert carts["ann"].receipts.get() == ("paid 13", "paid 14")
        return []

    assert told(story) == []


def test_a_record_that_is_skipped_can_be_replayed_later() -> None:
    PROVIDER.reset()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        cart = await rt.space("s").open(Cart, "ann")
        PROVIDER.poison = {13}
        for cents in (13, 14):
            await cart.checkout.send(cents)
        await rt.reactions.drained()
        assert await rt.reactions.skip(name_of_charge(), "ann") == 1
        await rt.reactions.drained()
        await sim.settle()
        assert cart.receipts.get() == ("paid 14",)
        PROVIDER.poison = set()
        assert await rt.reactions.replay(name_of_charge()) == 1
        await rt.reactions.drained()
        await sim.settle()
        assert cart.receipts.get() == ("paid 14", "paid 13")
        return []

    assert told(story) == []


def test_a_worker_that_dies_in_the_middle_is_replaced_and_the_result_lands_once() -> None:
    PROVIDER.reset()
    PROVIDER.takes_s = 5.0

    async def story(sim: Simulation) -> list[str]:
        cart = await sim.runtime("ann").space("s").open(Cart, "shop")
        await cart.checkout.send(7)
        await sim.advance(seconds=1)
        await sim.crash("ann")
        again = await sim.runtime("bob").space("s").open(Cart, "shop")
        await sim.runtime("bob").reactions.drained()
        await sim.settle()
        assert again.receipts.get() == ("paid 7",)
        assert [attempt for _, attempt, _ in PROVIDER.calls] == [0, 1]
        return []

    assert told(story) == []


def test_a_paused_reaction_collects_until_it_is_resumed() -> None:
    PROVIDER.reset()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        cart = await rt.space("s").open(Cart, "ann")
        await cart.checkout.send(1)
        await rt.reactions.drained()
        await rt.reactions.pause(name_of_charge())
        await cart.checkout.send(2)
        await sim.advance(seconds=60)
        assert len(PROVIDER.calls) == 1
        await rt.reactions.resume(name_of_charge())
        await rt.reactions.drained()
        await sim.settle()
        assert cart.receipts.get() == ("paid 1", "paid 2")
        return []

    assert told(story) == []


def test_a_reset_delivers_everything_again_and_its_results_are_handled_again() -> None:
    PROVIDER.reset()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        cart = await rt.space("s").open(Cart, "ann")
        for cents in (1, 2):
            await cart.checkout.send(cents)
        await rt.reactions.drained()
        assert await rt.reactions.reset(name_of_charge(), key="ann") == 1
        await rt.reactions.drained()
        await sim.settle()
        assert cart.receipts.get() == ("paid 1", "paid 2", "paid 1", "paid 2"), cart.receipts.get()
        assert len(PROVIDER.paid) == 2, "the outside world sees the same keys"
        return []

    assert told(story) == []


class Plain(Piece):
    """Reactions of every other form."""

    said: Topic[str] = topic(key=lambda text: text[:1])
    log: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def say(self, *, text: str) -> None:
        self.said.emit(text)

    @reaction(on=said)
    def in_a_thread(self, text: str) -> None:
        SEEN.append(("thread", text))

    @reaction(on=said, batch=10)
    async def together(self, texts: tuple[str, ...]) -> None:
        SEEN.append(("batch", "+".join(texts)))

    @reaction(on=said, lane="slow", priority=3)
    async def writes(self, text: str) -> None:
        self.log.push(text)


SEEN: list[tuple[str, str]] = []


def test_plain_functions_batches_and_writes_of_their_own() -> None:
    SEEN.clear()

    async def story(sim: Simulation) -> list[str]:
        rt = sim.runtime("ann")
        plain = await rt.space("s").open(Plain, "p")
        for text in ("a1", "a2", "b1"):
            await plain.say.send(text=text)
        await rt.reactions.drained()
        await sim.settle()
        assert [text for how, text in SEEN if how == "thread" and text[0] == "a"] == ["a1", "a2"], SEEN
        together = "+".join(text for how, text in SEEN if how == "batch" and text[0] == "a")
        assert together == "a1+a2"
        assert sorted(plain.log.get()) == ["a1", "a2", "b1"]
        return []

    assert told(story) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"since": "yesterday"}, "write 'now' or 'beginning'"),
        ({"batch": 0}, "1 to 1000"),
        ({"priority": -1}, "0 to 100"),
        ({"lane": 3}, "the name of a lane"),
        ({"errors": {ValueError: "never"}}, "a Backoff or 'permanent'"),
    ],
)
def test_options_that_make_no_sense_say_what_to_write(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(AuthoringError, match=says):

        class Wrong(Piece):
            said: Topic[str] = topic()

            @reaction(on=said, **wrong)
            async def does(self, text: str) -> None: ...


# --- over the death of a process -------------------------------------------------------------------------

PROGRAM = """
import asyncio, os, signal, sys, time
import headwater
from headwater import Backoff, Cell, Delivery, Piece, Topic, cell, handler, reaction, topic
from headwater.runtime import Pace, Runtime

class Cart(Piece):
    receipts: Cell[tuple[str, ...]] = cell(default=())
    placed: Topic[int] = topic()

    @handler
    def checkout(self, cents: int) -> None:
        self.placed.emit(cents)

    @handler
    def paid(self, receipt: str) -> None:
        self.receipts.push(receipt)

    @reaction(on=placed, then=paid, max_retries=9, backoff=Backoff.fixed(base_ms=400))
    async def charge(self, cents: int, delivery: Delivery) -> str:
        print("attempt", delivery.attempt, delivery.id, time.time(), flush=True)
        if sys.argv[2] == "emits" or delivery.attempt < 3:
            raise ConnectionError("down")
        return f"paid {cents}"

async def main() -> None:
    async with Runtime(sys.argv[1], pace=Pace(lease_ms=1_000)) as rt:
        cart = await rt.space("shop").open(Cart, "ann")
        if sys.argv[2] == "emits":
            await cart.checkout.send(450)
            while sum(each.failed for each in await rt.reactions.list()) < 2:
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        await rt.reactions.drained()
        print("receipts", cart.receipts.get(), flush=True)

headwater.run(main)
"""


def test_killed_in_between_it_goes_on_at_the_stored_due_time(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(dedent(PROGRAM))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(file), str(tmp_path / "data")]
    runs = []
    for word, ends in (("emits", -signal.SIGKILL), ("goes on", 0)):
        run = subprocess.run([*command, word], capture_output=True, text=True, env=environment, timeout=60, check=False)
        assert run.returncode == ends, run.stderr
        runs.append([line.split() for line in run.stdout.splitlines()])
    before, after = ([line for line in lines if line[0] == "attempt"] for lines in runs)
    attempts = [*before, *after]
    assert len(before) >= 2, "the program is killed after its second failure, or later on a busy machine"
    assert after, "the other program makes the last attempt"
    assert [int(line[1]) for line in attempts] == list(range(max(4, len(before) + 1)))
    assert len({line[2] for line in attempts}) == 1, "one idempotency key"
    waits = [float(later[3]) - float(sooner[3]) for sooner, later in pairwise(attempts)]
    assert all(wait >= 0.39 for wait in waits), waits
    assert runs[-1][-1][:2] == ["receipts", "('paid"]


INTERRUPTED = """
import os, signal, sys
import headwater
from headwater import Delivery, Piece, Topic, handler, reaction, topic
from headwater.runtime import Runtime

class Cart(Piece):
    placed: Topic[int] = topic()

    @handler
    def checkout(self, cents: int) -> None:
        self.placed.emit(cents)

    @reaction(on=placed)
    async def charge(self, cents: int, delivery: Delivery) -> None:
        print("attempt", delivery.attempt, flush=True)
        if sys.argv[2] == "dies":
            os.kill(os.getpid(), signal.SIGKILL)

async def main() -> None:
    async with Runtime(sys.argv[1]) as rt:
        cart = await rt.space("shop").open(Cart, "ann")
        if sys.argv[2] == "dies":
            await cart.checkout.send(450)
        await rt.reactions.drained()

headwater.run(main)
"""


def test_reaction_that_a_crash_interrupted_does_not_wait_for_its_lease(tmp_path: Path) -> None:
    """The lease is of 30 seconds. The next owner of the directory knows that its holder is dead."""
    file = tmp_path / "shop.py"
    file.write_text(dedent(INTERRUPTED))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(file), str(tmp_path / "data")]
    for word, ends, printed in (("dies", -signal.SIGKILL, "attempt 0\n"), ("goes on", 0, "attempt 1\n")):
        run = subprocess.run([*command, word], capture_output=True, text=True, env=environment, timeout=25, check=False)
        assert (run.returncode, run.stdout) == (ends, printed), run.stderr
