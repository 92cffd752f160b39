"""Results of nodes: shown at once, replaced while they wait, sent in waves, judged one by one."""

from __future__ import annotations

import pytest

from headwater.data.address import Depth, DocKey
from headwater.data.patch import replace
from headwater.data.value import ABSENT
from headwater.engine.limits import Limits
from headwater.protocol.commit import Read
from headwater.protocol.messages import Sync, Transact, Verdicts, encode
from headwater.protocol.verdict import Accepted, Conflict, Rejected, RuleRefused
from headwater.replica import Kind
from headwater.replica import replica as replica_module
from headwater.replica.detached import Detached
from headwater.replica.document import EntryState
from headwater.replica.limits import ReplicaLimits
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from tests.unit.replica.kit import Client, World, doc
from tests.unit.replica.results_kit import (
    Calls,
    Node,
    all_frames,
    attach,
    flushed,
    frames,
    logged,
    put,
    reads_of,
    sent_results,
    settled,
    spot_of,
    started,
    take_back_a_write,
)

ACCESS = doc("$access")
REFUSAL = RuleRefused("size", "the value is too large")


def answered(client: Client, *verdicts: Accepted | Rejected) -> None:
    """Have a client receive verdicts that a test makes."""
    client.session.receive(Verdicts(verdicts))


class TestShowing:
    def test_result_is_shown_and_notified_at_once(self) -> None:
        _, (ann,) = started("ann")
        node = Node(ann, "a", "x")
        node.show(2)
        assert ann.shows("a") == 2
        (told,) = ann.heard[-1:]
        assert (told.kind, told.source) == (Kind.COMMIT, node)
        assert [(change.document.key, change.before, change.after) for change in told.changes] == [
            (doc("a"), ABSENT, 2)
        ]
        assert ann.mirror.differences() == []

    def test_no_layer_and_no_number_exist_for_a_result_before_it_is_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world, (ann,) = started("ann")
        replica = ann.replica
        number = replica.next_local_seq

        def no_layer(*_: object, **__: object) -> Layer:
            raise AssertionError("a result became a layer")

        monkeypatch.setattr(replica_module, "Layer", no_layer)
        node, reader = Node(ann, "a", "x"), Node(ann, "b", "a")
        for value in range(2, 50):
            node.show(value)
            reader.show(value * 10)
            assert (replica.next_local_seq, len(replica.pending), replica.layers()) == (number, 0, ())
        assert frames(ann) == []
        assert [[commit.local_seq for commit in frame] for frame in flushed(ann)] == [[number]]
        assert (replica.next_local_seq, len(replica.pending), replica.layers()) == (number + 1, 0, ())
        world.settle()
        assert (world.value("a"), world.value("b"), len(replica.pending)) == (49, 490, 0)

    def test_results_are_not_bounded_by_the_limit_of_pending_commits(self) -> None:
        _, (ann,) = started("ann")
        ann.replica.limits = ReplicaLimits(pending=1)
        Node(ann, "a", "x").show(2)
        Node(ann, "b", "x").show(3)
        ann.replica.check_room()
        assert ann.shows("b") == 3

    def test_result_that_equals_the_shown_value_makes_no_entry(self) -> None:
        world, (ann,) = started("ann")
        node = Node(ann, "a", "x")
        node.show(2)
        settled(world)
        heard = len(ann.heard)
        assert node.show(2) is None
        assert (ann.heard[heard:], flushed(ann), bool(ann.replica.tier)) == ([], [], False)

    def test_same_result_by_other_reads_is_sent_with_these(self) -> None:
        _, (ann,) = started("ann")
        node = Node(ann, "a", "x")
        node.show(2)
        assert node.show(2, spots=[spot_of(ann, "y")]) is None
        (((commit),),) = flushed(ann)
        assert reads_of(commit) == ["y"]

    def test_document_with_a_result_is_not_let_go(self) -> None:
        world, (ann,) = started("ann")
        Node(ann, "a", "x").show(2)
        assert not ann.replica.let_go(doc("a"))
        settled(world)
        assert ann.replica.let_go(doc("a"))

    def test_detached_session_confirms_both_documents_of_a_result(self) -> None:
        replica = Replica()
        session = Detached(replica)
        session.watch([doc("a"), doc("b")])
        first, second = replica.documents.of(doc("a")), replica.documents.of(doc("b"))
        replica.show_result(first, 1, (), None, "n", beside=(second, 2))
        session.flush()
        assert (first.confirmed, second.confirmed) == (1, 2)
        assert first.entry is second.entry is None
        assert session.is_durable()


class TestReplacing:
    def test_newer_result_replaces_one_that_was_not_sent(self) -> None:
        world, (ann,) = started("ann")
        node = Node(ann, "a", "x")
        x, y = spot_of(ann, "x"), spot_of(ann, "y")
        node.show(2, causes=[x], hops=5)
        node.show(3, causes=[y], hops=1)
        settled(world)
        (commit,) = logged(world)
        assert world.value("a") == 3
        assert set(commit.provenance.causes) == {(doc("x"), ()), (doc("y"), ())}
        assert commit.provenance.hops == 5
        assert (commit.provenance.node, commit.provenance.fingerprint) == ("a-node", "code")

    def test_newer_result_waits_while_one_is_on_the_wire(self) -> None:
        world, (ann,) = started("ann")
        node = Node(ann, "a", "x")
        node.show(2)
        assert len(flushed(ann)) == 1
        node.show(3)
        assert flushed(ann) == []
        assert ann.shows("a") == 3
        ann.send()
        while ann.hear(1):
            assert ann.shows("a") == 3
        assert len(flushed(ann)) == 1
        world.settle()
        assert ([each.operations[0].patches[0].arg for each in logged(world)], world.value("a")) == ([2, 3], 3)
        assert not ann.replica.tier

    def test_no_wave_is_sent_before_an_accepted_one_is_confirmed(self) -> None:
        _, (ann,) = started("ann")
        node, other = Node(ann, "a", "x"), Node(ann, "b", "x")
        node.show(2)
        ann.session.flush()
        ann.send()
        assert isinstance(ann.waiting()[0], Verdicts)
        ann.hear(1)
        other.show(5)
        node.show(1)
        assert flushed(ann) == []
        ann.hear()
        assert {part.provenance.node for part in sent_results(ann)} == {"a-node", "b-node"}

    def test_result_equal_to_a_value_that_an_older_one_on_the_wire_replaces_is_sent(self) -> None:
        """Otherwise the older result would stay in the log."""
        world, (ann,) = started("ann")
        node = Node(ann, "a", "x")
        node.show(2)
        settled(world)
        node.show(3)
        ann.session.flush()
        node.show(2)
        settled(world)
        assert (world.value("a"), ann.shows("a"), bool(ann.replica.tier)) == (2, 2, False)

    @pytest.mark.parametrize("rejection", [REFUSAL, Conflict()], ids=["refused", "superseded"])
    def test_rejection_of_an_older_result_spares_the_newer_one(self, rejection: RuleRefused | Conflict) -> None:
        world, (ann,) = started("ann")
        calls = Calls(ann)
        node = Node(ann, "a", "x")
        node.show(2, causes=[spot_of(ann, "x")], hops=7)
        ((sent,),) = flushed(ann)
        ann.next_out()
        newer = node.show(3, causes=[spot_of(ann, "y")])
        answered(ann, Rejected(sent.local_seq, rejection))
        assert ann.shows("a") == 3
        assert newer is not None
        assert newer.document.entry is newer
        assert [newest for _, _, _, newest in calls.refused] == ([False] if rejection is REFUSAL else [])
        settled(world)
        (commit,) = logged(world)
        assert world.value("a") == 3
        is_superseded = rejection is not REFUSAL
        assert ((doc("x"), ()) in commit.provenance.causes) == is_superseded
        assert commit.provenance.hops == (7 if is_superseded else 0)


class TestVerdicts:
    def test_accepted_result_is_shown_until_confirmed_state_covers_it(self) -> None:
        _, (ann,) = started("ann")
        Node(ann, "a", "x").show(2)
        ann.session.flush()
        ann.send()
        assert [type(message) for message in ann.waiting()] == [Verdicts, Sync]
        assert not ann.replica.is_durable()
        ann.hear(1)
        document = ann.replica.documents.of(doc("a"))
        assert (document.confirmed, document.value, ann.replica.is_durable()) == (ABSENT, 2, True)
        assert not ann.replica.is_confirmed()
        heard = len(ann.heard)
        ann.hear()
        assert (document.confirmed, document.value, document.entry) == (2, 2, None)
        assert ann.replica.is_confirmed()
        assert ann.heard[heard:] == []

    def test_superseded_result_is_sent_again_without_a_run_when_the_winner_is_confirmed(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        put(bob, "x", 5)
        bob.send()
        entry = Node(ann, "a", "x").show(2)
        assert entry is not None
        heard = len(ann.heard)
        ann.session.flush()
        ann.send()
        assert [type(message) for message in ann.waiting()] == [Sync, Verdicts, Sync]
        ann.inbox.rotate(-1)  # The Sync of the winner comes last, as if it had been sent later.
        ann.hear(1)
        assert ann.replica.documents.of(doc("a")).entry is entry
        assert (ann.shows("a"), entry.state, ann.heard[heard:]) == (2, EntryState.DUE, [])
        assert not ann.replica.is_durable()
        assert flushed(ann) == []
        world.settle()
        ((commit,),) = flushed(ann)
        assert commit.reads[0].seq == ann.replica.confirmed.seq
        world.settle()
        assert (world.value("a"), ann.replica.tier.superseded_count) == (2, 1)
        assert not ann.replica.tier

    def test_superseded_result_of_an_invalid_node_waits_for_its_run(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        put(bob, "x", 5)
        bob.send()
        node = Node(ann, "a", "x")
        node.show(2, causes=[spot_of(ann, "y")])
        ann.session.flush()
        world.settle()
        node.is_current = False
        assert flushed(ann) == []
        assert ann.shows("a") == 2
        node.is_current = True
        node.show(6, causes=[spot_of(ann, "x")])
        settled(world)
        (commit,) = logged(world)
        assert world.value("a") == 6
        assert set(commit.provenance.causes) == {(doc("x"), ()), (doc("y"), ())}

    def test_refused_result_fails_its_node_and_confirmed_state_is_shown(self) -> None:
        world, (ann,) = started("ann")
        calls = Calls(ann)
        node = Node(ann, "a", "x")
        node.show(1)
        settled(world)
        node.show(2)
        ((sent,),) = flushed(ann)
        ann.next_out()
        answered(ann, Rejected(sent.local_seq, REFUSAL))
        assert calls.refused == [("a", sent.local_seq, REFUSAL, True)]
        assert (ann.shows("a"), ann.heard[-1].kind, bool(ann.replica.tier)) == (1, Kind.REVERT, False)
        assert ann.mirror.differences() == []
        assert flushed(ann) == []

    def test_result_equal_to_confirmed_state_is_not_sent(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        node = Node(ann, "a", "x")
        put(bob, "a", 2)
        node.show(2)
        world.settle()
        heard = len(ann.heard)
        assert flushed(ann) == []
        assert not ann.replica.tier
        assert ann.heard[heard:] == []
        assert ann.replica.is_durable()

    def test_accepted_result_that_a_resumed_session_hears_of_is_not_sent_again(self) -> None:
        world, (ann,) = started("ann")
        Node(ann, "a", "x").show(2)
        ann.session.flush()
        ann.send()
        ann.again()
        settled(world)
        assert (len(logged(world)), world.value("a"), bool(ann.replica.tier)) == (1, 2, False)


class TestWaves:
    def test_results_of_a_reader_and_its_input_travel_in_one_wave(self) -> None:
        world, (ann,) = started("ann")
        input_node, reader = Node(ann, "a", "x"), Node(ann, "b", "a", "y")
        input_node.show(1)
        reader.show(2)
        input_node.show(3)  # The input is the newer one: it still comes first.
        first, second = sent_results(ann)
        assert (first.provenance.node, second.provenance.node) == ("a-node", "b-node")
        assert (first.after, second.after) == ((), (0,))
        assert reads_of(second) == ["y"], "the wave says what it read of the other result"
        world.settle()
        assert (world.value("a"), world.value("b")) == (3, 2)

    def test_results_that_read_one_place_name_one_read(self) -> None:
        _, (ann,) = started("ann")
        spot = spot_of(ann, "x")
        for id in "abc":
            Node(ann, id).show(2, spots=[spot], causes=[spot])
        ((wave,),) = flushed(ann)
        assert (reads_of(wave), [result.reads for result in wave.results]) == (["x"], [(0,)] * 3)

    def test_results_of_a_wave_have_one_seq_and_are_one_row(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        before = world.engine.last_seq
        Node(ann, "a", "x").show(2)
        Node(ann, "b", "a").show(3)
        settled(world)
        assert world.engine.last_seq == before + 1
        assert [world.engine.read(doc(id)).seq for id in "ab"] == [before + 1] * 2
        assert (bob.shows("a"), bob.shows("b")) == (2, 3)

    def test_wave_lands_without_the_results_that_others_won_against(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        put(bob, "x", 5)
        bob.send()
        for id, read in (("a", "x"), ("b", "a"), ("c", "y"), ("d", "c")):
            Node(ann, id, read).show(2, causes=[spot_of(ann, read)])
        ann.session.flush()
        ann.send()
        assert [world.value(id) for id in "abcd"] == [ABSENT, ABSENT, 2, 2]
        assert [part.provenance.node for part in logged(world)] == ["c-node", "d-node"]
        ann.hear()
        assert [ann.shows(id) for id in "abcd"] == [2, 2, 2, 2]
        assert [part.provenance.node for part in sent_results(ann)] == ["a-node", "b-node"]
        world.settle()
        assert [world.value(id) for id in "abcd"] == [2, 2, 2, 2]
        assert ann.replica.tier.superseded_count == 2
        assert not ann.replica.tier

    def test_wave_lands_without_a_refused_result_and_its_readers(self) -> None:
        world, (ann,) = started("ann", limits=Limits(document_bytes=1_000))
        calls = Calls(ann)
        Node(ann, "a", "x").show("long" * 1_000)
        Node(ann, "b", "a").show(3)
        Node(ann, "c", "x").show(4)
        ann.session.flush()
        world.settle()
        assert [world.value(id) for id in "abc"] == [ABSENT, ABSENT, 4]
        ((id, _, rejection, newest),) = calls.refused
        assert isinstance(rejection, RuleRefused)
        assert (id, rejection.rule, newest) == ("a", "document_bytes", True)
        assert (ann.shows("a"), ann.shows("b"), ann.shows("c")) == (ABSENT, 3, 4)
        assert ann.mirror.differences() == []

    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_resumed_session_hears_which_results_landed(self, is_restarted: bool) -> None:
        world, (ann, bob) = started("ann", "bob")
        put(bob, "x", 5)
        bob.send()
        node, other = Node(ann, "a", "x"), Node(ann, "b", "y")
        node.show(2)
        other.show(3)
        ann.session.flush()
        ann.send()
        assert (world.value("a"), world.value("b")) == (ABSENT, 3)
        if is_restarted:
            world.engine.session("ann").landed.clear()  # As after a restart, only the log has them.
        ann.again()
        settled(world)
        assert (world.value("a"), world.value("b")) == (2, 3)
        assert [part.provenance.node for part in logged(world)] == ["b-node", "a-node"]
        assert not ann.replica.tier

    def test_reader_falls_with_the_input_of_its_wave(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        put(bob, "x", 5)
        bob.send()
        Node(ann, "a", "x").show(2)
        Node(ann, "b", "a").show(3)
        ann.session.flush()
        world.settle()
        assert (world.value("a"), world.value("b"), logged(world)) == (ABSENT, ABSENT, [])
        settled(world)
        assert (world.value("a"), world.value("b")) == (2, 3)

    def test_read_of_an_authors_layer_is_named(self) -> None:
        world, (ann,) = started("ann")
        put(ann, "x", 7)
        (layer,) = ann.replica.layers()
        Node(ann, "a", "x").show(8)
        ann.session.flush()
        ((written, commit),) = [each.commits for each in ann.session.outgoing if isinstance(each, Transact)]
        assert written.local_seq == layer.local_seq
        assert commit.reads == (Read(doc("x"), (), Depth.DEEP, ann.replica.confirmed.seq, ((layer.local_seq,) * 2,)),)
        world.settle()
        assert world.value("a") == 8

    @pytest.mark.parametrize(
        "limits", [ReplicaLimits(wave_results=1), ReplicaLimits(wave_bytes=300)], ids=["results", "bytes"]
    )
    def test_results_over_the_limits_of_a_wave_are_sent_with_the_next_one(self, limits: ReplicaLimits) -> None:
        world, (ann,) = started("ann")
        ann.replica.limits = limits
        reader, node = Node(ann, "b", "a"), Node(ann, "a", "x")
        node.show("a" * 100)
        reader.show("b" * 100)
        node.show("c" * 100)
        assert [part.provenance.node for part in sent_results(ann)] == ["a-node"], "a reader follows its input"
        assert flushed(ann) == []
        assert not ann.replica.is_durable()
        world.settle()
        (part,) = sent_results(ann)
        assert [(read.doc, read.layers) for read in part.reads] == [(doc("a"), ())]
        world.settle()
        assert world.value("b") == "b" * 100

    def test_wave_waits_for_room_among_the_commits_in_flight(self) -> None:
        world, (ann,) = started("ann")
        ann.replica.limits = ReplicaLimits(in_flight=1)
        put(ann, "y", 11)
        Node(ann, "a", "x").show(2)
        Node(ann, "b", "a").show(3)
        assert sent_results(ann) == []
        settled(world)
        assert (world.value("a"), world.value("b"), len(logged(world))) == (2, 3, 2)

    def test_result_waits_for_commits_of_authors_that_are_not_sent(self) -> None:
        """Commits of a session are sent in the order of their numbers."""
        world, (ann,) = started("ann")
        ann.replica.limits = ReplicaLimits(in_flight=1)
        put(ann, "y", 11)
        put(ann, "y", 12)
        Node(ann, "a", "x").show(2)
        ann.session.flush()
        assert [len(frame) for frame in frames(ann)] == [1]
        settled(world)
        assert (world.value("y"), world.value("a")) == (12, 2)

    def test_reader_of_a_result_that_cannot_be_sent_is_held(self) -> None:
        world, (ann,) = started("ann")
        node, reader = Node(ann, "a", "x"), Node(ann, "b", "a")
        over_it = Node(ann, "c", "b", "y")
        beside = Node(ann, "d", "x")
        for each in (over_it, reader, node, beside):
            each.show(2)
        node.is_current = False
        (part,) = sent_results(ann)
        assert part.provenance.node == "d-node"
        world.settle()
        assert ann.replica.is_durable(), "no verdict is on its way: durable() would wait for a node that has failed"
        assert (world.value("a"), world.value("b"), world.value("c")) == (ABSENT, ABSENT, ABSENT)
        node.is_current = True
        settled(world)
        assert (world.value("a"), world.value("b"), world.value("c")) == (2, 2, 2)

    def test_result_of_an_invalid_node_that_is_not_demanded_leaves_the_tier_after_a_revert(self) -> None:
        """It may show a write that never was. Otherwise it stays until its node runs: its readers need not run (I3)."""
        world, (ann,) = started("ann")
        node = Node(ann, "a", "x")
        node.show(1)
        settled(world)
        node.show(2)
        node.is_current = False
        ann.session.flush()
        assert ann.shows("a") == 2
        node.is_demanded = False
        ann.session.flush()
        assert ann.shows("a") == 2
        take_back_a_write(ann)
        assert flushed(ann) == []
        assert (ann.shows("a"), ann.heard[-1].kind, bool(ann.replica.tier)) == (1, Kind.REVERT, False)
        assert ann.mirror.differences() == []

    def test_result_of_an_invalid_node_that_is_not_demanded_does_not_hide_a_result_of_another_session(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        dormant = Node(ann, "a", "x")
        dormant.show(2)
        dormant.is_current = dormant.is_demanded = False
        Node(bob, "a", "x").show(3)
        settled(world)
        assert (world.value("a"), ann.shows("a"), bool(ann.replica.tier)) == (3, 3, False)
        assert ann.mirror.differences() == []

    def test_reader_of_a_result_that_leaves_the_tier_is_not_sent(self) -> None:
        """The value that is shown instead is not the one that the reader saw."""
        world, (ann,) = started("ann")
        node, reader = Node(ann, "a", "x"), Node(ann, "b", "a")
        node.show(1)
        settled(world)
        node.show(2)
        reader.show(3)
        node.is_current = node.is_demanded = False
        take_back_a_write(ann)
        assert flushed(ann) == []
        assert (ann.shows("a"), world.value("b")) == (1, ABSENT)

    def test_results_of_a_cycle_are_one_result(self) -> None:
        world, (ann,) = started("ann")
        Node(ann, "a", "x", "b").show(2)
        Node(ann, "b", "a").show(3)
        Node(ann, "c", "b").show(4)
        ((commit,),) = flushed(ann)
        assert {operation.doc.id for operation in commit.operations} == {"a", "b", "c"}
        assert reads_of(commit) == ["x"]
        world.settle()
        assert (world.value("a"), world.value("b"), len(logged(world))) == (2, 3, 1)
        assert not ann.replica.tier

    def test_cycle_over_a_result_that_cannot_be_sent_is_held(self) -> None:
        world, (ann,) = started("ann")
        invalid = Node(ann, "d", "x")
        invalid.show(1)
        invalid.is_current = False
        Node(ann, "a", "b").show(2)
        Node(ann, "b", "a", "d").show(3)
        Node(ann, "c", "y").show(4)
        ((commit,),) = flushed(ann)
        assert {operation.doc.id for operation in commit.operations} == {"c"}
        invalid.is_current = True
        settled(world)
        assert (world.value("a"), world.value("b"), world.value("d")) == (2, 3, 1)

    def test_difference_to_a_confirmed_value_reads_it(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        node = Node(ann, "a", "x")
        node.show({"n": 1, "k": 1})
        settled(world)
        put(bob, "a", {"n": 5, "z": 5})
        bob.send()
        node.show({"n": 2, "k": 1})
        ((commit,),) = flushed(ann)
        assert doc("a") in [read.doc for read in commit.reads]
        ann.send()
        assert world.value("a") == {"n": 5, "z": 5}, "a patch to another value would mix the two"
        settled(world)
        assert world.value("a") == {"n": 2, "k": 1}


class TestTwoDocuments:
    def test_result_of_two_documents_is_judged_as_one(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        node = Node(ann, "a", "x", second="b")
        put(bob, "x", 5)
        bob.send()
        node.show(2, note="at 1")
        assert (ann.shows("a"), ann.shows("b")) == (2, "at 1")
        ((commit,),) = flushed(ann)
        assert [operation.doc.id for operation in commit.operations] == ["a", "b"]
        ann.send()
        assert (world.value("a"), world.value("b")) == (ABSENT, ABSENT)
        ann.hear()
        assert (ann.shows("a"), ann.shows("b")) == (2, "at 1")
        settled(world)
        assert (world.value("a"), world.value("b")) == (2, "at 1")
        assert not ann.replica.tier
        assert ann.replica.documents.of(doc("b")).entry is None

    def test_second_document_alone_makes_a_result(self) -> None:
        world, (ann,) = started("ann")
        node = Node(ann, "a", "x", second="b")
        node.show(2, note=1)
        settled(world)
        node.show(2, note=2)
        settled(world)
        assert (world.value("a"), world.value("b"), len(logged(world))) == (2, 2, 2)

    def test_refused_result_takes_both_documents_back(self) -> None:
        _, (ann,) = started("ann")
        Node(ann, "a", "x", second="b").show(2, note=1)
        ((sent,),) = flushed(ann)
        answered(ann, Rejected(sent.local_seq, REFUSAL))
        assert (ann.shows("a"), ann.shows("b")) == (ABSENT, ABSENT)
        assert ann.mirror.differences() == []

    @pytest.mark.parametrize("written", ["a", "b"])
    def test_write_to_one_document_takes_the_whole_result_back(self, written: str) -> None:
        world, (ann,) = started("ann")
        Node(ann, "a", "x", second="b").show(2, note=1)
        put(ann, written, 9)
        other = "b" if written == "a" else "a"
        assert (ann.shows(written), ann.shows(other)) == (9, ABSENT)
        assert ann.mirror.differences() == []
        settled(world)
        assert (world.value(written), world.value(other)) == (9, ABSENT)


class TestStopping:
    def test_result_of_a_stopped_node_is_sent_with_the_reads_of_then(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        node = Node(ann, "a", "x")
        node.show(2)
        basis = ann.replica.confirmed.seq
        node.stop()
        node.is_current = False
        put(bob, "y", 11)
        world.settle()
        ((commit,),) = flushed(ann)
        assert commit.reads == (Read(doc("x"), (), Depth.DEEP, basis),)
        world.settle()
        assert (world.value("a"), bool(ann.replica.tier)) == (2, False)

    def test_superseded_result_of_a_stopped_node_is_taken_back(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        node = Node(ann, "a", "x")
        node.show(2)
        node.stop()
        put(bob, "x", 5)
        world.settle()
        assert ann.shows("a") == 2
        settled(world)
        assert (world.value("a"), ann.shows("a"), ann.heard[-1].kind) == (ABSENT, ABSENT, Kind.REVERT)
        assert ann.mirror.differences() == []
        assert not ann.replica.tier

    def test_result_that_is_not_current_is_taken_back_when_its_node_stops(self) -> None:
        _, (ann,) = started("ann")
        node = Node(ann, "a", "x")
        node.show(2)
        node.is_current = False
        node.stop()
        assert (ann.shows("a"), flushed(ann)) == (ABSENT, [])
        assert ann.mirror.differences() == []

    def test_stopped_node_over_a_result_reads_its_sources(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        node, reader = Node(ann, "a", "x"), Node(ann, "b", "a", "y")
        node.show(2)
        reader.show(3)
        reader.stop()
        put(bob, "x", 5)
        settled(world)
        assert world.value("b") == ABSENT, "it was computed from another x"

    def test_stopped_node_over_a_stopped_one_reads_its_sources(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        node, reader = Node(ann, "a", "x"), Node(ann, "b", "a")
        node.show(2)
        reader.show(3)
        node.stop()
        reader.stop()
        put(bob, "x", 5)
        settled(world)
        assert (world.value("a"), world.value("b")) == (ABSENT, ABSENT)

    def test_stopped_node_over_an_invalid_result_is_taken_back(self) -> None:
        """Its result was computed from values that its sources do not have any more."""
        world, (ann,) = started("ann")
        node, reader = Node(ann, "a", "x"), Node(ann, "b", "a")
        node.show(2)
        reader.show(3)
        put(ann, "x", 5)
        node.is_current = False
        reader.stop()
        assert ann.shows("b") == ABSENT
        settled(world)
        assert world.value("b") == ABSENT

    def test_node_that_stops_during_a_gap_is_taken_back(self) -> None:
        world, (ann,) = started("ann")
        node = Node(ann, "a", "x")
        node.show(2)
        ann.replica.set_aside([doc("x")])
        node.stop()
        assert ann.shows("a") == ABSENT
        assert not ann.replica.tier
        assert world.value("a") == ABSENT

    def test_reader_of_a_stopped_nodes_result_is_sent_behind_it(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        node, reader = Node(ann, "a", "x"), Node(ann, "b", "a")
        node.show(2)
        reader.show(3)
        node.stop()
        put(bob, "x", 5)
        world.settle()
        _, second = sent_results(ann)
        assert second.after == (0,)
        world.settle()
        assert (world.value("a"), world.value("b")) == (ABSENT, ABSENT)

    def test_stop_of_another_node_does_not_concern_a_result(self) -> None:
        _, (ann,) = started("ann")
        entry = Node(ann, "a", "x").show(2)
        Node(ann, "a", "x").stop()
        assert entry is not None
        assert entry.reads is None


class TestOtherWriters:
    def test_write_of_an_author_to_an_output_drops_the_result(self) -> None:
        world, (ann,) = started("ann")
        Node(ann, "a", "x").show(2)
        put(ann, "a", 9)
        assert (ann.shows("a"), ann.replica.documents.of(doc("a")).entry) == (9, None)
        settled(world)
        assert (world.value("a"), logged(world)) == (9, [])
        assert ann.mirror.differences() == []

    def test_result_over_a_write_of_an_author_waits_for_its_verdict(self) -> None:
        world, (ann,) = started("ann")
        put(ann, "a", 9)
        Node(ann, "a", "x").show(2)
        assert [frame for frame in flushed(ann) if frame[0].provenance.derived] == []
        assert ann.shows("a") == 2
        settled(world)
        assert (world.value("a"), ann.shows("a")) == (2, 2)

    def test_node_is_called_for_a_foreign_value_under_its_result(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        calls = Calls(ann)
        Node(ann, "a", "x").show(2)
        heard = len(ann.heard)
        put(bob, "a", 9)
        world.settle()
        assert (calls.overwritten, ann.shows("a"), ann.heard[heard:]) == (["a"], 2, [])
        assert ann.replica.documents.of(doc("a")).confirmed == 9

    def test_node_is_not_called_for_an_equal_value_or_its_own(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        calls = Calls(ann)
        Node(ann, "a", "x").show(2)
        node = Node(ann, "b", "x")
        node.show(3)
        ann.session.flush()
        node.show(4)
        put(bob, "c", 1)
        put(bob, "a", 2)
        world.settle()
        assert calls.overwritten == []

    def test_arrived_value_under_a_result_is_reported_after_a_gap(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        calls = Calls(ann)
        Node(ann, "a", "x").show(2)
        ann.down()
        put(bob, "a", 9)
        world.settle()
        world.later(10**12)
        ann.up()
        world.settle()
        assert (calls.overwritten, ann.shows("a")) == (["a"], 2)


class TestConnections:
    def test_unsent_results_stay_and_sent_ones_are_replayed(self) -> None:
        world, (ann,) = started("ann")
        Node(ann, "a", "x").show(2)
        Node(ann, "b", "a").show(3)
        ann.session.flush()
        first = ann.next_out()
        assert isinstance(first, Transact)
        Node(ann, "c", "x").show(4)
        ann.down()
        assert (ann.shows("a"), ann.shows("b"), ann.shows("c")) == (2, 3, 4)
        ann.session.flush()
        ann.up()
        while not frames(ann):
            assert ann.send() + ann.hear()
        (again,) = [message for message in ann.session.outgoing if isinstance(message, Transact)]
        assert encode(again, "msgpack") == encode(first, "msgpack")
        settled(world)
        assert (world.value("a"), world.value("b"), world.value("c")) == (2, 3, 4)
        assert not ann.replica.tier

    def test_result_made_without_a_connection_is_sent_on_the_next_one(self) -> None:
        world, (ann,) = started("ann")
        ann.down()
        node = Node(ann, "a", "x")
        for value in range(2, 10):
            node.show(value)
            ann.session.flush()
        ann.up()
        settled(world)
        assert (world.value("a"), len(logged(world))) == (9, 1)

    def test_results_stay_after_a_gap_and_wait_for_the_documents_that_they_read(self) -> None:
        _, (ann, bob) = started("ann", "bob")
        node = Node(ann, "a", "x")
        node.show(2)
        ann.replica.set_aside([doc("x")])
        put(bob, "y", 11)
        put(bob, "x", 5)
        bob.send()
        ann.hear()
        assert ann.shows("a") == 2
        assert flushed(ann) == [], "the value of x is not known as of the present seq (C3)"
        assert not ann.replica.is_durable()

    def test_result_is_sent_after_a_gap(self) -> None:
        world, (ann,) = started("ann")
        ann.down()
        Node(ann, "a", "x").show(2)
        world.later(10**12)
        ann.up()
        while ann.replica.is_here(doc("x")):
            assert ann.send() + ann.hear(1)
        assert flushed(ann) == []
        assert ann.replica.documents.of(doc("a")).entry is not None
        settled(world)
        assert (world.value("a"), ann.shows("a"), bool(ann.replica.tier)) == (2, 2, False)
        assert ann.mirror.differences() == []

    def test_session_that_is_gone_keeps_its_results(self) -> None:
        _, (ann,) = started("ann")
        Node(ann, "a", "x").show(2)
        ann.session.flush()
        put(ann, "y", 11)
        ann.send()
        ann.again()
        ann.opens_with("wrong")
        while ann.session.link.value != "gone":
            assert ann.send() + ann.hear()
        assert ann.shows("a") == 2
        assert not ann.replica.tier.is_under_way()


class TestRights:
    def test_results_without_the_right_to_write_stay_local_and_yield(self) -> None:
        world, reader, owner = reader_and_owner()
        Node(reader, "a", "x").show(2)
        Node(reader, "b", "a").show(3)
        settled(world)
        assert not reader.replica.may_write
        assert (reader.shows("a"), reader.shows("b"), world.value("a")) == (2, 3, ABSENT)
        assert reader.replica.is_durable()
        assert not reader.replica.documents.of(doc("a")).is_unconfirmed()
        Node(reader, "c", "b").show(4)
        assert flushed(reader) == []
        put(owner, "b", 9)
        world.settle()
        assert (reader.shows("a"), reader.shows("b"), reader.shows("c")) == (2, 9, 4)
        assert reader.mirror.differences() == []

    def test_both_documents_of_a_local_result_count_as_confirmed(self) -> None:
        world, reader, _ = reader_and_owner()
        node = Node(reader, "a", "x", second="b")
        documents = [reader.replica.documents.of(doc(id)) for id in "ab"]
        node.show(2, note=3)
        settled(world)
        assert [each.is_unconfirmed() for each in documents] == [False, False], "the engine refused it"
        node.show(4, note=5)
        assert [each.is_unconfirmed() for each in documents] == [False, False], "it was never sent"

    def test_local_results_are_sent_after_the_right_is_granted(self) -> None:
        world, reader, owner = reader_and_owner()
        Node(reader, "a", "x").show(2)
        settled(world)
        Node(reader, "b", "a").show(3)
        assert world.value("a") == ABSENT
        owner.do(lambda t: t.write(ACCESS, replace((), {"owners": ["ann"], "writers": ["bob"]})))
        world.settle()
        reader.again()
        settled(world)
        assert (world.value("a"), world.value("b"), bool(reader.replica.tier)) == (2, 3, False)

    def test_newer_local_result_replaces_the_older_one(self) -> None:
        """Without the right to write no result is confirmed: results that are not shown any more do not pile up."""
        world, reader, _ = reader_and_owner()
        node = Node(reader, "a", "x")
        for value in range(2, 9):
            node.show(value)
            settled(world)
        assert reader.shows("a") == 8
        entry = reader.replica.documents.of(doc("a")).entry
        assert entry is not None
        assert (entry.value, entry.state) == (8, EntryState.LOCAL)
        assert not reader.replica.tier.is_waiting()

    def test_both_documents_of_a_local_result_yield(self) -> None:
        world, reader, owner = reader_and_owner()
        Node(reader, "a", "x", second="b").show(2, note=1)
        settled(world)
        put(owner, "a", 9)
        world.settle()
        assert (reader.shows("a"), reader.shows("b")) == (9, ABSENT)
        assert reader.mirror.differences() == []

    def test_refusal_of_a_session_that_keeps_nothing_fails_the_node(self) -> None:
        world, reader, _ = reader_and_owner(keeps_derived=False)
        calls = Calls(reader)
        Node(reader, "a", "x").show(2)
        settled(world)
        assert [(id, newest) for id, _, _, newest in calls.refused] == [("a", True)]
        assert reader.shows("a") == ABSENT

    def test_result_that_is_due_when_a_derived_commit_is_refused_stays_local(self) -> None:
        world, reader, _ = reader_and_owner()
        transaction = reader.replica.begin(derived=True, node="materializer")
        transaction.write(doc("c"), replace((), 5))
        assert isinstance(reader.replica.commit(transaction), Layer)
        reader.session.flush()
        node = Node(reader, "a", "x")
        node.show(2)
        world.settle()
        settled(world)
        assert reader.shows("a") == 2
        assert reader.replica.is_durable()
        assert not reader.replica.documents.of(doc("a")).is_unconfirmed()

    @pytest.mark.parametrize("is_refused_first", [True, False])
    def test_local_result_of_a_stopped_node_leaves_the_tier(self, is_refused_first: bool) -> None:
        """Nothing tells that its input changes: it is not sent, and its node is gone."""
        world, reader, owner = reader_and_owner()
        node, other = Node(reader, "a", "x"), Node(reader, "b", "x")
        other.show(3)
        reader.session.flush()
        if is_refused_first:
            settled(world)
        node.show(2)
        node.stop()
        node.is_current = False
        settled(world)
        assert reader.shows("a") == ABSENT
        put(owner, "x", 7)
        settled(world)
        assert reader.shows("a") == ABSENT
        assert reader.shows("b") == 3, "its node is not stopped"


def reader_and_owner(*, keeps_derived: bool = True) -> tuple[World, Client, Client]:
    """A reader, who may not write, and the owner of the documents."""
    world = World(access=True)
    owner = world.join("owner", principal="ann")
    owner.watch("x", "b", ACCESS)
    world.settle()
    put(owner, "x", 1)
    world.settle()
    owner.do(lambda t: t.write(ACCESS, replace((), {"owners": ["ann"], "readers": ["bob"]})))
    world.settle()
    reader = world.join("reader", principal="bob", keeps_derived=keeps_derived)
    attach(reader)
    world.settle()
    reader.watch("x", "a", "b", "c")
    owner.watch("a", "b", "c")
    world.settle()
    return world, reader, owner


class TestTransactions:
    """C1, C3: a result may never be sent as it was seen, so that no commit of an author names it."""

    def committed(self, client: Client, *read: str) -> list[tuple[DocKey, tuple[tuple[int, int], ...]]]:
        transaction = client.replica.begin()
        for id in read:
            transaction.read(doc(id))
        transaction.write(doc("e"), replace((), 1))
        layer = client.replica.commit(transaction)
        assert isinstance(layer, Layer)
        return [(each.doc, each.layers) for each in layer.commit.reads]

    def test_transaction_that_reads_a_result_names_its_sources(self) -> None:
        _, (ann,) = started("ann")
        Node(ann, "a", "x").show(2)
        assert self.committed(ann, "a") == [(doc("x"), ())]

    def test_transaction_names_the_sources_of_results_over_results(self) -> None:
        _, (ann,) = started("ann")
        put(ann, "x", 5)
        number = ann.replica.next_local_seq - 1
        Node(ann, "a", "x").show(2)
        Node(ann, "b", "a", "y").show(3)
        Node(ann, "c", "b", "a").show(4)
        assert set(self.committed(ann, "c")) == {(doc("x"), ((number, number),)), (doc("y"), ())}

    def test_transaction_over_a_result_on_the_wire_names_its_sources(self) -> None:
        _, (ann,) = started("ann")
        Node(ann, "a", "x").show(2)
        ann.session.flush()
        assert self.committed(ann, "a") == [(doc("x"), ())]

    def test_transaction_over_a_confirmed_result_names_the_document(self) -> None:
        world, (ann,) = started("ann")
        Node(ann, "a", "x").show(2)
        settled(world)
        assert self.committed(ann, "a") == [(doc("a"), ())]

    def test_transaction_over_results_that_read_each_other_names_the_sources_of_both(self) -> None:
        _, (ann,) = started("ann")
        Node(ann, "a", "b", "x").show(2)
        Node(ann, "b", "a", "y").show(3)
        assert set(self.committed(ann, "a")) == {(doc("x"), ()), (doc("y"), ())}

    def test_transaction_over_a_frozen_result_names_the_reads_of_then(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        node, reader = Node(ann, "a", "x"), Node(ann, "b", "a")
        node.show(2)
        reader.show(3)
        basis = ann.replica.confirmed.seq
        node.stop()
        put(bob, "y", 11)
        world.settle()
        transaction = ann.replica.begin()
        transaction.read(doc("b"))
        transaction.write(doc("e"), replace((), 1))
        layer = ann.replica.commit(transaction)
        assert isinstance(layer, Layer)
        assert layer.commit.reads == (Read(doc("x"), (), Depth.DEEP, basis),)

    def test_commit_over_a_result_whose_source_changed_is_rejected(self) -> None:
        world, (ann, bob) = started("ann", "bob")
        Node(ann, "a", "x").show(2)
        put(bob, "x", 5)
        bob.send()
        told = ann.do(lambda t: t.write(doc("e"), replace((), t.read(doc("a")))))
        world.settle()
        assert isinstance(told.rejection, Conflict)
        assert world.value("e") == ABSENT

    @pytest.mark.parametrize("change", ["replaced", "dropped", "written", "stopped", "refused", "confirmed"])
    def test_open_transaction_keeps_a_result_and_its_sources(self, change: str) -> None:
        """C8: the transaction sees the result that was shown at its beginning, and stands on what that was made of."""
        world, (ann, bob) = started("ann", "bob")
        node = Node(ann, "a", "x")
        node.show(2)
        transaction = ann.replica.begin()
        if change == "replaced":
            node.show(3, spots=[spot_of(ann, "y")])
        elif change == "dropped":
            node.is_current = node.is_demanded = False
            take_back_a_write(ann)
            ann.session.flush()
        elif change == "written":
            put(ann, "a", 9)
        elif change == "stopped":
            node.is_current = False
            node.stop()
        elif change == "refused":
            ((sent,),) = flushed(ann)
            ann.next_out()
            answered(ann, Rejected(sent.local_seq, REFUSAL))
        elif change == "confirmed":
            settled(world)
        assert transaction.read(doc("a")) == 2
        transaction.write(doc("e"), replace((), 1))
        put(bob, "x", 5)
        bob.send()
        layer = ann.replica.commit(transaction)
        assert isinstance(layer, Layer)
        assert reads_of(layer.commit) == ["x"]
        world.settle()
        assert world.value("e") == ABSENT, "x was written by another session"

    def test_open_transaction_keeps_the_sources_of_a_result_that_is_made_again_by_other_reads(self) -> None:
        _, (ann,) = started("ann")
        node = Node(ann, "a", "x")
        node.show(2)
        transaction = ann.replica.begin()
        node.show(2, spots=[spot_of(ann, "y")])
        transaction.read(doc("a"))
        transaction.write(doc("e"), replace((), 1))
        layer = ann.replica.commit(transaction)
        assert isinstance(layer, Layer)
        assert reads_of(layer.commit) == ["x"]
        ann.session.flush()
        ((_, wave),) = [each.commits for each in ann.session.outgoing if isinstance(each, Transact)]
        assert reads_of(wave) == ["y"]


def test_closed_session_waits_for_results_on_the_wire() -> None:
    world, (ann,) = started("ann")
    Node(ann, "a", "x").show(2)
    ann.session.flush()
    with pytest.raises(Exception, match="commits without an end"):
        ann.session.close()
    world.settle()
    ann.session.close()
    assert all_frames(ann)[-1]
    assert Limits().frame_commits >= ReplicaLimits().frame_commits
