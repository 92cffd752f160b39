"""Peers that break the protocol, disks that fail: a precise answer, and everybody else is served."""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.address import Depth, DocKey, Link
from headwater.data.patch import add, append, increment, replace
from headwater.engine.limits import Limits
from headwater.engine.sync.peer import PeerState
from headwater.errors import StorageError
from headwater.protocol.commit import MAIN, NO_PROVENANCE, Commit, NodeResult, Operation, Provenance, Read
from headwater.protocol.messages import (
    Ack,
    Bye,
    FromReplica,
    Hello,
    Open,
    Opened,
    Patched,
    Problem,
    Query,
    Selector,
    Sync,
    Transact,
    Unwatch,
    Verdicts,
    Watch,
    Whole,
)
from headwater.protocol.observations import QueryCurrent
from headwater.protocol.verdict import Accepted, Rejected, RuleRefused
from tests.counts import scaled
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.kit import doc
from tests.unit.replica.kit import World

D, E = doc("d"), doc("e")


class TestPeersThatBreakTheProtocol:
    @pytest.mark.parametrize(
        "message",
        [
            Transact((Commit(1, (put("d", 1),)),)),
            Watch(1, (Selector(D),)),
            Unwatch(1),
            Query(1, "space", "d"),
            Ack(0),
            Bye(),
        ],
        ids=lambda message: type(message).__name__,
    )
    def test_nothing_works_without_a_session(self, message: FromReplica) -> None:
        world = World()
        peer = Raw(world)
        (problem,) = peer.say(message)
        assert problem == Problem("protocol", "open a session first")
        assert peer.peer.state is PeerState.CLOSED
        assert world.engine.last_seq == 0

    def test_a_second_hello_or_open_ends_the_connection(self) -> None:
        world = World()
        for message in (Hello((1,)), Open("x", "other")):
            peer = Raw(world, f"s-{type(message).__name__}")
            (problem,) = peer.say(message)
            assert isinstance(problem, Problem)
            assert problem.fatal
            assert peer.peer.state is PeerState.CLOSED

    @pytest.mark.parametrize(
        "commits",
        [
            (),
            (Commit(0, (put("d", 1),)),),
            (Commit(2, (put("d", 1),)), Commit(1, (put("d", 1),))),
            (Commit(1, (put("d", 1),), (Read(D, (), Depth.DEEP, 99),)),),
            (Commit(1, (put("d", 1),), (Read(D, (), Depth.DEEP, 0, ((1, 1),)),)),),
            (Commit(1, (put("d", 1),), results=(NodeResult(NO_PROVENANCE, 1),)),),
            (Commit(1, (put("d", 1), put("d", 2))),),
            (Commit(1, (put("d", 1),), branch="dev"),),
        ],
        ids=str,
    )
    def test_a_frame_outside_the_protocol_writes_nothing_and_ends_the_connection(
        self, commits: tuple[Commit, ...]
    ) -> None:
        world = World("good")
        (good,) = world.clients
        good.watch("e")
        world.settle()
        peer = Raw(world, "bad")
        (problem,) = peer.say(Transact(commits))
        assert isinstance(problem, Problem)
        assert problem.fatal
        assert len(problem.message) > 20
        assert world.engine.last_seq == 0
        told = good.write("e", replace((), 1))
        world.settle()
        assert told.landed

    def test_a_bad_frame_in_a_group_does_not_harm_its_neighbours(self) -> None:
        world = World()
        good, bad = Raw(world, "good"), Raw(world, "bad")
        world.hub.process(
            [
                (good.peer, Transact((Commit(1, (put("d", 1),)),))),
                (bad.peer, Transact(())),
                (good.peer, Transact((Commit(2, (put("d", 2),)),))),
            ]
        )
        assert world.value("d") == 2
        assert len(good.only(Verdicts)) == 2

    @pytest.mark.parametrize(
        "limits",
        [Limits(commit_reads=1), Limits(commit_operations=1), Limits(frame_commits=1)],
        ids=["reads", "ops", "frame"],
    )
    def test_a_commit_over_a_limit_gets_a_verdict_that_no_retry_changes(self, limits: Limits) -> None:
        world = World(limits=limits)
        peer = Raw(world, "s")
        reads = (Read(D, (), Depth.DEEP, 0), Read(E, (), Depth.DEEP, 0))
        frame = [Commit(1, (put("d", 1), put("e", 1)), reads)]
        if limits.frame_commits == 1:
            frame.append(Commit(2, (put("d", 2),)))
        for _ in range(2):
            said = peer.say(Transact(tuple(frame)))
            verdicts = [v for message in said if isinstance(message, Verdicts) for v in message.verdicts]
            assert [type(v) for v in verdicts] == [Rejected] * len(frame)
            assert all(isinstance(v, Rejected) and isinstance(v.rejection, RuleRefused) for v in verdicts)
        assert world.engine.last_seq == 0
        assert peer.peer.state is PeerState.OPEN
        assert peer.write(3, put("d", 3))[0] == Verdicts((Accepted(3, 1),))

    def test_one_commit_over_a_limit_does_not_take_its_wave_with_it(self) -> None:
        world = World(limits=Limits(commit_reads=1))
        peer = Raw(world, "s")
        reads = (Read(D, (), Depth.DEEP, 0), Read(E, (), Depth.DEEP, 0))
        said = peer.say(
            Transact((Commit(1, (put("d", 1),)), Commit(2, (put("e", 1),), reads), Commit(3, (put("f", 1),))))
        )
        verdicts = [v for message in said if isinstance(message, Verdicts) for v in message.verdicts]
        assert [type(v) for v in verdicts] == [Accepted, Rejected, Accepted]

    @pytest.mark.parametrize(
        "message",
        [
            Open("x", "s", "wrong", "t"),
            Open("x", "", "", "t"),
            Open("x", "k" * 10_000, "", "t"),
            Open("x", "new", "", "t", "no-such-branch"),
            Open("x", "new", "", "t", sent=tuple(range(1, 100_000))),
            Open("x", "new", "", "t", sent=(2**53 - 1,)),
            Open("x", "new", "", "t", seen=2**53 - 1),
        ],
        ids=lambda message: str(message)[:60],
    )
    def test_strange_openings_do_not_disturb_anybody(self, message: Open) -> None:
        world = World("good")
        (good,) = world.clients
        good.watch("d")
        world.settle()
        Raw(world, "s")
        stranger = Raw(world)
        stranger.say(message)
        assert stranger.heard
        told = good.write("d", replace((), 1))
        world.settle()
        assert told.landed

    def test_absurd_numbers_are_contained(self) -> None:
        for message in (
            Bye(2**64 - 1),
            Ack(2**64 - 1, 2**64 - 1),
            Unwatch(2**64 - 1),
            Query(1, "space", "d", at=2**64 - 1),
            Query(1, "space", "", limit=2**64 - 1),
        ):
            world = World()
            Raw(world, "s").say(message)
            other = Raw(world, "other")
            assert other.write(1, put("d", 1))

    def test_an_acknowledgement_of_what_was_never_judged_does_not_stop_the_session(self) -> None:
        world = World()
        peer = Raw(world, "s")
        peer.say(Ack(0, 1_000))
        assert peer.write(1, put("d", 1))[0] == Verdicts((Accepted(1, 1),))


class TestAfterTheEnd:
    def test_whoever_broke_the_protocol_hears_nothing_more_and_stands_in_no_line(self) -> None:
        """What it sent behind that was judged in the same group: it is told when it comes back and replays."""
        world = World()
        bob = Raw(world, "bob")
        bob.write(1, put("d", {"n": 1}))
        ann = Raw(world, "ann")
        bob.write(2, put("d", {"n": 2}))
        bad = Commit(1, (put("d", 3),), (Read(D, (), Depth.DEEP, 999),))
        lost = Commit(2, (put("d", 4),), (Read(D, (), Depth.DEEP, 1),))
        landed = Commit(3, (put("e", 5),))
        told = ann.say(Transact((bad,)), Transact((lost,)), Transact((landed,)))
        (problem,) = told
        assert isinstance(problem, Problem)
        assert problem.fatal
        assert len(world.hub.turns.lines) == 0
        again = Raw(world)
        again.open("ann", ann.token)
        (verdicts,) = [m for m in again.say(Transact((lost, landed))) if isinstance(m, Verdicts)]
        assert [type(verdict) for verdict in verdicts.verdicts] == [Rejected, Accepted]
        assert world.value("e") == 5


class TestAFailingStore:
    def test_no_verdict_leaves_and_everybody_starts_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World()
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        bob.watch(D)

        def fail(batch: object) -> None:
            raise StorageError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(type(world.engine), "submit_group", lambda self, batch, **_: fail(batch))
            said = ann.write(1, put("d", 1))
        assert said == [Problem("storage", "the disk is gone")]
        assert ann.peer.state is PeerState.CLOSED
        assert bob.peer.state is PeerState.CLOSED  # rejections were forgotten with the group, also his
        again, bob_again = Raw(world), Raw(world)
        again.open("ann", ann.token)
        bob_again.open("bob", bob.token)
        assert again.write(1, put("d", 1))[0] == Verdicts((Accepted(1, 1),))
        assert bob_again.heard[-1] == Sync(1, (Patched(D, 1, (replace((), 1),)),), chain=world.engine.chain_at(1))

    def test_a_failure_while_telling_costs_that_peer_its_connection_and_no_change(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = World(limits=Limits(sync_patches=1))
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        bob.watch(D)

        def fail(self: object, doc: DocKey, **_: object) -> None:
            raise StorageError("the disk is gone")

        frames = [(ann.peer, Transact((Commit(number, (put("d", number),)),))) for number in (1, 2, 3)]
        with monkeypatch.context() as patched:
            patched.setattr(type(world.engine), "read", fail)
            world.hub.process(frames)
        assert len(ann.only(Verdicts)) == 3
        assert isinstance(bob.heard[-1], Problem)
        again = Raw(world)
        again.open("bob", bob.token, seen=0)
        opened = again.heard[0]
        assert isinstance(opened, Opened)
        told = [change for message in again.heard if isinstance(message, Sync) for change in message.changes]
        assert (not opened.resumed) or told == [Whole(D, 3, True, 3)]


@pytest.mark.random
def test_whatever_peers_say_the_hub_stays_up_and_the_others_are_served() -> None:
    """Structured nonsense: every field drawn from what it may and may not be, on connections in every state."""
    for seed in range(scaled(300)):
        random = Random(seed)
        world = World("good", limits=Limits(watches=20, follow_documents=5, in_flight=10, sync_window=2))
        (good,) = world.clients
        good.watch("d", "e")
        world.settle()
        good.write("d", replace((), {"n": 0}))
        world.settle()
        evil = [Raw(world) for _ in range(3)]
        for step in range(30):
            peer = random.choice(evil)
            if peer.peer.state is PeerState.CLOSED:
                evil.remove(peer)
                evil.append(Raw(world))
                continue
            peer.say(*(nonsense(random) for _ in range(random.randrange(1, 3))))
            if step % 10 == 0:
                world.settle()
        world.settle()
        before = good.shows("e")
        told = good.write("e", replace((), [seed, str(before)]))
        world.settle()
        assert told.landed, seed
        assert good.shows("e") == world.value("e"), seed
        assert good.shows("d") == world.value("d"), seed
        assert good.mirror.differences() == [], seed


def nonsense(random: Random) -> FromReplica:
    """One message that decodes, and may mean anything."""
    number = random.choice((0, 1, 2, 3, 7, 99, 2**31, 2**53 - 1))
    key = DocKey(
        random.choice(("space", "space", "user:eve", "moon", "")), random.choice(("d", "e", "f", "", "ü" * 300))
    )
    path = random.choice(((), ("n",), ("n", 0), ("x",) * 40, (2**53 - 1,)))
    match random.randrange(9):
        case 0 | 1:
            session = random.choice(("a", "b", "good", "", "merge of x", "s" * 500))
            return Open(
                "x", session, random.choice(("", "t")), "t", random.choice((MAIN, "dev")), number, (number,), number
            )
        case 2:
            return Watch(number, tuple(Selector(key, random.random() < 0.5) for _ in range(random.randrange(4))))
        case 3:
            return Unwatch(number)
        case 4:
            return Query(number, key.scope, key.id, random.choice((None, number)), random.choice(("", "d")), number)
        case 5:
            return Ack(number, number)
        case 6 if random.random() < 0.2:
            return Bye(number)
        case _:
            patch = random.choice(
                (
                    replace((), {"n": 0}),
                    increment(("n",)),
                    add(("l",), Link(id=random.choice("def"))),
                    append(path, [1]),
                )
            )
            layers = random.choice(((), ((1, 1),), ((0, 5),), ((3, 2),)))
            reads = tuple(Read(key, path, Depth.DEEP, number % 5, layers) for _ in range(random.randrange(2)))
            result = NodeResult(NO_PROVENANCE, random.randrange(3), (random.randrange(3),), (random.randrange(2),))
            origin = Provenance(derived=random.random() < 0.8)
            results = (result,) * random.choice((0, 0, 1, 2))
            made = Commit(number, (Operation(key, (patch,)),), reads, provenance=origin, results=results)
            return Transact(tuple(made for _ in range(random.randrange(3))))


@pytest.mark.parametrize("layers", [((1, 2**62),), ((-(2**63), 5),), ((5, 1),), ((1, 4_000), (5_000, 6_000))])
def test_question_about_endless_layers_is_refused(layers: tuple[tuple[int, int], ...]) -> None:
    """Going through them would hold the space for ever."""
    world = World(limits=Limits(read_layers=4_096))
    reader = Raw(world, "s", principal="rob")
    (answer,) = reader.say(QueryCurrent(7, (Read(doc("d"), (), Depth.DEEP, 0, layers),), ()))
    assert isinstance(answer, Problem)
    assert (answer.code, answer.id, answer.fatal) == ("limit", 7, False)
