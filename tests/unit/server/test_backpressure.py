"""How much of what a connection sends and asks for may be on the way, and when a peer is too slow."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace as changed
from pathlib import Path

from headwater.engine.engine import Engine
from headwater.engine.sync.hub import Hub
from headwater.protocol.messages import Ack, Answer, EventsStored, Problem, StoredEvents, Sync, Verdicts, Watch, Watched
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS
from headwater.server.server import Server
from headwater.server.sync.backpressure import Backpressure
from tests.unit.runtime.kit import SPACE
from tests.unit.server.test_attack_peers import in_one_segment
from tests.unit.server.test_connection import opened, served, write

LIMITS = changed(
    DEFAULT_SERVER_LIMITS,
    in_flight_bytes=100,
    right=changed(DEFAULT_SERVER_LIMITS.right, questions=2),
    outgoing_bytes=1_000,
)


class TestFrames:
    def test_more_bytes_than_the_limit_leave_no_room_until_some_are_judged(self) -> None:
        flow = Backpressure(LIMITS)
        flow.count_frame(60)
        assert flow.has_room()
        flow.count_frame(60)
        assert not flow.has_room()
        assert not flow.is_idle()
        flow.count_sent([Verdicts(())], [b""], 0)
        assert flow.has_room()
        flow.count_sent([Verdicts(())], [b""], 0)
        assert flow.is_idle()

    def test_verdicts_on_what_was_never_taken_in_change_nothing(self) -> None:
        flow = Backpressure(LIMITS)
        flow.count_sent([Verdicts(())], [b""], 0)
        flow.count_frame(60)
        assert not flow.is_idle()


class TestQuestions:
    def test_every_kind_of_answer_makes_room_for_the_next(self) -> None:
        answers = (Watched(1, 0, ()), Answer(1, 0, ()), StoredEvents(1, 0, ()), EventsStored(1, 0))
        for answer in (*answers, Problem("limit", "too long", False, 1)):
            flow = Backpressure(LIMITS)
            flow.count_question(1)
            flow.count_question(2)
            assert not flow.may_ask(0)
            flow.count_sent([answer], [b""], 0)
            assert flow.may_ask(0)

    def test_while_much_waits_to_be_taken_nothing_more_is_asked_for(self) -> None:
        flow = Backpressure(LIMITS)
        assert flow.may_ask(500)
        assert not flow.may_ask(501)

    def test_while_answers_are_long_few_are_on_the_way_at_once(self) -> None:
        def most(*answers: bytes) -> int:
            """How many may be on the way after these answers."""
            flow = Backpressure(
                changed(LIMITS, right=changed(DEFAULT_SERVER_LIMITS.right, questions=16), outgoing_bytes=1 << 30)
            )
            for answer in answers:
                flow.count_sent([Answer(99, 0, ())], [answer], 0)
            number = 0
            while flow.may_ask(0):
                number += 1
                flow.count_question(number)
            return number

        longer, longest = bytes(64 * 1024), bytes(8 << 20)
        assert most() == 16
        assert most(longer) == 8
        assert most(longer, longest) == 1
        assert most(longer, longest, *[b"short"] * 60) == 16


class TestSlowPeers:
    def test_what_was_asked_for_makes_nobody_slow(self) -> None:
        flow = Backpressure(LIMITS)
        waits = 0
        for number in range(10):
            assert not flow.count_sent([Watched(number, 0, ())], [b"x" * 900], waits)
            waits += 900

    def test_what_comes_unasked_does_once_it_piles_up(self) -> None:
        flow = Backpressure(LIMITS)
        waits, said = 0, []
        for _ in range(4):
            said.append(flow.count_sent([Sync(1, ())], [b"x" * 600], waits))
            waits += 600
        assert said == [False, False, True, True]

    def test_what_is_taken_is_forgotten(self) -> None:
        flow = Backpressure(LIMITS)
        for _ in range(10):
            assert not flow.count_sent([Sync(1, ())], [b"x" * 900], 100)
        assert not flow.count_sent([Sync(1, ())], [b"x" * 900], -1)  # the connection is gone


def test_long_commits_are_not_taken_in_faster_than_they_are_judged(tmp_path: Path) -> None:
    limits = changed(DEFAULT_SERVER_LIMITS, in_flight_bytes=500_000)

    async def tell(server: Server) -> None:
        peer = await opened(server)
        host = server.service.spaces.host_of(SPACE)
        busy, free = threading.Event(), threading.Event()

        def wait(_: Engine, __: Hub) -> None:
            busy.set()
            free.wait()

        keeper = threading.Thread(target=lambda: host.call(wait))
        keeper.start()
        busy.wait()
        await peer.say(*(write(number, "d", "x" * 100_000) for number in range(1, 8)))
        while host.depth < 5:
            await asyncio.sleep(0)
        for _ in range(1_000):
            await asyncio.sleep(0)  # whatever else has come would be taken in now
        taken_in = host.depth
        free.set()
        keeper.join()
        assert taken_in == 5  # 500,000 bytes, and a little
        judged: list[int] = []
        while len(judged) < 7:
            message = await peer.hear()
            judged += [verdict.local_seq for verdict in message.verdicts] if isinstance(message, Verdicts) else []
        assert judged == [1, 2, 3, 4, 5, 6, 7]

    served(tmp_path, tell, limits)


def test_whoever_floods_a_busy_space_slows_everybody_and_nobody_is_refused(tmp_path: Path) -> None:
    engine = changed(DEFAULT_SERVER_LIMITS.engine, backlog_frames=100)
    limits = changed(DEFAULT_SERVER_LIMITS, engine=engine)

    async def tell(server: Server) -> None:
        good, flood = await opened(server, key="good"), await opened(server, key="flood")
        host = server.service.spaces.host_of(SPACE)
        busy, free = threading.Event(), threading.Event()

        def wait(_: Engine, __: Hub) -> None:
            busy.set()
            free.wait()

        keeper = threading.Thread(target=lambda: host.call(wait))
        keeper.start()
        busy.wait()
        flood.socket.transport.write(in_one_segment(*[Ack(0)] * 5_000))
        while host.depth < 50:
            await asyncio.sleep(0)
        await good.say(write(1))
        for _ in range(1_000):
            await asyncio.sleep(0)
        taken_in = host.depth
        free.set()
        keeper.join()
        assert taken_in < 100
        assert isinstance(await good.hear(), Verdicts)
        await flood.say(Watch(1, ()))
        while not isinstance(message := await flood.hear(), Watched):
            assert not isinstance(message, Problem)
        assert len(server.acceptor.connections) == 2

    served(tmp_path, tell, limits)
