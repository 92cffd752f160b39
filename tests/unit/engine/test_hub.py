"""The engine's side of all conversations: order, fan-out, takeover, and peers that are slow or gone."""

from __future__ import annotations

import pytest

from headwater.data.patch import append, replace
from headwater.engine.limits import Limits
from headwater.engine.log.sessions import token_digest
from headwater.engine.sync.hub import Hub
from headwater.engine.sync.peer import PeerState
from headwater.protocol.commit import Commit
from headwater.protocol.hop_counts import AUTHORED
from headwater.protocol.messages import (
    Ack,
    Bye,
    Open,
    Opened,
    Own,
    Patched,
    Problem,
    Selector,
    Sync,
    Transact,
    Verdicts,
    Watch,
    Watched,
    Whole,
)
from headwater.protocol.verdict import Accepted
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.kit import Writer, doc, write
from tests.unit.replica.kit import World, bump

D, E = doc("d"), doc("e")


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
        assert sync == Sync(1, (Own(D, 1, 1),), chain=world.engine.chain_at(1))

    def test_everybody_else_hears_the_patches(self) -> None:
        world = World()
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        bob.watch(D)
        ann.write(1, put("d", 1))
        assert bob.heard[-1] == Sync(1, (Patched(D, 1, (replace((), 1),)),), chain=world.engine.chain_at(1))

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
        assert second.heard[1:] == [Sync(1, (Whole(D, 1, True, 1),), chain=world.engine.chain_at(1))]
        other.write(2, put("e", 1))
        assert second.heard[-1] == Sync(2, (Patched(E, 2, (replace((), 1),)),), chain=world.engine.chain_at(2))

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
        Raw(world, "t").write(1, put("other", 1))
        second = Raw(world)
        second.open("s", first.token, seen=1)
        opened = second.heard[0]
        assert isinstance(opened, Opened)
        assert not opened.resumed

    @pytest.mark.parametrize("token", ["its own", "any"])
    def test_a_replica_that_has_seen_more_than_the_log_holds_is_told_that_its_session_is_gone(self, token: str) -> None:
        """A space that was restored from a backup, or begun anew, is not the one that it showed."""
        world = World()
        first = Raw(world, "s")
        second = Raw(world)
        second.open("s", first.token if token == "its own" else "another", seen=3)
        (problem,) = second.heard
        assert isinstance(problem, Problem)
        assert (problem.code, problem.fatal) == ("session_gone", False)
        assert problem.message == "it has seen seq 3, but the log ends at 0: this is not the space it knew"
        assert world.engine.session("s").row.resume == token_digest(first.token)

    def test_a_session_is_asked_for_twice_on_one_connection_and_not_a_third_time(self) -> None:
        """Once with the token that was answered last, once with the one without an answer; not with guesses."""
        world = World()
        Raw(world, "s")
        thief = Raw(world)
        for guess in ("one", "two", "three"):
            thief.open("s", guess)
        assert [(problem.code, problem.fatal) for problem in thief.heard if isinstance(problem, Problem)] == [
            ("stale_token", False),
            ("stale_token", False),
            ("protocol", True),
        ]
        assert thief.peer.state is PeerState.CLOSED

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
        assert world.hub.watched == 0

    def test_watches_are_kept_for_a_while_and_then_let_go(self) -> None:
        world = World()
        peer = Raw(world, "s")
        peer.watch(D)
        world.hub.lost(peer.peer)
        world.later(world.limits.session_kept_us - 1)
        assert world.hub.watched == 1
        world.later(1)
        assert world.hub.watched == 0
        again = Raw(world)
        again.open("s", peer.token)
        (opened,) = again.heard
        assert isinstance(opened, Opened)
        assert not opened.resumed

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
        assert world.hub.watched == 0
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
        assert said == [Sync(50, (Whole(D, 50, True, 49, AUTHORED),), chain=world.engine.chain_at(50))]

    def test_its_memory_is_bounded_by_what_it_watches(self) -> None:
        world = World(limits=Limits(sync_window=1, sync_patches=2))
        writer, slow = Raw(world, "writer"), Raw(world, "slow")
        slow.watch(D, E)
        for number in range(300):
            writer.write(number + 1, put("d", number), put("e", number))
        assert slow.peer.held <= 2 * 2
        assert len(slow.heard) < 6

    def test_a_lost_connection_costs_no_more_than_a_slow_one(self) -> None:
        world = World(limits=Limits(sync_patches=2))
        writer, lost = Raw(world, "writer"), Raw(world, "lost")
        lost.watch(D)
        world.hub.lost(lost.peer)
        heard = len(lost.heard)
        for number in range(300):
            writer.write(number + 1, put("d", number))
        assert lost.peer.held <= 2
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
