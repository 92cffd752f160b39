"""Watching what links lead to: one cut, cycles, links that come and go, connections that break."""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.address import Link
from headwater.data.patch import add, increment, replace
from headwater.data.value import ABSENT
from headwater.engine.limits import Limits
from headwater.engine.sync.watch_table import linked
from headwater.protocol.messages import Sync, Watched
from headwater.replica.document import NOT_HERE
from tests.counts import scaled
from tests.unit.replica.kit import Client, Told, World, bump, doc, putting, reading, together

D = doc("d")
EXPIRY_US = Limits().session_kept_us


def pair(limits: Limits | None = None) -> tuple[World, Client, Client]:
    """A world with a reader and a writer, who watches d, e, r, k and has made the first two."""
    world = World("reader", "writer", limits=limits or Limits())
    reader, writer = world.clients
    writer.watch("d", "e", "r", "k")
    world.settle()
    writer.write("d", replace((), {"n": 0}))
    writer.write("e", replace((), {"n": 0}))
    world.settle()
    return world, reader, writer


def sync_of(client: Client) -> list[Sync]:
    return [message for message in client.received if isinstance(message, Sync)]


def linking(world: World, writer: Client) -> None:
    """r leads to k."""
    writer.write("k", replace((), 1))
    writer.write("r", replace((), {"to": Link(id="k")}))
    world.settle()


class TestFollowing:
    def test_what_links_lead_to_comes_in_the_same_cut(self) -> None:
        world, reader, writer = pair()
        linking(world, writer)
        reader.watch("r", follow=True)
        reader.send()
        reader.hear()
        assert reader.shows("k") == 1
        (watched,) = [message for message in reader.received if isinstance(message, Watched)]
        assert [state.doc.id for state in watched.documents] == ["r", "k"]
        writer.write("k", replace((), 2))
        world.settle()
        assert reader.shows("k") == 2

    def test_a_link_made_later_brings_its_target_in_the_sync_that_tells_it(self) -> None:
        world, reader, writer = pair()
        writer.write("k", replace((), 1))
        writer.write("r", replace((), {}))
        world.settle()
        reader.watch("r", follow=True)
        world.settle()
        assert not reader.replica.is_here(doc("k"))
        writer.write("r", add(("to",), Link(id="k")))
        writer.send()
        reader.hear(1)
        assert sync_of(reader)[-1].arrived[0].doc == doc("k")
        assert reader.shows("k") == 1
        assert reader.mirror.differences() == []
        world.settle()
        writer.write("k", replace((), 2))
        world.settle()
        assert reader.shows("k") == 2

    def test_a_target_that_appears_later_wakes_whoever_follows(self) -> None:
        world, reader, writer = pair()
        writer.write("r", replace((), {"to": Link(id="k")}))
        world.settle()
        reader.watch("r", follow=True)
        world.settle()
        assert reader.shows("k") is ABSENT
        writer.write("k", replace((), 1))
        world.settle()
        assert reader.shows("k") == 1

    def test_cycles_and_chains_end(self) -> None:
        world, reader, writer = pair()
        writer.write("r", replace((), [Link(id="k"), Link(id="r")]))
        writer.write("k", replace((), {"back": Link(id="r"), "on": Link(id="d")}))
        writer.write("d", replace((), [Link(id="e")]))
        writer.write("e", replace((), [Link(id="k")]))
        world.settle()
        reader.watch("r", follow=True)
        world.settle()
        assert {key.id for key in reader.replica.confirmed.docs()} == {"r", "k", "d", "e"}

    def test_unwatching_the_root_lets_what_it_brought_go_and_it_can_be_asked_for(self) -> None:
        """A lost watch means unknown, never clean."""
        world, reader, writer = pair()
        linking(world, writer)
        reader.watch("r", follow=True)
        world.settle()
        assert reader.session.unwatch(doc("r"))
        world.settle()
        writer.write("k", replace((), 2))
        world.settle()
        assert not reader.replica.is_here(doc("k"))
        reader.watch("k")
        world.settle()
        assert reader.shows("k") == 2

    def test_the_same_for_what_a_link_made_later_brought(self) -> None:
        world, reader, writer = pair()
        writer.write("k", replace((), 1))
        writer.write("r", replace((), {}))
        world.settle()
        reader.watch("r", follow=True)
        world.settle()
        writer.write("r", add(("to",), Link(id="k")))
        world.settle()
        assert reader.shows("k") == 1
        assert reader.session.unwatch(doc("r"))
        world.settle()
        writer.write("k", replace((), 2))
        world.settle()
        reader.watch("k")
        world.settle()
        assert reader.shows("k") == 2

    def test_unwatching_what_came_by_following_does_not_end_the_following(self) -> None:
        world, reader, writer = pair()
        linking(world, writer)
        reader.watch("r", follow=True)
        world.settle()
        reader.session.unwatch(doc("k"))
        world.settle()
        writer.write("r", add(("z",), 1))
        world.settle()
        assert reader.shows("r") == {"to": Link(id="k"), "z": 1}

    @pytest.mark.parametrize("absence_us", [1, EXPIRY_US + 1], ids=["resumed", "forgotten"])
    def test_letting_go_and_asking_for_what_came_by_following_keeps_the_root(self, absence_us: int) -> None:
        world, reader, writer = pair()
        linking(world, writer)
        reader.watch("r", follow=True)
        world.settle()
        reader.replica.let_go(doc("k"))
        reader.watch("k")
        world.settle()
        reader.down()
        world.later(absence_us)
        writer.write("r", add(("more",), Link(id="d")))
        world.settle()
        reader.up()
        world.settle()
        assert reader.shows("r") == world.value("r")
        assert reader.shows("k") == 1
        assert reader.shows("d") == {"n": 0}

    def test_a_watched_document_can_be_followed_later(self) -> None:
        world, reader, writer = pair()
        linking(world, writer)
        reader.watch("r")
        world.settle()
        reader.watch("r", follow=True)
        world.settle()
        assert reader.shows("k") == 1

    def test_a_target_whose_arrival_was_lost_arrives_after_resuming(self) -> None:
        world, reader, writer = pair()
        writer.write("k", replace((), 1))
        writer.write("r", replace((), {}))
        world.settle()
        reader.watch("r", follow=True)
        world.settle()
        writer.write("r", add(("to",), Link(id="k")))
        writer.send()
        reader.again()
        world.settle()
        assert reader.shows("r") == world.value("r")
        assert reader.shows("k") == 1

    @pytest.mark.parametrize("end", ["unwatch", "gap"])
    def test_asking_for_what_came_by_following_is_a_claim_of_its_own(self, end: str) -> None:
        """Whoever asked for a document keeps it, also when the links do not lead to it any more."""
        world, reader, writer = pair()
        linking(world, writer)
        reader.watch("r", follow=True)
        world.settle()
        reader.watch("k")
        world.settle()
        if end == "unwatch":
            assert reader.session.unwatch(doc("r"))
        else:
            reader.down()
            world.later(EXPIRY_US + 1)
            writer.write("r", replace(("to",), 0))
            world.settle()
            reader.up()
        world.settle()
        writer.write("k", replace((), 2))
        world.settle()
        assert reader.shows("k") == 2

    def test_what_links_no_longer_lead_to_is_let_go(self) -> None:
        """A list that shows one page after another watches one page, not all there ever were."""
        world, reader, writer = pair(Limits(watches=10))
        writer.write("r", replace((), []))
        world.settle()
        reader.watch("r", follow=True)
        for number in range(30):
            writer.write("r", replace((), [Link(id=f"p{number}")]))
            world.settle()
            assert reader.replica.is_here(doc(f"p{number}")), number
        assert reader.errors == []
        assert reader.peer is not None
        assert len(reader.peer.watched) <= 10
        assert len(reader.replica.confirmed) <= 10

    def test_what_does_not_come_back_after_a_gap_leaves_nothing_behind(self) -> None:
        world, reader, writer = pair()
        linking(world, writer)
        reader.watch("r", follow=True)
        world.settle()
        reader.down()
        world.later(EXPIRY_US + 1)
        writer.write("r", replace(("to",), 0))
        world.settle()
        reader.up()
        world.settle()
        assert not reader.replica.is_here(doc("k"))
        assert all(each.stale is NOT_HERE for each in reader.replica.documents.held())

    @pytest.mark.parametrize("how", ["claim-on-the-way", "commit-on-top", "told-in-a-lost-frame", "claim-lost"])
    def test_nothing_that_is_no_longer_watched_is_read_as_if_it_were_current(self, how: str) -> None:
        """C1: the seq goes on without it, so a value kept would be a stale value with a fresh basis."""
        world, reader, writer = pair()
        linking(world, writer)
        reader.watch("d", "e")
        reader.watch("r", follow=True)
        world.settle()
        if how.startswith("claim"):
            reader.watch("k")
        elif how == "commit-on-top":
            reader.do(together(reading("e"), putting("k", replace((), "mine"))))
        if how == "claim-lost":
            reader.session.unwatch(doc("r"))
            reader.down()
        else:
            writer.write("r", replace(("to",), 0))
            writer.send()
        if how == "told-in-a-lost-frame":
            reader.again()
            world.settle()
        writer.do(together(putting("k", replace((), 2)), putting("d", replace((), {"n": 9})), bump("e")))
        writer.send()
        if how == "claim-lost":
            reader.up()
        saw = Told()
        for _ in range(20):
            if reader.replica.is_here(doc("k")) and reader.replica.is_here(D) and reader.shows("d") == {"n": 9}:
                transaction = reader.replica.begin()
                transaction.write(doc("e"), add(("saw",), transaction.read(doc("k"))))
                reader.replica.commit(transaction, saw)
                break
            if not reader.hear(1):
                reader.send(1)
        world.settle()
        seen = [
            entry.commit.operations[0].patches[0].arg
            for entry in world.engine.changes().items
            if entry.commit.operations[0].patches[0].path == ("saw",)
        ]
        assert seen in ([], [2])
        assert reader.mirror.differences() == []
        if reader.replica.is_here(doc("k")):
            assert reader.shows("k") == world.value("k")

    def test_following_more_than_allowed_costs_only_that_watch(self) -> None:
        world, reader, writer = pair(Limits(follow_documents=2))
        reader.watch("r", follow=True)
        reader.watch("d")
        world.settle()
        writer.write("r", replace((), [Link(id=f"k{number}") for number in range(5)]))
        world.settle()
        writer.do(bump("d"))
        world.settle()
        assert reader.is_up
        assert reader.shows("d") == {"n": 1}
        assert reader.shows("r") == world.value("r")
        assert reader.errors or reader.failed_loads
        writer.write("d", add(("still",), True))
        world.settle()
        assert reader.shows("d") == {"n": 1, "still": True}

    @pytest.mark.random
    def test_following_ends_where_the_links_end_whatever_happens(self) -> None:
        for seed in range(scaled(300)):
            follow_at_random(seed)


def follow_at_random(seed: int) -> None:
    """A reader follows a root while links change and connections break; in the end it has all that is reachable."""
    random = Random(seed)
    names = [f"n{number}" for number in range(6)]
    world = World("reader", "writer", limits=Limits(sync_window=random.choice((1, 8))))
    reader, writer = world.clients
    writer.watch(*names)
    world.settle()
    for name in names:
        writer.write(name, replace((), {"v": 0}))
    reader.watch("n0", follow=True)
    for _ in range(40):
        name = random.choice(names)
        match random.randrange(8):
            case 0 | 1 | 2:
                writer.write(name, add((random.choice("ab"),), Link(id=random.choice(names))))
            case 3:
                writer.write(name, increment(("v",)))
            case 4:
                writer.send(1)
            case 5:
                random.choice((reader.send, reader.hear))(1)
            case 6:
                reader.again()
            case 7 if reader.replica.is_here(doc(name)) and name != "n0":
                reader.replica.let_go(doc(name))
                reader.mirror.values.pop(doc(name), None)
                reader.session.watch([doc(name)])
    world.settle()
    reachable = [doc("n0"), *linked(doc("n0"), world.value, Limits())]
    for key in reachable:
        assert reader.replica.is_here(key), (seed, key)
    for key in reader.replica.confirmed.docs():
        assert reader.shows(key) == world.value(key), (seed, key)
    assert reader.mirror.differences() == [], seed
    assert not reader.session.is_loading(), seed
