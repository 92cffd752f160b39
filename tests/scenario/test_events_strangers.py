"""Whoever stores events is nobody else, and leaves nothing where they have no right. What is taken back stays so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Piece, Policy, cell, each, given, handler
from headwater.data.ids import event_id
from headwater.data.patch import append
from headwater.data.value import freeze
from headwater.engine import ACCESS
from headwater.errors import HeadwaterError
from headwater.protocol.commit import SentEvent
from headwater.protocol.messages import Query
from headwater.runtime import RemoteServer, Runtime
from headwater.server import new_key, new_token
from headwater.testing import Simulation
from tests.scenario.events_kit import RECEIPTS, given_id, read, stored, told
from tests.scenario.outbox_kit import rows_in
from tests.scenario.runtime_kit import Cable
from tests.unit.runtime.kit import address, run, serving

SOON = Policy(grace_ms=1)


class Box(Piece, name="strangers.Box"):
    seen: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def put(self, text: str) -> str:
        self.seen.push(f"{self.ctx.user}: {text}")
        return text

    @handler(allow="reader")
    def ask(self, text: str) -> str:
        self.seen.push(f"{self.ctx.user} asks {text}")
        return text

    @handler(allow="owner")
    def close(self, text: str) -> str:
        self.seen.push(f"{self.ctx.user} closes {text}")
        return text


async def grant(rt: Runtime, space: str, role: str, user: str) -> None:
    channel = rt.channel(space)
    assert channel is not None
    await channel.land(lambda made: made.write(ACCESS, append((role,), [user])), node="grant")


async def receipts(rt: Runtime, space: str) -> list[str]:
    channel = rt.channel(space)
    assert channel is not None
    answer = await channel.driver.query(Query(0, "space", after=RECEIPTS, limit=100))
    return [state.doc.id.removeprefix(RECEIPTS) for state in answer.documents if state.doc.id.startswith(RECEIPTS)]


def test_whoever_has_no_right_in_a_space_leaves_no_receipt_there(tmp_path: Path) -> None:
    """The ids of others' events can be computed. A receipt under one of them would be the end of that event."""
    new_key(tmp_path)
    ids = [given_id("ann", "", "order 17", f"vault/v:{name}") for name in ("put", "close")]
    ids.append(event_id("period", "vault/v:tick", 7, 7_000_000))

    def rows(*streams: str) -> list[SentEvent]:
        said = {"args": {"text": "forged"}, "cls": "strangers.Box", "name": "v", "user": "ann", "session": "x", "at": 0}
        return [
            SentEvent(f"{stream}-{n}", stream, freeze({**said, "id": id}), 0)
            for stream in streams
            for n, id in enumerate(ids)
        ]

    async def work() -> None:
        async with serving(tmp_path, anyone_founds=True) as server:
            where = address(server)
            ann = await headwater.connect(where, token=new_token(tmp_path, "ann"), policy=SOON)
            errors: list[BaseException] = []
            ann.on_error(errors.append)
            await ann.space("s", user="ann").open(Box, "b")
            vault = await ann.space("vault", user="ann").open(Box, "v")
            await grant(ann, "s", "writers", "eve")
            await grant(ann, "vault", "readers", "rita")
            await grant(ann, "s", "writers", "rita")
            before = await receipts(ann, "vault")
            for who, streams in (
                ("eve", ("vault/v:put", "vault/v/none/k:put", "vault/v:close")),
                ("rita", ("vault/v:close", "vault/v/none/k:put")),
            ):
                rt = await headwater.connect(where, token=new_token(tmp_path, who), policy=Policy(grace_ms=1e6))
                channel = (rt.space("s", user=who), rt.channel("s"))[1]
                assert channel is not None
                sent = rows(*streams)
                await channel.land(lambda made, sent=sent: made.events.extend(sent), node="forged")  # type: ignore[misc]
                await ann.until(lambda who=who: f"'{who}' stored" in str(errors))  # type: ignore[misc]
                await ann.durable()
                await rt.close()
            assert await receipts(ann, "vault") == before
            # A reader may ask, and under no id but one of their own.
            rita = await headwater.connect(where, token=new_token(tmp_path, "rita"), policy=Policy(grace_ms=1e6))
            channel = (rita.space("s", user="rita"), rita.channel("s"))[1]
            assert channel is not None
            asked = given_id("ann", "", "order 17", "vault/v:ask")
            said = {
                "args": {"text": "it"},
                "cls": "strangers.Box",
                "name": "v",
                "user": "ann",
                "session": "x",
                "id": asked,
            }
            await channel.land(
                lambda made: made.events.append(SentEvent("r", "vault/v:ask", freeze({**said, "at": 0}), 0)),
                node="asks",
            )
            await ann.until(lambda: len(vault.seen.get()) == 1)
            await rita.close()
            assert asked not in await receipts(ann, "vault")
            for name in ("put", "close", "ask"):
                assert await getattr(vault, name).options(id="order 17").send("mine") == "mine"
            (asked, *seen) = await vault.seen.pull()
            assert asked.endswith(" asks it")
            assert not asked.startswith(("ann", "rita"))  # It says that it is ann's, which rita cannot say.
            assert seen == ["ann: mine", "ann closes mine", "ann asks mine"]
            await ann.close()

    run(work)


# ---- another version of the program ------------------------------------------------------------------------


class Leaf(Piece, name="strangers.Leaf"):
    n: Cell[int] = given()

    @handler
    def bump(self) -> None:
        self.n.set(self.n.get() + 1)


class Tree(Piece, name="strangers.Tree"):
    ns: Cell[Mapping[str, int]] = cell(default={})

    @each(ns)
    def leaves(self, n: Cell[int]) -> Leaf:
        return Leaf(n=n)


class NewTree(Piece, name="strangers.Tree", version=2):
    """The next version of the program: its trees keep other leaves."""

    ns: Cell[Mapping[str, int]] = cell(default={})

    @each(ns)
    def leaves(self, n: Cell[int]) -> Leaf | None:
        return Leaf(n=n) if n.get() >= 0 else None


def bumps(*places: str) -> list[SentEvent]:
    said = {"args": {}, "cls": "strangers.Leaf", "user": "", "session": "", "at": 0}
    return [SentEvent(f"e {at}", f"s/{at}:bump", freeze({**said, "name": at}), 0) for at in places]


async def left_behind(sim: Simulation, *rows: SentEvent) -> None:
    """Have a process store events, end it, and wait until another one had to look at them."""
    eve = sim.runtime("eve")
    eve.space("s")
    await sim.settle()
    channel = eve.channel("s")
    assert channel is not None
    await channel.land(lambda made: made.events.extend(rows), node="left behind")
    await sim.crash("eve")
    for _ in range(4):
        await sim.advance(seconds=15)
        await sim.settle()


async def an_unknown_member(sim: Simulation) -> list[str]:
    """A member that this version does not know may keep the child that an event waits for."""
    await sim.runtime("ann").space("s").open(Tree, "t")
    await left_behind(sim, *bumps("t/leaves/k", "t/branches/k", "t/leaves/k/branches/j"))
    return [] if stored(sim) == ["s/t/branches/k:bump"] else [f"{stored(sim)} is stored"]


def test_event_for_a_member_that_is_not_known_here_is_not_refused() -> None:
    assert told(an_unknown_member) == []


async def an_older_version(sim: Simulation) -> list[str]:
    """A newer version of the program may keep a child that this one does not keep."""
    await sim.runtime("ann").space("s").open(Tree, "t")
    await sim.settle()
    await sim.runtime("bob").space("s").open(NewTree, "t")
    await sim.settle()
    await sim.crash("bob")
    await left_behind(sim, *bumps("t/leaves/k"))
    return [] if stored(sim) == ["s/t/leaves/k:bump"] else [f"{stored(sim)} is stored"]


def test_older_version_of_a_program_refuses_no_event_for_a_child() -> None:
    assert told(an_older_version) == []


async def handled_before_and_stored(sim: Simulation) -> list[str]:
    """One look of one connection is enough to find that a row is left over, and to remove it."""
    ann = sim.runtime("ann")
    await ann.space("s").open(Box, "b")
    channel = ann.channel("s")
    assert channel is not None
    said = {"args": {"text": "x"}, "cls": "strangers.Box", "name": "b", "user": "", "session": "", "at": 0}
    row = SentEvent("e1", "s/b:put", freeze(said), 0)
    for _ in range(2):
        await channel.land(lambda made: made.events.append(row), node="somebody")
        await sim.crash("ann")
        sim.runtime("ann").space("s")
        for _ in range(3):
            await sim.advance(seconds=15)
            await sim.settle()
        channel = sim.runtime("ann").channel("s")
        assert channel is not None
    seen: Any = read(
        sim, lambda engines: engines["s"].read(sim.runtime("ann").space("s").piece(Box, "b").seen.document.key)
    )
    return [] if not stored(sim) and len(seen.value) == 1 else [f"{stored(sim)} is stored, {seen.value}"]


def test_a_row_that_is_left_over_is_removed_by_the_first_who_finds_it() -> None:
    assert told(handled_before_and_stored) == []


async def many_of_a_child_that_left(sim: Simulation) -> list[str]:
    """More than are taken up at once: all of them are listed, and all of them are refused."""
    ann, eve = sim.runtime("ann"), sim.runtime("eve")
    await ann.space("s").open(Tree, "t")
    eve.space("s")
    await sim.settle()
    channel = eve.channel("s")
    assert channel is not None
    said = {"args": {}, "cls": "strangers.Leaf", "name": "t/leaves/k", "user": "", "session": "", "at": 0}
    nowhere = [SentEvent(f"0{n:04}", "s/n:put", freeze({**said, "cls": "no.Where"}), 0) for n in range(300)]
    gone = [SentEvent(f"1{n:04}", "s/t/leaves/k:bump", freeze(said), 0) for n in range(300)]
    await channel.land(lambda made: made.events.extend(nowhere), node="of a class that is not imported")
    await channel.land(lambda made: made.events.extend(gone), node="for a child that is not there")
    await sim.crash("eve")
    for _ in range(4):
        await sim.advance(seconds=30)
        await sim.settle()
    left, listed = stored(sim), [row.stream for row in ann.intents() if row.state == "parked"]
    return [] if left == listed == ["s/n:put"] * 300 else [f"{len(left)} are stored, and {len(listed)} listed"]


def test_however_many_wait_all_are_listed_and_what_is_gone_is_refused() -> None:
    assert told(many_of_a_child_that_left) == []


# ---- taking back what an outbox keeps ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["named", "durable", "due"])
@pytest.mark.parametrize("dies", [False, True])
def test_what_was_withdrawn_without_a_connection_is_never_handled(tmp_path: Path, kind: str, dies: bool) -> None:
    path = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data", insecure_local=True) as server:
            where = address(server)
            async with headwater.connect(where, token="") as other:
                await (await other.space("s").open(Box, "b")).put.send("first")
            cable = Cable(RemoteServer(where))
            client = Runtime(cable, outbox=path, close_s=0.01, policy=SOON)
            box = client.space("s").piece(Box, "b")
            await client.space("s").piece(Box, "other").put.send("x")
            cable.unplug()
            match kind:
                case "named":
                    intent = box.put.post("W")
                case "durable":
                    intent = box.put.options(durable=True).post("W")
                case _:
                    intent = box.put.post_at(timedelta(milliseconds=300), "W")
            for _ in range(50):
                await asyncio.sleep(0)
            assert intent.withdraw()
            assert rows_in(path) == []
            if dies:
                with contextlib.suppress(HeadwaterError):  # What is due later was on its way to the store.
                    await client.close()
                client = Runtime(where, outbox=path, policy=SOON)
            else:
                cable.plug_in()
            await client.space("s").piece(Box, "b").put.send("last")
            await client.durable()
            assert [text.partition(": ")[2] for text in await box_of(client).seen.pull()] == ["first", "last"]
            await client.close()

    run(work)


def box_of(rt: Runtime) -> Box:
    return rt.space("s").piece(Box, "b")
