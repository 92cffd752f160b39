"""The engine's side of all conversations: order, fan-out, takeover, bounds, and peers that misbehave."""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.address import Depth, DocKey
from headwater.data.link import Link
from headwater.data.patch import add, append, increment, remove_value, replace
from headwater.engine.access import ACCESS
from headwater.engine.hub import Hub
from headwater.engine.limits import Limits
from headwater.engine.peer import Peer, PeerState
from headwater.errors import StorageError
from headwater.protocol.commit import MAIN, Commit, EntityAbsent, Operation, Read
from headwater.protocol.messages import (
    Ack,
    Answer,
    Bye,
    FromEngine,
    FromReplica,
    Hello,
    Open,
    Opened,
    Own,
    Patched,
    Problem,
    Query,
    Selector,
    Sync,
    Transact,
    Unwatch,
    Verdicts,
    Watch,
    Watched,
    Whole,
)
from headwater.protocol.verdict import Accepted, Rejected, RuleRefused
from tests.counts import scaled
from tests.unit.engine.kit import Writer, doc, write
from tests.unit.replica.kit import World, bump

D, E = doc("d"), doc("e")


class Raw:
    """A connection without a replica behind it: says what it is told to say and keeps what it hears."""

    def __init__(self, world: World, session: str = "", *, principal: str = "", branch: str = MAIN) -> None:
        self.world = world
        self.heard: list[FromEngine] = []
        self.peer = Peer(self.heard.append, world.limits)
        self.peer.state, self.peer.principal = PeerState.GREETED, principal
        self.token = ""
        if session:
            self.open(session, branch=branch)

    def open(self, session: str, resume: str = "", *, seen: int = 0, branch: str = MAIN) -> None:
        self.token = f"token-{session}-{len(self.heard)}-{id(self)}"
        self.say(Open("x", session, resume, self.token, branch, seen))

    def say(self, *messages: FromReplica) -> list[FromEngine]:
        """Say it, and answer what was heard because of it."""
        start = len(self.heard)
        self.world.hub.process([(self.peer, message) for message in messages])
        return self.heard[start:]

    def watch(self, *keys: DocKey, id: int = 1, follow: bool = False) -> list[FromEngine]:
        return self.say(Watch(id, tuple(Selector(key, follow) for key in keys)))

    def write(self, local_seq: int, *operations: Operation) -> list[FromEngine]:
        return self.say(Transact((Commit(local_seq, operations),)))

    def only(self, kind: type) -> list[FromEngine]:
        return [message for message in self.heard if isinstance(message, kind)]


def put(id: str, value: object) -> Operation:
    return write(id, replace((), value))


class TestOrder:
    def test_a_verdict_leaves_before_any_sync_that_covers_it(self) -> None:
        world = World()
        ann = Raw(world, "ann")
        ann.watch(D)
        said = ann.write(1, put("d", 1))
        assert [type(message) for message in said] == [Verdicts, Sync]
        verdicts, sync = said
        assert isinstance(verdicts, Verdicts)
        assert isinstance(sync, Sync)
        assert verdicts.verdicts == (Accepted(1, 1),)
        assert sync == Sync(1, (Own(D, 1, 1),))

    def test_everybody_else_hears_the_patches(self) -> None:
        world = World()
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        bob.watch(D)
        ann.write(1, put("d", 1))
        assert bob.heard[-1] == Sync(1, (Patched(D, 1, (replace((), 1),)),))

    def test_one_who_watches_nothing_hears_only_of_own_seqs(self) -> None:
        world = World()
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        ann.write(1, put("d", 1))
        assert [type(message) for message in ann.heard[1:]] == [Verdicts, Sync]
        assert [type(message) for message in bob.heard] == [Opened]

    def test_frames_that_arrive_together_are_judged_in_order_and_told_once(self) -> None:
        world = World()
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        for peer in (ann, bob):
            peer.watch(D)
        world.hub.process(
            [
                (ann.peer, Transact((Commit(1, (write("d", append((), ["a1"])),)),))),
                (bob.peer, Transact((Commit(1, (write("d", append((), ["b1"])),)),))),
                (ann.peer, Transact((Commit(2, (write("d", append((), ["a2"])),)),))),
            ]
        )
        assert world.value("d") == ("a1", "b1", "a2")
        assert [v.verdicts for v in ann.only(Verdicts) if isinstance(v, Verdicts)] == [
            (Accepted(1, 1),),
            (Accepted(2, 3),),
        ]
        (sync,) = [s for s in bob.only(Sync) if isinstance(s, Sync) and s.changes]
        assert [(type(change), change.seq) for change in sync.changes] == [(Patched, 1), (Own, 2), (Patched, 3)]

    def test_a_watch_after_a_commit_in_one_batch_sees_it(self) -> None:
        world = World()
        ann = Raw(world, "ann")
        said = ann.say(Transact((Commit(1, (put("d", 1),)),)), Watch(1, (Selector(D),)))
        watched = said[-1] if isinstance(said[-1], Watched) else said[-2]
        assert isinstance(watched, Watched)
        assert (watched.seq, watched.documents[0].get()) == (1, 1)

    def test_an_acknowledgement_does_not_break_a_group(self) -> None:
        world = World()
        ann = Raw(world, "ann")
        said = ann.say(Transact((Commit(1, (put("d", 1),)),)), Ack(0, 0), Transact((Commit(2, (put("d", 2),)),)))
        assert [v.verdicts[0] for v in said if isinstance(v, Verdicts)] == [Accepted(1, 1), Accepted(2, 2)]

    def test_everything_told_with_one_seq_is_of_that_seq(self) -> None:
        """A watch brings its documents as of a seq; whatever else the peer watches is brought there first."""
        world = World(limits=Limits(sync_window=1))
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        bob.watch(D)
        for number in range(4):
            ann.write(number + 1, put("d", number), put("e", number))
        said = bob.watch(E, id=2)
        assert [type(message) for message in said] == [Sync, Watched]
        sync, watched = said
        assert isinstance(sync, Sync)
        assert isinstance(watched, Watched)
        assert sync.seq == watched.seq == 4
        assert watched.documents[0].get() == 3

    def test_nothing_is_said_to_a_closed_peer(self) -> None:
        world = World()
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        bob.watch(D)
        world.hub.lost(bob.peer)
        heard = len(bob.heard)
        ann.write(1, put("d", 1))
        assert len(bob.heard) == heard
        assert bob.write(1, put("d", 2)) == []
        assert world.value("d") == 1


class TestCommitsBesideTheHub:
    def test_the_host_s_own_commits_reach_the_watchers(self) -> None:
        """Otherwise a replica would believe that it is current at a seq whose change it never heard."""
        world = World("a")
        (a,) = world.clients
        a.watch("d", "e")
        world.settle()
        host = Writer(world.engine, "host")
        host.lands(put("d", 5))
        a.write("e", replace((), 1))
        world.settle()
        assert a.shows("d") == 5
        assert a.replica.confirmed.seq == world.engine.last_seq

    def test_a_merge_reaches_the_watchers(self) -> None:
        world = World("a")
        (a,) = world.clients
        a.watch("d", "e")
        world.settle()
        a.write("d", replace((), {"x": 0}))
        world.settle()
        world.engine.fork("dev")
        Writer(world.engine, "host").lands(write("d", replace(("x",), 7)), branch="dev")
        world.engine.merge("dev")
        a.write("e", replace((), 1))
        world.settle()
        assert a.shows("d") == {"x": 7}

    def test_branches_do_not_hear_each_other(self) -> None:
        world = World()
        main = Raw(world, "main-session")
        main.watch(D)
        world.engine.fork("dev")
        dev = Raw(world, "dev-session", branch="dev")
        dev.watch(D)
        dev.say(Transact((Commit(1, (put("d", 1),), branch="dev"),)))
        assert all(not sync.changes for sync in main.only(Sync) if isinstance(sync, Sync))
        assert [c.seq for s in dev.only(Sync) if isinstance(s, Sync) for c in s.changes] == [1]


class TestTakingOver:
    def test_one_connection_owns_a_session(self) -> None:
        world = World()
        first = Raw(world, "s")
        second = Raw(world)
        second.open("s", first.token)
        assert first.heard[-1] == Problem("revoked", "another connection has taken this session up")
        assert first.peer.state is PeerState.CLOSED
        assert second.peer.state is PeerState.OPEN
        assert world.hub.sessions == 1
        assert first.write(1, put("d", 1)) == []

    def test_the_loss_of_the_old_connection_does_not_touch_the_new_one(self) -> None:
        world = World()
        first = Raw(world, "s")
        second = Raw(world)
        second.open("s", first.token)
        world.hub.lost(first.peer)
        assert world.hub.sessions == 1
        assert second.write(1, put("d", 1))

    def test_watches_go_over_with_what_was_missed(self) -> None:
        world = World()
        first, other = Raw(world, "s"), Raw(world, "other")
        first.watch(D, E)
        other.write(1, put("d", 1))
        second = Raw(world)
        second.open("s", first.token, seen=0)
        opened = second.heard[0]
        assert isinstance(opened, Opened)
        assert opened.resumed
        assert second.heard[1:] == [Sync(1, (Whole(D, 1, True, 1),))]
        other.write(2, put("e", 1))
        assert second.heard[-1] == Sync(2, (Patched(E, 2, (replace((), 1),)),))

    def test_what_was_seen_is_not_told_again(self) -> None:
        world = World()
        first, other = Raw(world, "s"), Raw(world, "other")
        first.watch(D)
        other.write(1, put("d", 1))
        second = Raw(world)
        second.open("s", first.token, seen=1)
        assert [type(message) for message in second.heard] == [Opened]

    def test_a_replica_that_has_seen_more_than_it_was_told_starts_over(self) -> None:
        world = World()
        first = Raw(world, "s")
        first.watch(D)
        second = Raw(world)
        second.open("s", first.token, seen=99)
        opened = second.heard[0]
        assert isinstance(opened, Opened)
        assert not opened.resumed

    def test_another_branch_starts_over(self) -> None:
        world = World()
        first = Raw(world, "s")
        first.watch(D)
        world.engine.fork("dev")
        second = Raw(world)
        second.open("s", first.token, branch="dev")
        opened = second.heard[0]
        assert isinstance(opened, Opened)
        assert not opened.resumed
        assert world.hub._watchers == {}

    def test_watches_are_kept_for_a_while_and_then_let_go(self) -> None:
        world = World()
        peer = Raw(world, "s")
        peer.watch(D)
        world.hub.lost(peer.peer)
        world.later(world.limits.session_kept_us - 1)
        assert world.hub._watchers
        world.later(1)
        assert world.hub._watchers == {}
        assert world.hub._kept == {}

    def test_the_keys_of_commits_are_kept_for_ever(self) -> None:
        world = World()
        first = Raw(world, "s")
        first.write(1, put("d", 1))
        world.hub.lost(first.peer)
        world.later(10 * world.limits.session_kept_us)
        second = Raw(world)
        second.say(Open("x", "s", first.token, "t", sent=(1,)))
        opened = second.heard[0]
        assert isinstance(opened, Opened)
        assert opened.landed == ((1, 1),)
        assert opened.judged == 1
        assert second.write(1, put("d", 1))[0] == Verdicts((Accepted(1, 1, replayed=True),))

    def test_a_session_of_somebody_else_is_refused(self) -> None:
        world = World(access=True)
        ann = Raw(world, "s", principal="ann")
        bob = Raw(world, principal="bob")
        bob.open("s", ann.token)
        assert isinstance(bob.heard[0], Problem)
        assert bob.peer.state is not PeerState.OPEN
        assert ann.peer.state is PeerState.OPEN

    @pytest.mark.parametrize("key", ["merge of dev", "founding of the space"])
    def test_the_engine_s_own_sessions_cannot_be_opened(self, key: str) -> None:
        world = World(access=True)
        eve = Raw(world, principal="eve")
        eve.open(key)
        assert isinstance(eve.heard[0], Problem)
        assert eve.peer.state is not PeerState.OPEN

    def test_goodbye_closes_the_session_for_good(self) -> None:
        world = World()
        peer = Raw(world, "s")
        peer.watch(D)
        peer.write(1, put("d", 1))
        peer.say(Bye(1))
        assert world.hub.sessions == 0
        assert world.hub._watchers == {}
        again = Raw(world)
        again.open("s", peer.token)
        assert isinstance(again.heard[0], Problem)
        assert again.peer.state is not PeerState.OPEN


class TestSlowPeers:
    def test_a_peer_that_does_not_acknowledge_gets_a_window_full_and_then_one_merged_sync(self) -> None:
        world = World(limits=Limits(sync_window=3, sync_patches=2))
        writer, slow = Raw(world, "writer"), Raw(world, "slow")
        slow.watch(D)
        before = len(slow.heard)
        for number in range(50):
            writer.write(number + 1, put("d", number))
        assert len(slow.heard) - before <= 3
        said = slow.say(Ack(slow.peer.sent_seq))
        assert said == [Sync(50, (Whole(D, 50, True, 49),))]

    def test_its_memory_is_bounded_by_what_it_watches(self) -> None:
        world = World(limits=Limits(sync_window=1, sync_patches=2))
        writer, slow = Raw(world, "writer"), Raw(world, "slow")
        slow.watch(D, E)
        for number in range(300):
            writer.write(number + 1, put("d", number), put("e", number))
        kept = sum(len(changes) for changes in slow.peer._changes.values()) + len(slow.peer._merged)
        assert kept <= 2 * 2
        assert len(slow.heard) < 6

    def test_a_lost_connection_costs_no_more_than_a_slow_one(self) -> None:
        world = World(limits=Limits(sync_patches=2))
        writer, lost = Raw(world, "writer"), Raw(world, "lost")
        lost.watch(D)
        world.hub.lost(lost.peer)
        heard = len(lost.heard)
        for number in range(300):
            writer.write(number + 1, put("d", number))
        kept = sum(len(changes) for changes in lost.peer._changes.values()) + len(lost.peer._merged)
        assert kept <= 2
        assert len(lost.heard) == heard

    def test_others_are_not_slowed_by_it(self) -> None:
        world = World("fast", limits=Limits(sync_window=1, sync_patches=1))
        (fast,) = world.clients
        fast.watch("d")
        slow = Raw(world, "slow")
        slow.watch(D)
        world.settle()
        fast.write("d", replace((), {"n": 0}))
        for _ in range(20):
            told = fast.do(bump("d"))
            world.settle()
            assert told.landed
        assert fast.shows("d") == {"n": 20}


class TestWatching:
    def test_a_watch_answers_with_one_cut_in_the_order_asked(self) -> None:
        world = World()
        ann = Raw(world, "ann")
        ann.write(1, put("e", 1))
        (watched,) = [m for m in ann.watch(E, D) if isinstance(m, Watched)]
        assert [(state.doc, state.seq, state.present) for state in watched.documents] == [(E, 1, True), (D, 0, False)]

    def test_a_document_of_two_watches_is_told_once_and_kept_until_both_are_gone(self) -> None:
        world = World()
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        ann.watch(D, id=1)
        ann.watch(D, E, id=2)
        bob.write(1, put("d", 1))
        last = ann.heard[-1]
        assert isinstance(last, Sync)
        assert len(last.changes) == 1
        ann.say(Unwatch(2))
        bob.write(2, put("d", 2), put("e", 2))
        last = ann.heard[-1]
        assert isinstance(last, Sync)
        assert [change.doc for change in last.changes] == [D]
        ann.say(Unwatch(1))
        heard = len(ann.heard)
        bob.write(3, put("d", 3))
        assert len(ann.heard) == heard
        assert world.hub._watchers == {}

    def test_unwatching_what_is_not_watched_is_harmless(self) -> None:
        world = World()
        assert Raw(world, "ann").say(Unwatch(77)) == []

    def test_the_number_of_watched_documents_is_limited_and_a_refusal_keeps_the_connection(self) -> None:
        world = World(limits=Limits(watches=2))
        ann = Raw(world, "ann")
        ann.watch(D, id=1)
        ann.watch(D, E, id=2)
        said = ann.watch(doc("f"), id=3)
        assert said == [Problem("limit", "a session watches at most 2 documents. Unwatch some first.", False, 3)]
        assert ann.peer.state is PeerState.OPEN
        assert any(isinstance(message, Watched) for message in ann.watch(D, id=1)), "it watches d already"
        ann.say(Unwatch(2))
        assert any(isinstance(message, Watched) for message in ann.watch(doc("f"), id=3))

    def test_the_number_of_selectors_is_limited(self) -> None:
        world = World(limits=Limits(watch_selectors=2))
        ann = Raw(world, "ann")
        said = ann.watch(D, E, doc("f"), id=4)
        assert said == [Problem("limit", "a watch names at most 2 documents. Send several.", False, 4)]
        assert ann.peer.watched == {}

    def test_following_past_its_limit_is_refused_by_name(self) -> None:
        world = World(limits=Limits(follow_documents=2))
        ann = Raw(world, "ann")
        ann.write(1, put("d", [Link(id=str(number)) for number in range(3)]))
        (problem,) = ann.watch(D, id=5, follow=True)
        assert problem == Problem("limit", "links from space:d lead to more than 2 documents", False, 5)
        assert ann.peer.watched == {}
        assert any(isinstance(message, Watched) for message in ann.watch(D, id=6))

    def test_one_who_writes_too_many_links_stops_nobody(self) -> None:
        world = World("good", limits=Limits(follow_documents=2))
        (good,) = world.clients
        good.watch("d", "e")
        follower, evil = Raw(world, "follower"), Raw(world, "evil")
        follower.watch(D, follow=True)
        world.settle()
        evil.write(1, put("d", [Link(id=str(number)) for number in range(3)]))
        world.settle()
        assert good.shows("d") == world.value("d")
        told = good.write("e", replace((), 1))
        world.settle()
        assert told.landed

    @pytest.mark.parametrize("key", [DocKey("", ""), DocKey("space", ""), DocKey("moon", "x"), DocKey("space", "x" * 999)])
    def test_impossible_names_are_refused(self, key: DocKey) -> None:
        world = World()
        ann = Raw(world, "ann")
        (problem,) = ann.watch(key, id=9)
        assert isinstance(problem, Problem)
        assert (problem.id, problem.fatal) == (9, False)
        assert ann.peer.watched == {}


class TestAsking:
    def ask(self, peer: Raw, **options: object) -> FromEngine:
        (said,) = peer.say(Query(7, **{"scope": "space", **options}))  # type: ignore[arg-type]
        return said

    def test_one_document_now_and_then(self) -> None:
        world = World()
        ann = Raw(world, "ann")
        ann.write(1, put("d", 1))
        ann.write(2, put("d", 2))
        now, then, never = self.ask(ann, doc="d"), self.ask(ann, doc="d", at=1), self.ask(ann, doc="nope")
        assert isinstance(now, Answer)
        assert isinstance(then, Answer)
        assert isinstance(never, Answer)
        assert [answer.documents[0].get() for answer in (now, then)] == [2, 1]
        assert not never.documents[0].present
        assert (now.id, now.seq) == (7, 2)

    def test_a_scope_by_pages_up_to_the_limit(self) -> None:
        world = World(limits=Limits(query_documents=2))
        ann = Raw(world, "ann")
        for number, id in enumerate("abcde", 1):
            ann.write(number, put(id, number))
        found: list[str] = []
        after = ""
        while True:
            answer = self.ask(ann, after=after, limit=1_000)
            assert isinstance(answer, Answer)
            assert len(answer.documents) <= 2
            found += [state.doc.id for state in answer.documents]
            if answer.next is None:
                break
            after = answer.next
        assert found == list("abcde")

    def test_a_page_of_the_past_is_of_the_past_or_refused(self) -> None:
        world = World()
        ann = Raw(world, "ann")
        ann.write(1, put("d", 1))
        ann.write(2, put("d", 2))
        answer = self.ask(ann, at=1)
        if isinstance(answer, Answer):
            assert answer.documents[0].get() == 1
        else:
            assert isinstance(answer, Problem)
            assert (answer.id, answer.fatal) == (7, False)

    @pytest.mark.parametrize("at", [3, 2**53 - 1])
    def test_a_seq_that_does_not_exist_is_a_problem_of_that_query_only(self, at: int) -> None:
        world = World()
        ann = Raw(world, "ann")
        ann.write(1, put("d", 1))
        answer = self.ask(ann, doc="d", at=at)
        assert isinstance(answer, Problem)
        assert (answer.code, answer.fatal, answer.id) == ("absent", False, 7)
        assert ann.peer.state is PeerState.OPEN


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
            (Commit(1, (put("d", 1),), after=((1, 5),)),),
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
        "limits", [Limits(commit_reads=1), Limits(commit_operations=1), Limits(frame_commits=1)], ids=["reads", "ops", "frame"]
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
        said = peer.say(Transact((Commit(1, (put("d", 1),)), Commit(2, (put("e", 1),), reads), Commit(3, (put("f", 1),)))))
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


class TestAFailingStore:
    def test_no_verdict_leaves_and_everybody_concerned_starts_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World()
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        bob.watch(D)

        def fail(batch: object) -> None:
            raise StorageError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(type(world.engine), "submit_group", lambda self, batch: fail(batch))
            said = ann.write(1, put("d", 1))
        assert said == [Problem("storage", "the disk is gone")]
        assert ann.peer.state is PeerState.CLOSED
        assert bob.peer.state is PeerState.OPEN
        again = Raw(world)
        again.open("ann", ann.token)
        assert again.write(1, put("d", 1))[0] == Verdicts((Accepted(1, 1),))
        assert bob.heard[-1] == Sync(1, (Patched(D, 1, (replace((), 1),)),))

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


class TestAccess:
    def space(self) -> tuple[World, Raw]:
        """ann owns it, rob reads it."""
        world = World(access=True)
        ann = Raw(world, "ann-session", principal="ann")
        ann.write(1, put("d", 1))
        ann.write(2, Operation(ACCESS, (append(("readers",), ["rob"]),)))
        return world, ann

    def test_the_first_commit_creates_the_space_and_its_author_owns_it(self) -> None:
        world = World(access=True)
        ann = Raw(world, "s", principal="ann")
        ann.watch(ACCESS, D)
        ann.write(1, put("d", 1))
        assert world.value(ACCESS) == {"owners": ("ann",), "writers": (), "readers": ()}
        told = [c.doc for m in ann.only(Sync) if isinstance(m, Sync) for c in m.changes]
        assert told == [ACCESS, D]

    def test_a_stranger_cannot_even_open(self) -> None:
        world, _ = self.space()
        sam = Raw(world, principal="sam")
        sam.open("sam-session")
        (problem,) = sam.heard
        assert isinstance(problem, Problem)
        assert "'sam' may not read this space. Ask one of its owners." in problem.message
        assert sam.peer.state is PeerState.CLOSED

    def test_a_reader_watches_and_asks_but_does_not_write(self) -> None:
        world, ann = self.space()
        rob = Raw(world, "rob-session", principal="rob")
        assert any(isinstance(message, Watched) for message in rob.watch(D))
        ann.write(3, put("d", 2))
        assert isinstance(rob.heard[-1], Sync)
        verdicts = rob.write(1, put("d", 9))[0]
        assert isinstance(verdicts, Verdicts)
        assert isinstance(verdicts.verdicts[0], Rejected)
        assert world.value("d") == 2

    @pytest.mark.parametrize("scope", ["user:ann", "session:ann-session"])
    def test_what_belongs_to_somebody_else_is_neither_watched_nor_asked_for(self, scope: str) -> None:
        world, ann = self.space()
        secret = DocKey(scope, "secret")
        ann.write(3, Operation(secret, (replace((), "s"),)))
        assert any(isinstance(message, Watched) for message in ann.watch(secret))
        rob = Raw(world, "rob-session", principal="rob")
        for message in (Watch(1, (Selector(secret),)), Query(1, scope, "secret"), Query(1, scope)):
            (problem,) = rob.say(message)
            assert isinstance(problem, Problem)
            assert "is not for 'rob'" in problem.message
            assert (problem.id, problem.fatal) == (1, False)
        assert "s" not in [s.get() for m in rob.heard if isinstance(m, Watched | Answer) for s in m.documents]

    def test_following_a_link_does_not_lead_into_somebody_else_s_documents(self) -> None:
        world, ann = self.space()
        ann.write(3, Operation(DocKey("user:ann", "secret"), (replace((), "s"),)))
        ann.write(4, put("d", [Link(scope="user:ann", id="secret"), Link(id="e")]))
        rob = Raw(world, "rob-session", principal="rob")
        (watched,) = [m for m in rob.watch(D, follow=True) if isinstance(m, Watched)]
        assert [state.doc for state in watched.documents] == [D, E]

    @pytest.mark.parametrize("by", ["an-owner", "the-host"])
    def test_who_may_not_read_any_more_hears_nothing_more(self, by: str) -> None:
        world, ann = self.space()
        rob = Raw(world, "rob-session", principal="rob")
        rob.watch(D)
        out = Operation(ACCESS, (remove_value(("readers",), "rob"),))
        if by == "an-owner":
            ann.write(3, out)
        else:
            Writer(world.engine, "host").lands(out)
        ann.write(4, put("d", "private"))
        assert rob.peer.state is PeerState.CLOSED
        assert isinstance(rob.heard[-1], Problem)
        assert "private" not in str(rob.heard)
        assert [peer for peers in world.hub._watchers.values() for peer in peers] == []
        again = Raw(world, principal="rob")
        again.open("rob-session", rob.token)
        assert again.peer.state is PeerState.CLOSED

    def test_one_who_stays_is_not_disturbed_by_another_s_removal(self) -> None:
        world, ann = self.space()
        ann.write(3, Operation(ACCESS, (append(("readers",), ["zoe"]),)))
        rob, zoe = (Raw(world, f"{name}-session", principal=name) for name in ("rob", "zoe"))
        for peer in (rob, zoe):
            peer.watch(D)
        ann.write(4, Operation(ACCESS, (remove_value(("readers",), "rob"),)))
        ann.write(5, put("d", 5))
        assert zoe.peer.state is PeerState.OPEN
        last = zoe.heard[-1]
        assert isinstance(last, Sync)
        assert last.changes[0].doc == D

    def test_somebody_else_s_documents_cannot_be_probed(self) -> None:
        world, ann = self.space()
        ann.write(3, Operation(DocKey("user:ann", "there"), (replace((), 1),)))
        rob = Raw(world, "rob-session", principal="rob")
        answers = []
        for number, name in enumerate(("there", "not-there"), 1):
            said = rob.say(Transact((Commit(number, preconditions=(EntityAbsent(DocKey("user:ann", name)),)),)))
            answers.append(str(said[0]).replace(name, "NAME").replace(f"local_seq={number}", "local_seq=N"))
        assert answers[0] == answers[1]


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
    key = DocKey(random.choice(("space", "space", "user:eve", "moon", "")), random.choice(("d", "e", "f", "", "ü" * 300)))
    path = random.choice(((), ("n",), ("n", 0), ("x",) * 40, (2**53 - 1,)))
    match random.randrange(9):
        case 0 | 1:
            session = random.choice(("a", "b", "good", "", "merge of x", "s" * 500))
            return Open("x", session, random.choice(("", "t")), "t", random.choice((MAIN, "dev")), number, (number,), number)
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
                (replace((), {"n": 0}), increment(("n",)), add(("l",), Link(id=random.choice("def"))), append(path, [1]))
            )
            layers = random.choice(((), ((1, 1),), ((0, 5),), ((3, 2),)))
            reads = tuple(Read(key, path, Depth.DEEP, number % 5, layers) for _ in range(random.randrange(2)))
            made = Commit(number, (Operation(key, (patch,)),), reads, after=random.choice(((), ((1, 1),))))
            return Transact(tuple(made for _ in range(random.randrange(3))))


def test_a_new_hub_on_an_old_engine_knows_the_sessions_and_no_watches() -> None:
    world = World()
    old = Raw(world, "s")
    old.watch(D)
    old.write(1, put("d", 1))
    world.hub = Hub(world.engine, world.clock, world.limits)
    new = Raw(world)
    new.say(Open("x", "s", old.token, "t", seen=1, sent=(1,)))
    (opened,) = new.heard
    assert isinstance(opened, Opened)
    assert not opened.resumed
    assert opened.landed == ((1, 1),)
