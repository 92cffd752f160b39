"""What waits holds up nobody who need not wait, is kept until it is stored, and says what it waits for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import pytest

import headwater
from headwater import Cell, HandlerFailed, Piece, Policy, Refused, cell, computed, handler
from headwater.cli.app import run as run_command
from headwater.data.address import DocKey
from headwater.data.patch import append, replace
from headwater.data.value import freeze
from headwater.engine import ACCESS, Directory, Engine
from headwater.errors import AccessError, DirectoryInUseError, HeadwaterError, RuleRefusedError
from headwater.protocol.commit import Commit, Operation, SentEvent
from headwater.protocol.messages import FromReplica, QueryEvents, StoredEvent
from headwater.protocol.verdict import Accepted
from headwater.runtime import LocalDirectory, RemoteServer, Runtime
from headwater.server import new_key, new_token
from headwater.testing import Simulation
from tests.scenario.events_kit import RECEIPTS, Front, commits, durable, forbidden, outcome, stored, told
from tests.scenario.outbox_kit import copied, rows_in
from tests.scenario.runtime_kit import Cable
from tests.unit.runtime.kit import address, run, serving


class Box(Piece, name="waiting.Box"):
    seen: Cell[tuple[str, ...]] = cell(default=())
    n: Cell[int] = cell(default=0)

    @computed(debounce_ms=20_000)
    def slow(self) -> int:
        return self.n.get()

    @handler
    def put(self, text: str) -> str:
        self.seen.push(text)
        return text

    @handler
    def say_who(self, text: str) -> None:
        self.seen.push(f"{self.ctx.user}: {text}")

    @handler
    def plan(self) -> None:
        self.say_who.post("at once")
        self.say_who.post_at(timedelta(seconds=1), "due later")

    @handler
    def no(self) -> None:
        raise Refused("no")

    @handler
    def raise_it(self, kind: str) -> None:
        self.seen.push(kind)
        raise {"cancel": asyncio.CancelledError(), "end": GeneratorExit()}[kind]

    @handler
    def take_slow(self) -> int:
        return self.slow.get()

    @handler(coalesce="last")
    def point_at(self, n: int) -> int:
        self.seen.push(f"at {n}")
        return n

    @handler
    def point(self, count: int) -> None:
        self.seen.push("pointing")
        for n in range(count):
            self.point_at.post(n)
        self.point_at.options(id="named").post(-1)
        self.put.post("beside")


# ---- durable without a connection --------------------------------------------------------------------------


async def a_durable_send_without_a_connection(sim: Simulation) -> list[str]:
    """It is shown at once, with all that was sent after it, and lands in its order: after its storing, once."""
    ann = sim.runtime("ann")
    box = await ann.space("s").open(Box, "b")
    await sim.settle()
    with sim.offline("ann"):
        no = asyncio.ensure_future(outcome(box.no.options(durable=True).send()))
        first = asyncio.ensure_future(box.put.options(durable=True).send("first"))
        await sim.advance(seconds=0)
        for n in range(20):
            box.put.post(str(n))
        await sim.advance(seconds=2)
        shown = box.seen.get()
        before = len(commits(sim))
    await sim.settle()
    await sim.advance(seconds=20)
    await sim.settle()
    wanted = ("first", *map(str, range(20)))
    wrong = [] if shown == wanted else [f"{shown} was shown"]
    if durable(sim, box, "seen") != wanted:
        wrong.append(f"{durable(sim, box, 'seen')} is durable")
    if await first != "first" or not isinstance(await no, Refused):
        wrong.append(f"told {await first} and {await no}")
    if stored(sim):
        wrong.append(f"{stored(sim)} is still stored")
    order = [each.commit.provenance.node for each in commits(sim)[before:]]
    where = order.index("s/b:put") if "s/b:put" in order else -1
    return wrong if 0 <= order.index("events") < where else [*wrong, f"the commits are {order}"]


def test_a_durable_send_without_a_connection_holds_up_nobody() -> None:
    for seed in range(5):
        assert told(a_durable_send_without_a_connection, seed=seed) == []


async def a_durable_send_that_is_not_stored(sim: Simulation) -> list[str]:
    """Its handling stands on its storing: neither lands, and its sender is told why."""
    box = await sim.runtime("ann").space("s").open(Box, "b")
    await sim.settle()
    with Front(sim) as front:
        front.reject("events", 1, forbidden)
        answer = await outcome(box.put.options(durable=True).send("x"))
        behind = await outcome(box.put.send("y"))
    await sim.settle()
    wrong = (
        []
        if isinstance(answer, RuleRefusedError) and "document id '' is empty" in str(answer)
        else [f"told {answer!r}"]
    )
    found = durable(sim, box, "seen"), behind
    return wrong if found == (("y",), "y") else [*wrong, f"{found} came of it"]


def test_a_durable_send_that_cannot_be_stored_is_not_handled_and_says_why() -> None:
    assert told(a_durable_send_that_is_not_stored) == []


# ---- what is due later, and an outbox ----------------------------------------------------------------------


async def moments(count: int = 100) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_is_due_later_is_in_the_outbox_until_it_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "client.outbox"

    async def work() -> None:
        async with serving(tmp_path / "data", insecure_local=True) as server:
            where = address(server)
            cable = Cable(RemoteServer(where))
            client = Runtime(cable, outbox=path, close_s=0.01)
            box = await client.space("s").open(Box, "b")
            box.put.post_at(timedelta(hours=1), "stored")
            await client.durable()
            assert rows_in(path) == []  # The store has it.
            cable.unplug()
            box.put.post_at(timedelta(hours=1), "kept")
            box.put.post_at(timedelta(milliseconds=1), "soon")
            await moments()
            with pytest.raises(HeadwaterError):
                await client.close()
            assert [row.stream for row in rows_in(path)] == ["s/b:put", "s/b:put"]
            async with headwater.connect(where, token="", outbox=path, policy=Policy(grace_ms=1)) as rt:
                again = await rt.space("s").open(Box, "b")
                await rt.until(lambda: again.seen.get() == ("soon",))
                await rt.durable()
                assert in_hand(rt) == []
                assert sorted(row.state for row in rt.intents()) == ["landed", "stored"]
            assert rows_in(path) == []
        texts = sorted(str(row.payload["args"]["text"]) for row in stored_in(tmp_path / "data"))
        assert texts == ["kept", "stored"]

    run(work)


def in_hand(rt: Runtime) -> list[str]:
    return [row.stream for row in rt.intents() if row.ended_us is None]


def stored_in(folder: Path) -> list[StoredEvent]:
    """The events that are stored in space `s` of a directory that is not open."""
    with Directory(folder) as directory:
        return list(directory.space("s").events(limit=1_000).items)


def handle_elsewhere(folder: Path, row: StoredEvent) -> None:
    """Do to a stored event what the process does that handles it: leave a receipt, and remove the row."""
    receipt = DocKey("space", f"{RECEIPTS}{row.id}")
    written = Operation(receipt, (replace((), {"at_us": 0, "refused": "handled elsewhere"}),))
    with Directory(folder) as directory:
        engine = directory.space("s")
        engine.open_session("elsewhere")
        (verdict,) = engine.submit("elsewhere", Commit(1, (written,), handled=(row.id,)))
        assert isinstance(verdict, Accepted)


@pytest.mark.parametrize("was", ["still stored", "handled"])
def test_event_that_was_stored_before_the_outbox_knew_is_one_event(tmp_path: Path, was: str) -> None:
    """The process died after its event was stored and before it removed the event from its outbox."""
    path, before = tmp_path / "client.outbox", tmp_path / "before.outbox"

    async def work() -> None:
        async with LocalDirectory(tmp_path / "data") as data:
            cable = Cable(data)
            async with Runtime(cable, outbox=path) as rt:
                box = await rt.space("s").open(Box, "b")
                await rt.durable()
                cable.unplug()
                box.put.post_at(timedelta(hours=1), "x")
                await moments()
                assert len(rows_in(copied(path, before))) == 1
                cable.plug_in()
                await rt.durable()
        (row,) = stored_in(tmp_path / "data")
        if was == "handled":
            handle_elsewhere(tmp_path / "data", row)
        async with Runtime(tmp_path / "data", policy=Policy(grace_ms=1), outbox=before) as rt:
            rt.space("s")
            await rt.durable()
            states = [each.state for each in rt.intents()]
            assert states == (["stored"] if was == "still stored" else ["handled before"])
        assert len(stored_in(tmp_path / "data")) == (1 if was == "still stored" else 0)
        assert rows_in(before) == []

    run(work)


async def stored_again_after_it_was_handled(sim: Simulation) -> list[str]:
    """Its receipt is there, and its row as well: the row goes."""
    ann, bob = sim.runtime("ann"), sim.runtime("bob")
    box = await ann.space("s").open(Box, "b")
    bob.space("s")
    await sim.settle()
    channel = bob.channel("s")
    assert channel is not None
    said = {"args": {"text": "x"}, "cls": "waiting.Box", "name": "b", "user": "", "session": "", "at": 0}
    row = SentEvent("e1", "s/b:put", freeze(said), 0)
    for _ in range(2):
        await channel.land(lambda made: made.events.append(row), node="somebody")
        for _ in range(3):
            await sim.advance(seconds=15)
            await sim.settle()
    with sim.offline("ann"):  # Connected again, it looks: it finds that it was handled, and that it is still there.
        await sim.advance(seconds=1)
    await sim.advance(seconds=30)
    await sim.settle()
    found = durable(sim, box, "seen"), stored(sim)
    return [] if found == (("x",), []) else [f"{found}"]


def test_a_row_whose_event_was_handled_before_is_removed() -> None:
    assert told(stored_again_after_it_was_handled) == []


# ---- for whom ----------------------------------------------------------------------------------------------


def test_what_is_due_later_is_handled_for_the_user_it_was_sent_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            async with headwater.connect(address(server), token="", policy=Policy(grace_ms=1)) as rt:
                box = await rt.space("s", user="ann", session="w1").open(Box, "b")
                await box.plan.send()
                await rt.until(lambda: len(box.seen.get()) == 2)
                assert await box.seen.pull() == ("ann: at once", "ann: due later")
                await box.plan.send()  # and taken up by another process of the same user:
                await rt.durable()
            async with headwater.connect(address(server), token="", policy=Policy(grace_ms=1)) as other:
                there = await other.space("s", user="bob").open(Box, "b")
                await other.until(lambda: len(there.seen.get()) == 4)
                assert (await there.seen.pull())[2:] == ("ann: at once", "ann: due later")

    run(work)


# ---- coalescing inside a handler ---------------------------------------------------------------------------


async def many_posts_of_one_handler(sim: Simulation) -> list[str]:
    ann = sim.runtime("ann")
    box = await ann.space("s").open(Box, "b")
    await box.point.send(400)
    await sim.settle()
    found = durable(sim, box, "seen")
    wrong = [] if found == ("pointing", "at 399", "at -1", "beside") else [f"{found} is there"]
    if stored(sim) or sim.failures():
        wrong.append(f"{stored(sim)} is stored, {sim.failures()}")
    return wrong


def test_of_what_one_handler_posts_only_the_last_one_counts_where_the_handler_says_so() -> None:
    assert told(many_posts_of_one_handler) == []


# ---- what is no Exception ----------------------------------------------------------------------------------


async def no_exception(sim: Simulation) -> list[str]:
    box = await sim.runtime("ann").space("s").open(Box, "b")
    wrong = []
    for kind, cause in (("cancel", asyncio.CancelledError), ("end", GeneratorExit)):
        answer = await outcome(box.raise_it.send(kind))
        if not isinstance(answer, HandlerFailed) or not isinstance(answer.__cause__, cause):
            wrong.append(f"told {answer!r}")
    await box.put.send("ok")
    if len(sim.failures()) != 2:
        wrong.append(f"{sim.failures()} were heard")
    return wrong if durable(sim, box, "seen") == ("ok",) else [*wrong, "something of it was written"]


def test_a_handler_that_raises_what_is_no_exception_has_a_defect_like_any_other() -> None:
    assert told(no_exception) == []


# ---- what it waits for -------------------------------------------------------------------------------------


async def a_parked_event(sim: Simulation) -> list[str]:
    ann = sim.runtime("ann")
    box = await ann.space("s").open(Box, "b")
    await box.slow.pull()
    box.n.set(5)
    sent = asyncio.ensure_future(box.take_slow.send())
    await sim.advance(seconds=1)
    row = next(row for row in ann.intents() if row.ended_us is None)
    now_us = int(sim.now().timestamp() * 1e6)
    wrong = [] if row.state == "parked" and "slow" in row.waits else [f"{row}"]
    if row.next_try_us is None or not 15_000_000 < row.next_try_us - now_us < 20_000_000:
        wrong.append(f"its next try is at {row.next_try_us}, and now is {now_us}")
    answer = await sent
    (over,) = [row for row in ann.intents() if row.stream.endswith("take_slow")]
    return wrong if (answer, over.waits, over.next_try_us) == (5, "", None) else [*wrong, f"{answer} and {over}"]


def test_a_parked_event_says_what_it_waits_for_and_until_when() -> None:
    assert told(a_parked_event) == []


async def a_parked_row(sim: Simulation) -> list[str]:
    ann = sim.runtime("ann")
    ann.space("s")
    await sim.settle()
    channel = ann.channel("s")
    assert channel is not None
    said = {"args": {"text": "x"}, "cls": "nowhere.Box", "name": "b", "user": "", "session": "", "at": 0}
    row = SentEvent("e1", "s/b:put", freeze(said), 0)
    await channel.land(lambda made: made.events.append(row), node="somebody")
    with sim.offline("ann"):
        await sim.advance(seconds=1)
    await sim.advance(seconds=20)
    found = [row.next_try_us for row in ann.intents() if row.state == "parked"]
    return [] if found and found[0] is not None else [f"{ann.intents()}"]


def test_so_does_one_that_cannot_be_handled_here() -> None:
    assert told(a_parked_row) == []


# ---- taking up many ----------------------------------------------------------------------------------------


async def many_stored_events(sim: Simulation, backlog: int) -> list[str]:
    ann, bob = sim.runtime("ann"), sim.runtime("bob", policy=Policy(backlog=backlog))
    box = await bob.space("s").open(Box, "b")
    ann.space("s")
    await sim.settle()
    channel = ann.channel("s")
    assert channel is not None
    said = {"args": {"text": "x"}, "cls": "waiting.Box", "name": "b", "user": "", "session": "", "at": 0}
    for start in range(0, 1_000, 200):
        rows = [SentEvent(f"e{n:05}", "s/b:put", freeze(said), 0) for n in range(start, start + 200)]
        await channel.land(lambda made, rows=rows: made.events.extend(rows), node="somebody")  # type: ignore[misc]
    await sim.crash("ann")
    pages = 0

    def arrived(engine: Engine, message: FromReplica) -> FromReplica:
        nonlocal pages
        pages += isinstance(message, QueryEvents)
        return message

    sim.server.front = arrived
    for _ in range(10):
        await sim.advance(seconds=6)
        await sim.settle()
    found = len(durable(sim, box, "seen") or ()), len(stored(sim))
    wrong = [] if found == (1_000, 0) else [f"{found}"]
    return wrong if pages <= 30 else [*wrong, f"{pages} pages were read of ten"]


@pytest.mark.parametrize("backlog", [256, 40])
def test_taking_up_many_reads_what_it_has_room_for_and_no_more(backlog: int) -> None:
    wrong = told(lambda sim: many_stored_events(sim, backlog))
    assert [each for each in wrong if backlog == 256 or "pages" not in each] == []


def row_for(id: str, stream: str, due_us: int = 0, **more: Any) -> SentEvent:
    said = {"args": {"text": "x"}, "cls": "waiting.Box", "name": "b", "user": "", "session": "", "at": 0, **more}
    return SentEvent(id, stream, freeze(said), due_us)


async def due_before_a_long_queue(sim: Simulation) -> list[str]:
    """It comes due while what is stored behind it is worked off, part by part."""
    ann, eve = sim.runtime("ann"), sim.runtime("eve")
    box = await ann.space("s").open(Box, "b")
    watched = box.slow.sink(lambda _: None)
    eve.space("s")
    await sim.settle()
    channel = eve.channel("s")
    assert channel is not None
    due_us = eve.clock.now_us() + 15_000_000
    await channel.land(lambda made: made.events.append(row_for("0", "s/b:put", due_us)), node="due")
    many = [row_for(f"1{n:04}", "s/b:take_slow", args={}) for n in range(300)]
    await channel.land(lambda made: made.events.extend(many), node="a queue")
    await sim.crash("eve")
    box.n.set(5)  # What they read is gated for 20 s.
    for _ in range(12):
        await sim.advance(seconds=5)
        await sim.settle()
    watched.close()
    found = durable(sim, box, "seen"), stored(sim)
    return [] if found == (("x",), []) else [f"{found} is left"]


def test_what_comes_due_while_many_are_worked_off_is_handled() -> None:
    assert told(due_before_a_long_queue) == []


def test_a_row_that_may_not_be_asked_about_stops_no_timer(tmp_path: Path) -> None:
    new_key(tmp_path)

    async def work() -> None:
        async with serving(tmp_path, anyone_founds=True) as server:
            where, soon = address(server), Policy(grace_ms=1)
            async with headwater.connect(where, token=new_token(tmp_path, "ann")) as ann:
                box = await ann.space("s", user="ann").open(Box, "b")
                channel = ann.channel("s")
                assert channel is not None
                await channel.land(lambda made: made.write(ACCESS, append(("writers",), ["eve"])), node="grant")
                box.put.post_at(timedelta(seconds=1), "due")
                await ann.durable()
            async with headwater.connect(where, token=new_token(tmp_path, "eve"), policy=Policy(grace_ms=1e6)) as eve:
                await eve.space("t1", user="eve").open(Box, "e")  # Only she may read it.
                theirs = (eve.space("s", user="eve"), eve.channel("s"))[1]
                assert theirs is not None
                rows = [row_for("e1", "t1/nobody:put", name="nobody"), row_for("e2", "t1/e/leaves/k:put")]
                await theirs.land(lambda made: made.events.extend(rows), node="for her own space")
            rt = await headwater.connect(where, token=new_token(tmp_path, "ann"), policy=soon)
            again = await rt.space("s", user="ann").open(Box, "b")
            await rt.until(lambda: again.seen.get() == ("due",))
            assert {row.state for row in rt.intents() if row.stream.startswith("t1/")} <= {"failed", "parked"}
            with contextlib.suppress(AccessError):  # of the space that she may not read
                await rt.close()

    run(work)


# ---- looking from outside ----------------------------------------------------------------------------------


def listed(capsys: pytest.CaptureFixture[str], where: object, *words: str) -> str:
    capsys.readouterr()
    assert run_command(["intents", str(where), *words]) == 0
    return capsys.readouterr().out


def test_stored_event_that_a_process_has_parked_is_listed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Directory(tmp_path) as directory:
        engine = directory.space("s")
        engine.open_session("somebody")
        later_us = 2**52
        rows = row_for("e1", "s/b:put", cls="nowhere.Box"), row_for("e2", "s/b:put", later_us)
        (verdict,) = engine.submit("somebody", Commit(1, events=rows))
        assert isinstance(verdict, Accepted)

    async def work() -> None:
        async with serving(tmp_path, insecure_local=True, classes=(Box,)) as server:
            where = address(server).replace("ws:", "http:")
            rt = server.application().runtime
            rt.space("s")
            await rt.until(lambda: [row.state for row in rt.intents()] == ["parked"])
            found = json.loads(await asyncio.to_thread(listed, capsys, where, "s", "--json"))
            assert [(row["id"], row["state"]) for row in found] == [("e1", "parked"), ("e2", "stored")]
            text = await asyncio.to_thread(listed, capsys, where, "s")
            assert "parked, next try" in text
            assert "nowhere.Box" in text

    run(work)


def test_list_of_stored_events_says_that_there_are_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Directory(tmp_path) as directory:
        engine = directory.space("s")
        engine.open_session("somebody")
        for number in range(7):
            rows = tuple(row_for(f"{number}-{n:03}", "s/b:put") for n in range(150))
            (verdict,) = engine.submit("somebody", Commit(number + 1, events=rows))
            assert isinstance(verdict, Accepted)
    errors = [row["error"] for row in json.loads(listed(capsys, tmp_path, "s", "--json"))]
    assert errors == [*[""] * 1_000, "more are stored: these are the first 1,000"]


FOLLOWS = """
import sys
from headwater.cli.app import run

def tell(event, _):
    if event == "fcntl.flock":
        print("looks", flush=True)

sys.addaudithook(tell)  # A command that reads a directory locks it.
sys.exit(run(["intents", sys.argv[1], "--follow"]))
"""


def test_following_goes_on_when_a_program_opens_the_directory(tmp_path: Path) -> None:
    """It says once that the directory is in use, and lists what was stored after that program ended."""
    with Directory(tmp_path) as directory:
        store_event(directory, 1)
    words = (sys.executable, "-c", FOLLOWS, str(tmp_path))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
        try:
            assert follower.stdout is not None
            lines = read_until(follower.stdout, "s/1:put: stored")
            with owned(tmp_path) as directory:
                lines += read_until(follower.stdout, "is owned by")
                for _ in range(3):  # A message for each of these looks would be among the lines.
                    lines += read_until(follower.stdout, "looks")
                store_event(directory, 2)
            lines += read_until(follower.stdout, "s/2:put: stored")
            follower.send_signal(signal.SIGINT)
            assert follower.wait(60) == 130
        finally:
            follower.kill()  # If it did not end by itself, the test fails instead of waiting for it.
    said = [line for line in lines if "is owned by" in line]
    assert len(said) == len(set(said)), said


def read_until(lines: IO[str], words: str) -> list[str]:
    """Read lines up to the first one with these words, which has to come."""
    found = [lines.readline()]
    while words not in found[-1]:
        assert found[-1], f"no line has {words!r}: {found}"
        found.append(lines.readline())
    return found


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[Directory]:
    """Own the directory, as soon as no command reads it."""
    found: Directory | None = None
    deadline = time.monotonic() + 60
    while found is None:
        try:
            found = Directory(folder)
        except DirectoryInUseError:
            if time.monotonic() > deadline:
                raise
    with found:
        yield found


def store_event(directory: Directory, number: int) -> None:
    engine = directory.space("s")
    engine.open_session("somebody")
    (verdict,) = engine.submit("somebody", Commit(number, events=(row_for(f"e{number}", f"s/{number}:put"),)))
    assert isinstance(verdict, Accepted)


LOSES_INTERRUPTS = """
import os, signal, sys
from headwater.cli.app import run

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)  # Python prints an exception that is raised here, and goes on.

def interrupt(event, _):
    if event == "fcntl.flock":
        Finalized()

sys.addaudithook(interrupt)
sys.exit(run(["intents", sys.argv[1], "--follow"]))
"""


def test_following_ends_though_an_interrupt_is_lost_in_a_finalizer(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        store_event(directory, 1)
    words = (sys.executable, "-c", LOSES_INTERRUPTS, str(tmp_path))
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Exception ignored in" in done.stderr) == (130, True), done.stderr
