"""The stack of pending commits: which layers a read names (C3), and who falls with whom (C4)."""

from __future__ import annotations

import pytest

from headwater.data.address import Depth
from headwater.data.patch import Patch, add, append, increment, remove, replace
from headwater.data.path import Path
from headwater.data.value import ABSENT
from headwater.errors import InvariantViolation
from headwater.protocol.commit import Read
from headwater.protocol.messages import Own, Patched, Sync, Whole
from headwater.protocol.verdict import Conflict, RuleRefused
from headwater.replica.feed import Kind
from headwater.replica.pending import Fate, Layer
from headwater.replica.replica import Replica
from tests.unit.replica.kit import Mirror, Told, World, doc, holding, local_seqs

D, E = doc("d"), doc("e")
NO = RuleRefused("rule", "no")


def push(
    replica: Replica, *patches: Patch, reads: tuple[Path, ...] = (), id: str = "d", told: Told | None = None
) -> Layer:
    transaction = replica.begin()
    for path in reads:
        transaction.read(doc(id), path)
    transaction.write(doc(id), *patches)
    layer = replica.commit(transaction, told or Told())
    assert isinstance(layer, Layer)
    return layer


def sent(replica: Replica, *layers: Layer) -> None:
    """As if they were on the wire."""
    for layer in layers:
        layer.fate = Fate.SENT
        replica.pending.sent(layer)


def named(replica: Replica, path: Path, depth: Depth = Depth.DEEP) -> tuple[tuple[int, int], ...]:
    transaction = replica.begin()
    transaction.read(D, path, depth)
    (read,) = transaction.reads()
    return read.layers


class TestWhatAReadStandsOn:
    def test_a_read_of_what_no_layer_wrote_names_none(self) -> None:
        replica = holding(d={"x": 0, "y": 0})
        push(replica, replace(("x",), 1))
        assert named(replica, ("y",)) == ()

    def test_a_read_names_every_layer_that_had_a_say_not_only_the_top_one(self) -> None:
        replica = holding(d={"x": 0, "y": 0})
        push(replica, replace(("x",), 1))
        push(replica, replace(("y",), 1))
        push(replica, replace(("x",), 2))
        push(replica, replace(("x",), 3))
        assert named(replica, ("x",)) == ((1, 1), (3, 4))
        assert named(replica, ()) == ((1, 4),)

    def test_layers_above_and_below_the_path_count(self) -> None:
        replica = holding(d={"m": 0})
        push(replica, replace(("m",), {"k": 1}))
        push(replica, add(("m", "j"), 1))
        assert named(replica, ("m", "k")) == ((1, 1),)
        assert named(replica, ("m",)) == ((1, 2),)
        assert named(replica, ("m", "j")) == ((1, 2),)

    def test_inside_an_array_every_change_of_the_array_counts(self) -> None:
        """C2: what an append did to an element's index depends on all of them."""
        replica = holding(d={"l": ["a", "b"], "m": ["z"]})
        push(replica, append(("l",), ["c"]))
        push(replica, append(("m",), ["y"]))
        assert named(replica, ("l", 0)) == ((1, 1),)
        assert named(replica, ("m", 0)) == ((2, 2),)

    def test_the_basis_is_the_confirmed_seq_whatever_is_pending(self) -> None:
        replica = holding(5, d={"x": 0})
        push(replica, replace(("x",), 1))
        replica.accepted(1, 9)
        transaction = replica.begin()
        transaction.read(D, ("x",))
        assert transaction.reads() == (Read(D, ("x",), Depth.DEEP, 5, ((1, 1),)),)

    def test_an_accepted_layer_is_named_until_confirmed_state_covers_it(self) -> None:
        replica = holding(5, d={"x": 0})
        push(replica, replace(("x",), 1))
        replica.accepted(1, 6)
        assert named(replica, ("x",)) == ((1, 1),)
        replica.integrate(Sync(6, (Own(D, 6, 1),)))
        assert named(replica, ("x",)) == ()
        transaction = replica.begin()
        transaction.read(D, ("x",))
        assert transaction.basis == 6

    def test_layers_of_another_document_are_not_named(self) -> None:
        replica = holding(d={"x": 0}, e={"x": 0})
        push(replica, replace(("x",), 1), id="e")
        assert named(replica, ("x",)) == ()

    def test_a_layer_pushed_after_the_transaction_began_is_not_named(self) -> None:
        replica = holding(d={"x": 0})
        transaction = replica.begin()
        push(replica, replace(("x",), 1))
        assert transaction.read(D, ("x",)) == 0
        assert transaction.reads() == (Read(D, ("x",), Depth.DEEP, 1, ()),)

    def test_a_layer_that_changed_nothing_when_it_was_made_counts_once_it_does(self) -> None:
        """The layer under it died, and now it is this one that makes the value what it is."""
        replica = holding(d={"x": 0, "n": 0})
        late = replica.begin()
        late.write(D, replace(("x",), 5))
        push(replica, replace(("x",), 5))
        replica.commit(late, Told())
        replica.rejected(1, NO)
        assert replica.visible(D) == {"x": 5, "n": 0}
        assert named(replica, ("x",)) == ((2, 2),)

    def test_a_layer_that_does_not_fit_what_is_under_it_shows_nothing_there_and_is_not_named(self) -> None:
        """It may fit again when the engine judges it; whoever read beside it must not say that he saw it."""
        replica = holding(d={"x": 0, "m": {"k": 0}})
        sent(replica, push(replica, replace(("x",), 1), replace(("m", "k"), 1)))
        replica.integrate(Sync(2, (Patched(D, 2, (replace(("m",), 0),)),)))
        assert replica.visible(D) == {"x": 0, "m": 0}
        assert named(replica, ("x",)) == ()
        replica.integrate(Sync(3, (Patched(D, 3, (replace(("m",), {"k": 9}),)),)))
        assert replica.visible(D) == {"x": 1, "m": {"k": 1}}
        assert named(replica, ("x",)) == ((1, 1),)

    def test_a_commit_that_read_beside_a_hidden_layer_falls_when_that_lands(self) -> None:
        world = World("a", "b")
        a, b = world.clients
        for client in (a, b):
            client.watch("d", "e")
        world.settle()
        a.write("d", replace((), {"x": 0, "m": {"k": 0}}))
        world.settle()
        b.write("d", replace(("m",), 0))
        b.send()
        hidden = a.write("d", replace(("x",), 1), replace(("m", "k"), 1))
        a.hear()
        assert a.shows("d") == {"x": 0, "m": 0}
        saw = a.do(lambda t: t.write(doc("e"), replace((), {"saw": t.read(doc("d"), ("x",))})))
        b.write("d", replace(("m",), {"k": 5}))
        b.send()
        world.settle()
        assert hidden.landed
        assert world.value("d") == {"x": 1, "m": {"k": 1}}
        assert not saw.landed

    def test_a_write_moved_by_the_layer_under_it_is_still_named(self) -> None:
        replica = holding(d={"m": {}})
        push(replica, add(("m", "k"), {"v": 0}))
        push(replica, replace(("m", "k", "v"), 1))
        assert named(replica, ("m", "k", "v")) == ((1, 2),)


class TestTheCascade:
    def test_a_rejected_layer_takes_its_readers_with_it_transitively(self) -> None:
        replica = holding(d={"x": 0, "y": 0, "z": 0, "w": 0})
        tolds = [Told() for _ in range(5)]
        layers = [
            push(replica, replace(("x",), 1), told=tolds[0]),
            push(replica, replace(("y",), 1), reads=(("x",),), told=tolds[1]),
            push(replica, replace(("z",), 1), reads=(("y",),), told=tolds[2]),
            push(replica, replace(("w",), 1), told=tolds[3]),
            push(replica, replace(("w",), 2), reads=(("w",),), told=tolds[4]),
        ]
        sent(replica, *layers)
        replica.rejected(1, NO)
        assert replica.visible(D) == {"x": 0, "y": 0, "z": 0, "w": 2}
        assert tolds[0].rejection == NO
        assert tolds[1].rejection == Conflict(dead_layers=(1,))
        assert isinstance(tolds[2].rejection, Conflict)
        assert tolds[2].rejection.dead_layers
        assert tolds[3].calls == tolds[4].calls == []

    def test_they_fall_at_once_and_in_one_notification(self) -> None:
        replica = holding(d={"x": 0, "y": 0})
        layers = [push(replica, replace(("x",), 1)), push(replica, replace(("y",), 1), reads=(("x",),))]
        sent(replica, *layers)
        heard: list[object] = []
        replica.feed.subscribe(lambda n: heard.append((n.kind, n.changes[0].before, n.changes[0].after)))
        replica.rejected(1, NO)
        assert heard == [(Kind.REVERT, {"x": 1, "y": 1}, {"x": 0, "y": 0})]

    def test_the_verdict_of_a_doomed_layer_is_still_awaited_and_changes_nothing(self) -> None:
        replica = holding(d={"x": 0, "y": 0})
        told = Told()
        layers = [push(replica, replace(("x",), 1)), push(replica, replace(("y",), 1), reads=(("x",),), told=told)]
        sent(replica, *layers)
        replica.rejected(1, NO)
        assert len(replica.pending) == 1
        assert local_seqs(replica.pending.undecided()) == [2]
        heard: list[object] = []
        replica.feed.subscribe(heard.append)
        replica.rejected(2, Conflict(dead_layers=(1,)))
        assert len(replica.pending) == 0
        assert heard == []
        assert len(told.calls) == 1

    def test_a_doomed_layer_that_was_never_sent_owes_no_verdict(self) -> None:
        replica = holding(d={"x": 0, "y": 0})
        sent(replica, push(replica, replace(("x",), 1)))
        push(replica, replace(("y",), 1), reads=(("x",),))
        replica.rejected(1, NO)
        assert len(replica.pending) == 0

    def test_an_engine_that_accepts_a_doomed_layer_is_not_believed(self) -> None:
        replica = holding(d={"x": 0, "y": 0})
        sent(replica, push(replica, replace(("x",), 1)), push(replica, replace(("y",), 1), reads=(("x",),)))
        replica.rejected(1, NO)
        with pytest.raises(InvariantViolation, match="commit 2 was accepted although a layer under it was not"):
            replica.accepted(2, 9)

    def test_a_transaction_over_a_layer_that_died_meanwhile_is_refused_before_it_is_sent(self) -> None:
        replica = holding(d={"x": 0, "y": 0})
        taken: list[Layer] = []
        sent(replica, push(replica, replace(("x",), 1)))
        transaction = replica.begin()
        transaction.read(D, ("x",))
        transaction.write(D, replace(("y",), 1))
        replica.rejected(1, NO)
        replica.on_layer = taken.append
        told = Told()
        assert replica.commit(transaction, told) == Conflict(dead_layers=(1,))
        assert told.rejection == Conflict(dead_layers=(1,))
        assert taken == []
        assert replica.visible(D) == {"x": 0, "y": 0}

    def test_one_that_only_saw_other_things_is_not(self) -> None:
        replica = holding(d={"x": 0, "y": 0})
        sent(replica, push(replica, replace(("x",), 1)))
        transaction = replica.begin()
        transaction.read(D, ("y",))
        transaction.write(D, replace(("y",), 1))
        replica.rejected(1, NO)
        assert isinstance(replica.commit(transaction), Layer)
        assert replica.visible(D) == {"x": 0, "y": 1}

    def test_a_layer_over_an_accepted_one_stays(self) -> None:
        replica = holding(d={"x": 0})
        sent(replica, push(replica, replace(("x",), 1)), push(replica, replace(("x",), 2), reads=(("x",),)))
        replica.accepted(1, 2)
        replica.rejected(2, NO)
        assert replica.visible(D) == {"x": 1}

    def test_the_ones_under_a_rejected_layer_stay(self) -> None:
        replica = holding(d={"x": 0})
        for _ in range(3):
            sent(replica, push(replica, increment(("x",)), reads=(("x",),)))
        replica.rejected(3, NO)
        assert replica.visible(D) == {"x": 2}
        replica.rejected(2, NO)
        assert replica.visible(D) == {"x": 1}


class TestVerdicts:
    def test_a_verdict_said_twice_is_heard_once(self) -> None:
        replica = holding(d={"x": 0})
        yes, no = Told(), Told()
        sent(replica, push(replica, replace(("x",), 1), told=yes), push(replica, replace(("x",), 2), told=no))
        for _ in range(2):
            replica.accepted(1, 2)
            replica.rejected(2, NO)
        assert yes.landed
        assert no.rejection == NO

    def test_a_verdict_about_nothing_we_know_changes_nothing(self) -> None:
        replica = holding(d={"x": 0})
        replica.accepted(7, 9)
        replica.rejected(8, NO)
        assert replica.visible(D) == {"x": 0}

    def test_an_accepted_layer_stays_on_top_until_it_is_covered_and_is_never_shown_twice(self) -> None:
        replica = holding(d={"n": 0})
        mirror = Mirror(replica)
        mirror.values[D] = replica.visible(D)
        sent(replica, push(replica, increment(("n",))))
        replica.accepted(1, 3)
        assert replica.visible(D) == {"n": 1}
        replica.integrate(Sync(2, (Patched(D, 2, (increment(("n",), 10),)),)))
        assert replica.visible(D) == {"n": 11}
        replica.integrate(Sync(3, (Own(D, 3, 1),)))
        assert replica.visible(D) == {"n": 11}
        assert len(replica.pending) == 0
        assert mirror.differences() == []

    def test_a_whole_document_that_includes_an_own_commit_does_not_count_it_twice(self) -> None:
        replica = holding(d={"n": 0})
        sent(replica, push(replica, increment(("n",))))
        replica.accepted(1, 3)
        replica.integrate(Sync(3, (Whole(D, 3, True, {"n": 8}),)))
        assert replica.visible(D) == {"n": 8}

    def test_a_verdict_that_comes_after_what_covers_it_settles_it_all_the_same(self) -> None:
        replica = holding(d={"n": 0})
        told = Told()
        sent(replica, push(replica, increment(("n",)), told=told))
        replica.integrate(Sync(3, (Whole(D, 3, True, {"n": 1}),)))
        replica.accepted(1, 3)
        assert told.landed
        assert replica.visible(D) == {"n": 1}
        assert len(replica.pending) == 0

    def test_callbacks_are_let_go_when_they_have_been_called(self) -> None:
        replica = holding(d={"x": 0})
        layers = [push(replica, replace(("x",), 1)), push(replica, replace(("x",), 2))]
        sent(replica, *layers)
        replica.accepted(1, 2)
        replica.rejected(2, NO)
        assert [layer.settled for layer in layers] == [None, None]


class TestWhatIsShown:
    def test_a_patch_that_does_not_fit_any_more_is_left_out(self) -> None:
        replica = holding(d={"m": {"k": 0}, "x": 0})
        sent(replica, push(replica, replace(("m", "k"), 1)), push(replica, replace(("x",), 1)))
        replica.integrate(Sync(2, (Patched(D, 2, (replace(("m",), 0),)),)))
        assert replica.visible(D) == {"m": 0, "x": 1}

    def test_layers_apply_in_order_over_what_arrives(self) -> None:
        replica = holding(d={"l": []})
        sent(replica, push(replica, append(("l",), ["a"])), push(replica, append(("l",), ["b"])))
        replica.integrate(Sync(2, (Patched(D, 2, (append(("l",), ["foreign"]),)),)))
        assert replica.visible(D) == {"l": ("foreign", "a", "b")}

    def test_a_foreign_delete_under_a_pending_write(self) -> None:
        replica = holding(d={"x": 0})
        sent(replica, push(replica, replace(("x",), 1)))
        replica.integrate(Sync(2, (Patched(D, 2, (remove(()),)),)))
        assert replica.visible(D) is ABSENT
        replica.rejected(1, Conflict())
        assert replica.visible(D) is ABSENT
