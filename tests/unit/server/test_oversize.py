"""Messages that are too long, in both directions: everybody hears of an end, and in order."""

from __future__ import annotations

import asyncio
from dataclasses import replace as changed
from pathlib import Path

import pytest

from headwater.data.address import Link
from headwater.errors import LimitError, LoadError, RuleRefusedError
from headwater.protocol.messages import (
    Answer,
    Encoding,
    Open,
    Problem,
    Query,
    State,
    StoredEvent,
    StoredEvents,
    Sync,
    Transact,
    Verdicts,
    Watched,
    encode,
    state_of,
    whole_of,
)
from headwater.protocol.observations import NodeKey, Observations, Observed
from headwater.protocol.verdict import Accepted, Rejected, RuleRefused
from headwater.replica.limits import ReplicaLimits
from headwater.runtime.channel.websocket import WebSocket, WebSocketLimits
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from headwater.server.server import Server
from headwater.server.sync.backpressure import fit_message, reject_oversize_commits
from tests.unit.runtime.kit import Rig, address, doc, on_loopback, refused, run, serving
from tests.unit.server.test_connection import HELLO, opened, raw, served, write

ENCODINGS: list[Encoding] = ["msgpack", "json"]
SMALL = changed(
    DEFAULT_SERVER_LIMITS, message_bytes=20_000, right=changed(DEFAULT_SERVER_LIMITS.right, message_bytes=200_000)
)


def states(count: int, size: int) -> tuple[State, ...]:
    return tuple(state_of(doc(f"d{number}"), 1, "x" * size) for number in range(count))


# ---- to the server -------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_each_commit_of_a_frame_that_is_too_long_gets_its_verdict(encoding: Encoding) -> None:
    value = {"$link": "x" * 100, "bytes": b"\x00\xff", "link": Link(id="a")}
    frame = Transact(tuple(commit for number in (3, 4, 5) for commit in write(number, value=value).commits))
    verdicts = reject_oversize_commits(encode(frame, encoding), encoding, 10, 1_000).verdicts
    assert [verdict.local_seq for verdict in verdicts] == [3, 4, 5]
    assert all(isinstance(v, Rejected) and isinstance(v.rejection, RuleRefused) for v in verdicts)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("data", [b"", b"nonsense", b'["transact",[["x"]]]', b"\x92\xa8transact\x91\x91\xa1x"])
def test_what_is_no_frame_of_commits_is_refused_as_a_message(encoding: Encoding, data: bytes) -> None:
    for too_long in (data, encode(HELLO, encoding), encode(Transact(write(1).commits * 3), encoding)):
        with pytest.raises(LimitError, match="is over the limit of 1"):
            reject_oversize_commits(too_long, encoding, 1, 2)


def test_verdicts_on_commits_that_are_too_long_come_in_their_turn_and_the_connection_goes_on(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await opened(server)
        order = [write(1), write(2), write(3, value="x" * 30_000), write(4), write(5, value="x" * 30_000), write(6)]
        await peer.say(*order)
        heard: list[tuple[int, bool]] = []
        while len(heard) < len(order):
            message = await peer.hear()
            if isinstance(message, Verdicts):
                heard += [(verdict.local_seq, isinstance(verdict, Accepted)) for verdict in message.verdicts]
        assert heard == [(1, True), (2, True), (3, False), (4, True), (5, False), (6, True)]

    served(tmp_path, tell, SMALL)


def test_commits_that_are_too_long_need_an_open_session(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await raw(server)
        await peer.say(HELLO, write(1, value="x" * 30_000))
        assert "before a session is open" in (await peer.problem()).message

    served(tmp_path, tell, SMALL)


def test_a_write_that_is_too_long_fails_for_good(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, insecure_local=True, limits=SMALL) as server:
            rig = Rig(WebSocket(address(server)), lambda _: None)
            client = rig.client("a")
            error = await refused(client.create("d", "x" * 30_000))
            assert isinstance(error, RuleRefusedError)
            assert "over the limit of 20000" in str(error)
            await client.create("d", "x" * 3_000)
            assert client.link.connects == 1
            await rig.close()

    run(play)


def test_the_longest_commit_that_a_replica_sends_is_taken_in_whatever_it_is_written_in(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            for encoding in ENCODINGS:
                rig = Rig(WebSocket(address(server), encoding=encoding), lambda _: None)
                client = rig.client(encoding)
                await client.create(encoding, b"\xff" * ((12 << 20) - 1_000))
                assert client.link.connects == 1
                await rig.close()

    run(play)


def test_long_messages_are_decoded_aside_and_taken_in_in_order(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await raw(server)
        await peer.say(HELLO, Open("shop", "s", "", "t", watching=tuple(range(2_000))))
        for _ in range(2):
            await peer.hear()
        sizes = [5_000, 1, 1, 5_000, 5_000, 1]
        await peer.say(*(write(n, value="x" * size) for n, size in enumerate(sizes, 1)))
        seqs: list[int] = []
        while len(seqs) < len(sizes):
            message = await peer.hear()
            seqs += [verdict.local_seq for verdict in message.verdicts] if isinstance(message, Verdicts) else []
        assert seqs == [1, 2, 3, 4, 5, 6]
        await peer.say(b"\xc1" * 5_000)
        assert "not a message of the protocol" in (await peer.problem()).message

    served(tmp_path, tell, changed(DEFAULT_SERVER_LIMITS, aside_bytes=1_000))


def test_messages_stay_in_order_when_one_is_late_and_others_wait_for_room(tmp_path: Path) -> None:
    engine = changed(DEFAULT_SERVER_LIMITS.engine, in_flight=2)
    limits = changed(DEFAULT_SERVER_LIMITS, engine=engine, rate=2_000, burst=3)

    async def tell(server: Server) -> None:
        peer = await opened(server)
        await peer.say(*(write(n) for n in range(1, 101)))
        seqs: list[int] = []
        while len(seqs) < 100:
            message = await peer.hear()
            seqs += [verdict.local_seq for verdict in message.verdicts] if isinstance(message, Verdicts) else []
        assert seqs == list(range(1, 101))

    served(tmp_path, tell, limits)


# ---- from the server -----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_fits_is_said_as_it_is(encoding: Encoding) -> None:
    for message in (Watched(1, 2, states(3, 10)), Answer(1, 2, states(3, 10)), Sync(3, ()), Problem("limit", "x")):
        assert fit_message(message, encoding, 1_000) == (message, encode(message, encoding))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_watch_that_is_too_long_is_a_problem_with_its_number(encoding: Encoding) -> None:
    for watched in (Watched(7, 2, states(30, 100)), Watched(7, 2, states(1, 3_000))):
        said, data = fit_message(watched, encoding, 1_000)
        assert isinstance(said, Problem)
        assert (said.code, said.fatal, said.id) == ("limit", False, 7)
        assert data == encode(said, encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_page_that_is_too_long_ends_earlier_and_goes_on_where_it_ended(encoding: Encoding) -> None:
    documents = states(30, 100)
    said, data = fit_message(Answer(7, 2, documents, "more"), encoding, 1_000)
    assert isinstance(said, Answer)
    assert 0 < len(said.documents) < 30
    assert said.documents == documents[: len(said.documents)]
    assert said.next == said.documents[-1].doc.id
    assert len(data) <= 1_000
    alone, _ = fit_message(Answer(7, 2, states(1, 3_000)), encoding, 1_000)
    assert isinstance(alone, Problem)
    assert (alone.fatal, alone.id) == (False, 7)


def test_news_that_are_too_long_end_the_connection_with_the_reason() -> None:
    said, _ = fit_message(Sync(3, (whole_of(doc(), 3, "x" * 3_000),)), "msgpack", 1_000)
    assert isinstance(said, Problem)
    assert said.fatal
    assert "Watch fewer" in said.message


LITTLE = changed(DEFAULT_SERVER_LIMITS, answer_bytes=100_000)


async def with_documents(server: Server, count: int) -> Rig:
    rig = Rig(WebSocket(address(server)), lambda _: None)
    writer = rig.client("a")
    for number in range(count):
        await writer.create(f"d{number:02}", "x" * 10_000)
    await writer.create("root", {"links": tuple(Link(id=f"d{number:02}") for number in range(count))})
    return rig


def test_following_links_to_more_than_an_answer_holds_is_refused_and_the_connection_stays(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, insecure_local=True, limits=LITTLE) as server:
            rig = await with_documents(server, 20)
            reader = rig.client("b")
            error = await refused(reader.driver.loaded(doc("root"), follow=True))
            assert isinstance(error, LoadError)
            assert "which is the limit of one answer" in str(error)
            await reader.driver.loaded(doc("root"), doc("d03"))
            await rig.clients[0].create("d03", 1)
            await reader.driver.until(lambda: reader.shown("d03") == 1)
            assert reader.link.connects == 1
            await rig.close()

    run(play)


def test_every_document_of_a_scope_is_read_page_by_page_however_long_they_are(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, insecure_local=True, limits=LITTLE) as server:
            rig = await with_documents(server, 20)
            reader = rig.client("b")
            found: list[str] = []
            after: str | None = ""
            async with asyncio.timeout(10):
                while after is not None:
                    page = await reader.driver.query(Query(0, "space", after=after, limit=1_000))
                    found += [state.doc.id for state in page.documents]
                    after = page.next
            assert [id for id in found if id.startswith("d")] == [f"d{number:02}" for number in range(20)]
            assert len(found) == len(set(found))
            await rig.close()

    run(play)


def test_the_loopback_has_no_messages_that_are_too_long(tmp_path: Path) -> None:
    async def play() -> None:
        async with on_loopback(tmp_path) as rig:
            await rig.client("a").create("d", "x" * 11_000_000)
            await rig.client("b").driver.loaded(doc())

    run(play)


def test_what_a_client_sends_and_takes_in_fits_what_a_server_takes_in_and_says() -> None:
    limits = ServerLimits()
    assert ReplicaLimits().commit_bytes * 4 // 3 < limits.message_bytes < limits.right.message_bytes
    assert limits.message_bytes > ReplicaLimits().wave_bytes
    assert limits.engine.document_bytes < limits.answer_bytes < WebSocketLimits().message_bytes


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_stored_events_that_are_too_long_for_an_answer_come_in_shorter_pages(encoding: Encoding) -> None:
    events = tuple(StoredEvent(f"e{n}", n, "add", "x" * 1_000, 0, 0) for n in range(1, 9))
    page, data = fit_message(StoredEvents(7, 9, events, None, 5), encoding, 5_000)
    assert isinstance(page, StoredEvents)
    assert (page.events, page.next, page.next_due_us) == (events[:4], (4, "e4"), 5)
    assert len(data) <= 5_000
    problem, _ = fit_message(StoredEvents(7, 9, events[:1]), encoding, 500)
    assert isinstance(problem, Problem)
    assert (problem.fatal, problem.id) == (False, 7)
    assert "stored at seq 1 is over 500 bytes" in problem.message


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_observations_that_are_too_long_for_an_answer_come_in_shorter_pages(encoding: Encoding) -> None:
    nodes = [NodeKey("ann", 1, f"m{n}") for n in range(8)]
    observed = tuple(Observed(node, "x" * 1_000, "", "", "", None, (), (), (), 0, 0, 0) for node in nodes)
    page, data = fit_message(Observations(7, 9, observed), encoding, 5_000)
    assert isinstance(page, Observations)
    assert (page.observed, page.next) == (observed[:4], nodes[3])
    assert len(data) <= 5_000
    problem, _ = fit_message(Observations(7, 9, observed[:1]), encoding, 500)
    assert isinstance(problem, Problem)
    assert (problem.fatal, problem.id) == (False, 7)
    assert "the observation of a node of ann is over 500 bytes" in problem.message
