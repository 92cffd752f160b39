"""Which documents are here: asking, arriving, letting go, and failing loudly."""

from __future__ import annotations

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import increment, remove, replace
from headwater.data.value import ABSENT
from headwater.engine.limits import Limits
from headwater.errors import LoadError
from headwater.protocol.messages import Own, Patched, Sync, Unwatch, Watch, Whole
from headwater.replica.confirmed import NotHere
from headwater.replica.feed import Kind
from tests.unit.replica.kit import Client, World, bump, doc, putting, together

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


class TestAsking:
    def test_a_document_arrives_with_its_value_and_then_its_changes(self) -> None:
        world, reader, writer = pair()
        reader.watch("d")
        assert not reader.replica.is_here(D)
        with pytest.raises(NotHere):
            reader.replica.begin().read(D)
        world.settle()
        assert reader.shows("d") == {"n": 0}
        writer.do(bump("d"))
        world.settle()
        assert reader.shows("d") == {"n": 1}
        assert reader.kinds() == [Kind.PULL, Kind.INTEGRATE]

    def test_an_absent_document_counts_as_loaded_and_wakes_its_readers_when_it_appears(self) -> None:
        world, reader, writer = pair()
        reader.watch("k")
        world.settle()
        assert reader.replica.is_here(doc("k"))
        assert reader.shows("k") is ABSENT
        assert not reader.session.is_loading()
        writer.write("k", replace((), 1))
        world.settle()
        assert reader.shows("k") == 1
        writer.write("k", remove(()))
        world.settle()
        assert reader.shows("k") is ABSENT

    def test_asking_twice_asks_once(self) -> None:
        world, reader, _ = pair()
        reader.watch("d")
        reader.watch("d", "d")
        world.settle()
        reader.watch("d")
        world.settle()
        assert len([message for message in reader.sent if isinstance(message, Watch)]) == 1

    def test_loads_have_generations_that_rise_when_one_begins_and_when_one_ends(self) -> None:
        world, reader, _ = pair()
        seen = [reader.session.generation]
        reader.watch("d")
        seen.append(reader.session.generation)
        world.settle()
        seen.append(reader.session.generation)
        reader.watch("d")  # here already: nothing begins
        assert seen == sorted(set(seen))
        assert reader.session.generation == seen[-1]

    def test_every_document_here_is_of_the_same_moment(self) -> None:
        world, reader, writer = pair()
        reader.watch("d")
        world.settle()
        for _ in range(3):
            writer.do(together(putting("d", increment(("n",))), putting("e", increment(("n",)))))
        writer.send()
        reader.watch("e")
        reader.send()
        while reader.waiting():
            reader.hear(1)
            if reader.replica.is_here(doc("e")):
                assert reader.shows("d") == reader.shows("e")
        assert reader.replica.confirmed.seq == world.engine.last_seq

    @pytest.mark.parametrize("lost", ["asked-while-down", "question", "answer"])
    @pytest.mark.parametrize("absence_us", [1, EXPIRY_US + 1], ids=["resumed", "forgotten"])
    def test_a_load_survives_a_lost_connection(self, lost: str, absence_us: int) -> None:
        world, reader, _ = pair()
        if lost == "asked-while-down":
            reader.down()
        reader.watch("d")
        if lost == "answer":
            reader.send()
        if lost != "asked-while-down":
            reader.down()
        world.later(absence_us)
        reader.up()
        world.settle()
        assert reader.shows("d") == {"n": 0}
        assert not reader.session.is_loading()


class TestFailing:
    def test_a_failed_load_is_heard_and_asking_again_asks_again(self) -> None:
        world, reader, writer = pair(Limits(watches=4))
        reader.watch("d", "e", "r", "k")
        world.settle()
        reader.watch("one-too-many")
        generation = reader.session.generation
        world.settle()
        ((docs, error),) = reader.failed_loads
        assert docs == (doc("one-too-many"),)
        assert "at most 4 documents" in str(error)
        assert reader.session.generation > generation
        assert not reader.session.is_loading()
        assert reader.is_up
        assert reader.session.unwatch(doc("k"))
        reader.watch("one-too-many")
        world.settle()
        assert reader.replica.is_here(doc("one-too-many"))
        writer.do(bump("d"))
        world.settle()
        assert reader.shows("d") == {"n": 1}

    def test_a_failed_load_that_nobody_listens_for_raises(self) -> None:
        world, reader, _ = pair(Limits(watches=4))
        reader.watch("1", "2", "3", "4")
        world.settle()
        del reader.session.on_load_failed
        reader.session.on_load_failed = lambda docs, error: (_ for _ in ()).throw(error)
        reader.watch("5")
        with pytest.raises(LoadError, match="at most 4 documents"):
            world.settle()

    def test_a_name_that_no_document_can_have_fails_its_load(self) -> None:
        world, reader, _ = pair()
        reader.watch(DocKey("nonsense", "x"), "d")
        world.settle()
        assert [docs for docs, _ in reader.failed_loads] == [(DocKey("nonsense", "x"),)]
        assert reader.shows("d") == {"n": 0}


class TestLettingGo:
    def test_a_value_nobody_needs_is_dropped_and_its_changes_are_still_heard(self) -> None:
        world, reader, writer = pair()
        reader.watch("d")
        world.settle()
        assert reader.replica.let_go(D)
        assert not reader.replica.is_here(D)
        reader.heard.clear()
        writer.do(bump("d"))
        world.settle()
        (told,) = reader.heard
        assert told.changes[0].doc == D
        assert not told.changes[0].known_before

    def test_asking_for_it_again_brings_it_back(self) -> None:
        world, reader, writer = pair()
        reader.watch("d")
        world.settle()
        reader.replica.let_go(D)
        writer.do(bump("d"))
        world.settle()
        reader.watch("d")
        world.settle()
        assert reader.shows("d") == {"n": 1}
        writer.do(bump("d"))
        world.settle()
        assert reader.shows("d") == {"n": 2}

    def test_what_a_pending_commit_is_on_top_of_stays(self) -> None:
        world, _, writer = pair()
        told = writer.do(bump("d"))
        assert not writer.replica.let_go(D)
        assert not writer.session.unwatch(D)
        assert writer.shows("d") == {"n": 1}
        writer.send()
        writer.hear(1)  # accepted, not covered yet
        assert not writer.replica.let_go(D)
        world.settle()
        assert told.landed
        assert writer.replica.let_go(D)

    def test_a_transaction_begun_before_still_has_its_snapshot(self) -> None:
        _, _, writer = pair()
        transaction = writer.replica.begin()
        assert writer.replica.let_go(D)
        assert transaction.read(D, ("n",)) == 0

    def test_an_own_commit_on_a_document_let_go_meanwhile_lands_and_shows_nothing(self) -> None:
        world, _, writer = pair()
        transaction = writer.replica.begin()
        transaction.write(D, replace((), {"n": 5}))
        assert writer.replica.let_go(D)
        writer.mirror.values.pop(D)
        writer.replica.commit(transaction)
        assert not writer.replica.is_here(D)
        world.settle()
        writer.watch("d")
        world.settle()
        assert writer.shows("d") == world.value("d")
        assert writer.mirror.differences() == []

    def test_a_long_scroll_holds_memory_flat(self) -> None:
        world, reader, _ = pair()
        sizes = []
        for page in range(20):
            names = [f"p{page}-{place}" for place in range(10)]
            reader.watch(*names)
            world.settle()
            if page:
                for place in range(10):
                    assert reader.session.unwatch(doc(f"p{page - 1}-{place}"))
            world.settle()
            assert reader.peer is not None
            sizes.append((len(reader.replica.confirmed), len(reader.peer.watched), len(reader.replica.snapshot())))
        assert sizes[1:] == [sizes[1]] * 19


class TestUnwatching:
    def test_nothing_is_heard_of_what_nobody_watches(self) -> None:
        world, reader, writer = pair()
        reader.watch("d", "e")
        world.settle()
        assert reader.session.unwatch(D)
        world.settle()
        reader.heard.clear()
        writer.do(bump("d"))
        writer.do(bump("e"))
        world.settle()
        assert [change.doc.id for n in reader.heard for change in n.changes] == ["e"]

    def test_an_answer_that_comes_too_late_is_left_lying(self) -> None:
        world, reader, _ = pair()
        reader.watch("d")
        reader.send()
        assert reader.session.unwatch(D)
        world.settle()
        assert not reader.replica.is_here(D)
        assert not reader.session.is_loading()

    def test_watching_again_before_the_unwatch_arrived_works(self) -> None:
        world, reader, writer = pair()
        reader.watch("d")
        world.settle()
        reader.session.unwatch(D)
        reader.watch("d")
        world.settle()
        writer.do(bump("d"))
        world.settle()
        assert reader.shows("d") == {"n": 1}

    @pytest.mark.parametrize("when", ["down", "on-the-wire"])
    def test_an_unwatch_survives_a_lost_connection(self, when: str) -> None:
        """Otherwise the engine watches for nobody, until its limit is reached."""
        world, reader, writer = pair()
        reader.watch("d", "e")
        world.settle()
        if when == "down":
            reader.down()
        reader.session.unwatch(D)
        if when == "on-the-wire":
            reader.down()
        reader.up()
        world.settle()
        assert reader.peer is not None
        assert list(reader.peer.watched) == [doc("e")]
        reader.heard.clear()
        writer.do(bump("d"))
        world.settle()
        assert reader.heard == []

    def test_an_unwatch_of_the_last_connection_does_not_undo_a_later_watch(self) -> None:
        world, reader, writer = pair()
        reader.watch("d")
        world.settle()
        reader.session.unwatch(D)
        reader.watch("d")
        reader.again()
        world.settle()
        reader.again()
        world.settle()
        writer.do(bump("d"))
        world.settle()
        assert reader.shows("d") == {"n": 1}


class TestHowChangesAreTold:
    def test_own_commits_come_back_as_own_and_foreign_ones_as_patches(self) -> None:
        world, reader, writer = pair()
        reader.watch("d")
        world.settle()
        writer.do(putting("d", replace(("n",), 7)))
        world.settle()
        assert [type(change) for change in sync_of(writer)[-1].changes] == [Own]
        assert sync_of(reader)[-1].changes == (Patched(D, world.engine.last_seq, (replace(("n",), 7),)),)

    def test_many_changes_of_one_document_are_told_as_a_whole(self) -> None:
        world, reader, writer = pair(Limits(sync_patches=2, sync_window=1))
        reader.watch("d")
        world.settle()
        for _ in range(10):
            writer.do(bump("d"))
            writer.send()
        world.settle()
        assert reader.shows("d") == {"n": 10}
        assert any(isinstance(change, Whole) for sync in sync_of(reader) for change in sync.changes)
        assert reader.mirror.differences() == []

    def test_an_own_commit_among_merged_changes_is_counted_once(self) -> None:
        world, reader, writer = pair(Limits(sync_patches=1, sync_window=1))
        reader.watch("d")
        world.settle()
        tolds = []
        for _ in range(5):
            writer.write("d", increment(("n",)))
            writer.send()
            tolds.append(reader.write("d", increment(("n",), 100)))
            reader.send()
        world.settle()
        assert all(told.landed for told in tolds)
        assert reader.shows("d") == writer.shows("d") == {"n": 505}
        assert reader.mirror.differences() == []

    def test_a_commit_to_what_nobody_else_watches_still_moves_its_author_on(self) -> None:
        world, _, writer = pair()
        writer.session.unwatch(doc("e"))
        world.settle()
        writer.write("d", increment(("n",)))
        world.settle()
        assert writer.replica.confirmed.seq == world.engine.last_seq
        assert len(writer.replica.pending) == 0

    def test_unwatch_is_told_by_its_number(self) -> None:
        world, reader, _ = pair()
        reader.watch("d")
        world.settle()
        (watch,) = [message for message in reader.sent if isinstance(message, Watch)]
        reader.session.unwatch(D)
        assert reader.session.outgoing[-1] == Unwatch(watch.id)
