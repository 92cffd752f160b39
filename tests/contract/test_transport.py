"""The contract of a transport: whatever carries the messages, sessions behave the same.

Another transport joins by adding one entry to `TRANSPORTS` of the kit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace as changed
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.data.address import Link as DocLink
from headwater.data.patch import add, append, increment, replace
from headwater.data.value import ABSENT
from headwater.engine import DEFAULT_LIMITS, Engine, Limits
from headwater.errors import (
    CommitConvergenceError,
    ConflictError,
    HeadwaterError,
    LoadError,
    RuleRefusedError,
    SessionExpiredError,
)
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import Ack, FromReplica, Open, Query
from headwater.protocol.verdict import Accepted
from headwater.replica import LinkState, Transaction
from headwater.runtime import RetryPolicy
from tests.unit.runtime.kit import TRANSPORTS, Client, Made, Rig, doc, refused, run

With = Callable[..., None]


@pytest.fixture(params=TRANSPORTS)
def over(request: pytest.FixtureRequest, tmp_path: Path) -> With:
    """Runs a story over each transport."""
    make: Made = TRANSPORTS[request.param]

    def tell(story: Callable[[Rig], Coroutine[Any, Any, None]], limits: Limits = DEFAULT_LIMITS) -> None:
        async def play() -> None:
            async with make(tmp_path, limits) as rig:
                await story(rig)

        run(play)

    return tell


def value_in(engine: Engine, id: str = "d") -> Any:
    return engine.read(doc(id)).value


async def both_here(rig: Rig, value: object = None) -> tuple[Client, Client]:
    """Two sessions that watch the same document."""
    ann, bob = rig.client("ann"), rig.client("bob")
    await ann.create("d", {"n": 0, "l": []} if value is None else value)
    await ann.driver.loaded(doc())
    await bob.driver.loaded(doc())
    return ann, bob


async def agree(*clients: Client) -> None:
    for client in clients:
        await client.driver.synced()
    newest = max(client.replica.confirmed.seq for client in clients)
    for client in clients:
        await client.driver.until(lambda client=client: client.replica.confirmed.seq >= newest)  # type: ignore[misc]


# ---- writing and hearing ----------------------------------------------------------------------------


def test_a_write_is_shown_at_once_lands_and_is_heard_by_others(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)
        write = asyncio.ensure_future(ann.write("d", append(("l",), ["x"])))
        await asyncio.sleep(0)
        assert ann.shown("d")["l"] == ("x",)  # before anybody answered
        await write
        assert rig.call(value_in)["l"] == ("x",)
        await bob.driver.until(lambda: bob.shown("d")["l"] == ("x",))

    over(story)


def test_an_absent_document_counts_as_loaded(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann = rig.client("ann")
        await ann.driver.loaded(doc("nothing"))
        assert ann.shown("nothing") is ABSENT

    over(story)


def test_a_transaction_waits_for_what_it_reads(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = rig.client("ann"), rig.client("bob")
        await ann.create("d", {"n": 41})
        await bob.count_up("d")  # never watched it before
        assert rig.call(value_in) == {"n": 42}

    over(story)


def test_two_writers_that_read_and_write_lose_nothing(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)

        async def often(client: Client) -> None:
            for _ in range(25):
                await client.count_up("d")

        await asyncio.gather(often(ann), often(bob))
        await agree(ann, bob)
        assert rig.call(value_in)["n"] == ann.shown("d")["n"] == bob.shown("d")["n"] == 50

    over(story)


def test_many_commits_at_once_all_land_in_order(over: With) -> None:
    """More than may be in flight: the sender is slowed, nothing is refused."""

    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)
        await asyncio.gather(*(ann.write("d", append(("l",), [n])) for n in range(300)))
        await agree(ann, bob)
        assert rig.call(value_in)["l"] == tuple(range(300)) == bob.shown("d")["l"]

    over(story, changed(DEFAULT_LIMITS, in_flight=8))


def test_a_large_document_arrives_whole(over: With) -> None:
    async def story(rig: Rig) -> None:
        value = {"text": "ä" * 500_000, "bytes": b"\x00\xff" * 1_000, "$odd": [1.5, None, True], "n": 0, "l": []}
        ann, bob = await both_here(rig, value)
        assert bob.shown("d") == ann.shown("d")
        assert len(bob.shown("d")["text"]) == 500_000

    over(story)


def test_a_query_is_answered_now_and_in_the_past(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann = rig.client("ann")
        for n in range(3):
            await ann.create(f"c{n}", {"n": n})
        await ann.write("c0", replace(("n",), 9))
        now = await ann.driver.query(Query(0, "space", "c0"))
        past = await ann.driver.query(Query(0, "space", "c0", at=now.seq - 1))
        assert (now.documents[0].value, past.documents[0].value) == ({"n": 9}, {"n": 0})
        page = await ann.driver.query(Query(0, "space", limit=100))
        assert {"c0", "c1", "c2"} <= {state.doc.id for state in page.documents}
        error = await refused(ann.driver.query(Query(0, "space", "c0", at=10_000)))
        assert isinstance(error, LoadError)

    over(story)


def test_a_watch_follows_links_also_those_that_come_later(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = rig.client("ann"), rig.client("bob")
        await ann.create("leaf", {"n": 1})
        await ann.create("d", {"to": DocLink(id="leaf")})
        await bob.driver.loaded(doc(), follow=True)
        assert bob.shown("leaf") == {"n": 1}
        await ann.create("later", {"n": 2})
        await ann.write("leaf", add(("to",), DocLink(id="later")))
        await bob.driver.until(lambda: bob.replica.is_here(doc("later")))
        assert bob.shown("later") == {"n": 2}

    over(story)


# ---- rejections -------------------------------------------------------------------------------------


def test_a_refusal_is_final_at_once(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, _ = await both_here(rig)
        error = await refused(ann.create("big", "x" * 5_000))
        assert isinstance(error, RuleRefusedError)
        assert ann.writer.conflicts == 0
        assert rig.call(lambda engine: engine.read(doc("big")).value) is ABSENT

    over(story, changed(DEFAULT_LIMITS, commit_bytes=2_000))


def test_a_conflict_that_never_clears_fails_loudly_when_its_window_is_over(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)
        stubborn = rig.client("stubborn", policy=RetryPolicy(window_ms=150))
        await stubborn.driver.loaded(doc())
        numbers = count(1)

        def add_up(engine: Engine) -> None:
            engine.open_session("rival")
            (verdict,) = engine.submit("rival", Commit(next(numbers), (Operation(doc(), (increment(("n",), 1),)),)))
            assert isinstance(verdict, Accepted)

        def read_late(transaction: Transaction) -> None:
            transaction.read(doc(), ("n",))
            rig.call(add_up)  # Another session writes the place that was read, before this commit arrives.
            transaction.write(doc(), append(("l",), ["never"]))

        error = await refused(stubborn.writer.transact(read_late))
        await bob.add_up("d")
        assert isinstance(error, CommitConvergenceError)
        assert "did not land in 0.15 s" in str(error)
        assert error.attempts == stubborn.writer.attempts
        assert 150 <= error.elapsed_ms < 10_000
        assert isinstance(error.__cause__, ConflictError)
        assert 1 < stubborn.writer.attempts < 200
        await agree(ann, bob)
        assert "never" not in rig.call(value_in)["l"]

    over(story)


def test_writes_on_their_way_together_are_rejected_together_and_land_in_their_order(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)

        def tag(number: int) -> Callable[[Transaction], None]:
            def step(transaction: Transaction) -> None:
                before = transaction.read(doc(), ("l",))
                assert isinstance(before, tuple)
                transaction.write(doc(), replace(("l",), [*before, number]))

            return step

        for begin in range(0, 40, 8):
            numbers = range(begin, begin + 8)
            await asyncio.gather(
                *(ann.writer.transact(tag(n)) for n in numbers),
                *(bob.writer.transact(tag(1_000 + n)) for n in numbers),
            )
        await agree(ann, bob)
        landed = rig.call(value_in)["l"]
        assert [n for n in landed if n < 1_000] == list(range(40))
        assert [n for n in landed if n >= 1_000] == list(range(1_000, 1_040))
        assert ann.shown("d") == bob.shown("d")

    over(story)


# ---- losing connections -----------------------------------------------------------------------------


def test_a_cut_connection_is_made_again_and_nothing_is_lost_or_doubled(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)

        async def cut_often() -> None:
            for times in range(1, 16):
                await ann.driver.until(lambda times=times: ann.link.connects >= times)  # type: ignore[misc]
                await ann.driver.opened()
                ann.link.cut()

        cutting = asyncio.ensure_future(cut_often())
        numbers = 0
        while not cutting.done():
            await asyncio.gather(*(ann.write("d", append(("l",), [n])) for n in range(numbers, numbers + 5)))
            numbers += 5
        await agree(ann, bob)
        landed = rig.call(value_in)["l"]
        assert sorted(landed) == list(range(numbers))
        assert ann.shown("d") == bob.shown("d") == rig.call(value_in)
        assert ann.link.connects >= 15

    over(story)


def test_a_verdict_that_got_lost_is_heard_after_reconnecting(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)
        assert ann.link.newest is not None
        ann.link.newest.deaf = True
        write = asyncio.ensure_future(ann.write("d", increment(("n",), 1)))
        await bob.driver.until(lambda: bob.shown("d")["n"] == 1)
        assert not write.done()
        ann.link.cut()
        await write
        await agree(ann, bob)
        assert rig.call(value_in)["n"] == 1 == ann.shown("d")["n"]

    over(story)


def test_what_was_written_without_a_connection_is_made_again(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)
        ann.link.cut()
        await ann.driver.until(lambda: ann.driver.session.link is LinkState.DOWN)
        write = asyncio.ensure_future(ann.count_up("d"))
        await asyncio.sleep(0)
        assert ann.shown("d")["n"] == 1
        await write
        await agree(ann, bob)
        assert bob.shown("d")["n"] == 1

    over(story)


def test_changes_that_happened_meanwhile_are_caught_up(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)
        ann.link.cut()
        for _ in range(40):
            await bob.add_up("d")
        await ann.driver.until(lambda: ann.replica.is_here(doc()) and ann.shown("d")["n"] == 40)

    over(story)


def test_after_the_watches_were_let_go_everything_is_read_again(over: With) -> None:
    """No watch is kept at all here: each reconnection is a full resync, and still loses nothing pending."""

    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)
        for n in range(5):
            await ann.driver.synced()
            assert ann.link.newest is not None
            ann.link.newest.deaf = True
            write = asyncio.ensure_future(ann.write("d", append(("l",), [n])))
            await bob.driver.until(lambda n=n: n in bob.shown("d")["l"])  # type: ignore[misc]
            await bob.add_up("d")
            ann.link.cut()
            await write
        await agree(ann, bob)
        assert ann.shown("d") == bob.shown("d") == rig.call(value_in) == {"n": 5, "l": (0, 1, 2, 3, 4)}

    over(story, changed(DEFAULT_LIMITS, session_kept_us=1))


def resuming_with(token: str) -> Callable[[FromReplica], FromReplica]:
    """Have a session present a token that it was not given."""
    return lambda message: msgspec.structs.replace(message, resume=token) if isinstance(message, Open) else message


def test_a_takeover_revokes_the_connection_before_it(over: With) -> None:
    async def story(rig: Rig) -> None:
        tokens = ["t1", "t2", "t3"]
        ann = rig.client("ann", new_token=iter(tokens).__next__)
        await ann.driver.opened()
        thief = rig.client("ann")
        thief.link.leaves = resuming_with("t1")
        await thief.driver.opened()
        error = await refused(ann.driver.until(lambda: False))
        assert isinstance(error, SessionExpiredError)
        assert any("another connection has taken this session up" in str(e) for e in ann.errors)
        # And whoever comes second with a token is refused, thief or not.
        late = rig.client("ann")
        late.link.leaves = resuming_with("t1")
        error = await refused(late.driver.opened())
        assert isinstance(error, SessionExpiredError)
        assert any("was used before" in str(e) for e in late.errors)

    over(story)


def test_a_failed_load_is_heard(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann = rig.client("ann")
        await ann.driver.loaded(doc("a"), doc("b"))
        error = await refused(ann.driver.loaded(doc("c")))
        assert isinstance(error, LoadError)
        assert "at most 2" in str(error)
        assert ann.driver.unwatch(doc("a"))
        await ann.driver.loaded(doc("c"))

    over(story, changed(DEFAULT_LIMITS, watches=2, own_watches=2))


def test_a_closed_driver_ends_everybody_who_waits(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, _ = await both_here(rig)
        assert ann.link.newest is not None
        ann.link.newest.deaf = True
        write = asyncio.ensure_future(ann.add_up("d"))
        wait = asyncio.ensure_future(ann.driver.durable())
        await asyncio.sleep(0)
        await ann.driver.close()
        assert isinstance(await refused(_awaited(write)), HeadwaterError)
        assert isinstance(await refused(_awaited(wait)), HeadwaterError)

    over(story)


async def _awaited(future: asyncio.Future[None]) -> None:
    await future


def test_a_slow_reader_is_told_the_newest_instead_of_everything(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, bob = await both_here(rig)
        heard: list[int] = []
        bob.replica.feed.subscribe(lambda n: heard.append(n.seq))
        acks: list[Ack] = []

        def hold_back(message: FromReplica) -> FromReplica | None:
            if not isinstance(message, Ack):
                return message
            acks.append(message)
            return None

        # Bob's acknowledgements do not leave for a while: the engine holds back and merges.
        send_all, bob.link.leaves = bob.link.leaves, hold_back
        for _ in range(60):
            await ann.add_up("d")
        await bob.driver.query(Query(0, "space", "d"))  # The answer comes after all frames that were sent before.
        held = len(heard)
        while not acks:  # The driver collects acknowledgements for a moment.
            await asyncio.sleep(0)
        bob.link.leaves = send_all
        assert bob.link.newest is not None
        bob.link.newest.send(acks[-1:])
        await bob.driver.until(lambda: bob.shown("d")["n"] == 60)
        assert 1 < held <= DEFAULT_LIMITS.sync_window + 1
        assert len(heard) < 30

    over(story)


def test_a_session_that_says_goodbye_is_over(over: With) -> None:
    async def story(rig: Rig) -> None:
        ann, _ = await both_here(rig)
        await ann.driver.close()
        again = rig.client("ann")
        error = await refused(again.driver.opened())
        assert isinstance(error, HeadwaterError)

    over(story)
