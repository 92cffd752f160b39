"""One transaction: its snapshot, its two journals, and the commit that they become."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.data.address import Depth
from headwater.data.patch import (
    Patch,
    PatchError,
    add,
    add_unique,
    append,
    apply,
    increment,
    remove,
    remove_value,
    replace,
    splice,
)
from headwater.data.value import ABSENT
from headwater.errors import AuthoringError
from headwater.protocol.commit import EntityAbsent, Operation, Read, SentEvent, TopicRecord
from headwater.protocol.messages import Own, Patched, Sync, state_of
from headwater.replica.confirmed import NotHere
from headwater.replica.feed import Notification
from headwater.replica.number_ranges import ranges
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.replica.transaction import Transaction
from tests.unit.replica.kit import Told, Work, doc, holding

D, E = doc("d"), doc("e")


def patches_of(replica: Replica, transaction: Transaction) -> tuple[object, ...]:
    """What the engine would be told about document d."""
    layer = replica.commit(transaction)
    assert isinstance(layer, Layer)
    (operation,) = layer.commit.operations
    assert operation.doc == D
    return operation.patches


class TestReading:
    def test_a_read_is_recorded_with_its_path_depth_and_basis(self) -> None:
        transaction = holding(7, d={"x": {"y": 1}}).begin()
        assert transaction.read(D, ("x", "y")) == 1
        assert transaction.read(D, ("x",), Depth.SHAPE) == {"y": 1}
        assert transaction.reads() == (
            Read(D, ("x", "y"), Depth.DEEP, 7),
            Read(D, ("x",), Depth.SHAPE, 7),
        )

    def test_the_same_place_read_deep_and_by_shape_is_two_reads(self) -> None:
        transaction = holding(d={"x": 1}).begin()
        for depth in (Depth.SHAPE, Depth.DEEP, Depth.SHAPE, Depth.DEEP):
            transaction.read(D, ("x",), depth)
        assert transaction.read_set() == ((D, ("x",), Depth.SHAPE), (D, ("x",), Depth.DEEP))

    def test_what_is_not_there_is_absent_and_a_read_all_the_same(self) -> None:
        transaction = holding(d={"x": 1}).begin()
        assert transaction.read(D, ("nope", "deeper")) is ABSENT
        assert transaction.reads() == (Read(D, ("nope", "deeper"), Depth.DEEP, 1),)

    def test_an_absent_document_that_has_arrived_reads_as_absent(self) -> None:
        replica = Replica()
        replica.arrive([state_of(D, 0, ABSENT)], 4)
        transaction = replica.begin()
        assert transaction.read(D) is ABSENT
        assert transaction.reads() == (Read(D, (), Depth.DEEP, 4),)

    def test_a_document_that_is_not_here_names_itself(self) -> None:
        transaction = holding(d=1).begin()
        with pytest.raises(NotHere, match="space:e has not arrived yet") as caught:
            transaction.read(E)
        assert caught.value.docs == (E,)
        assert transaction.read_set() == ()

    def test_a_look_leaves_no_trace(self) -> None:
        transaction = holding(d={"x": 1}).begin()
        assert transaction.peek(D, ("x",)) == 1
        transaction.write(D, replace(("x",), 2))
        assert transaction.peek(D, ("x",)) == 2
        assert transaction.reads() == ()
        with pytest.raises(NotHere):
            transaction.peek(E)


class TestOwnWrites:
    def test_own_writes_are_seen_by_later_reads(self) -> None:
        transaction = holding(d={"x": 1, "l": []}).begin()
        transaction.write(D, replace(("x",), 2), append(("l",), ["a"]))
        assert transaction.read(D) == {"x": 2, "l": ("a",)}

    def test_nobody_else_sees_them_before_the_commit(self) -> None:
        replica = holding(d={"x": 1})
        transaction = replica.begin()
        transaction.write(D, replace(("x",), 2))
        assert replica.visible(D) == {"x": 1}
        assert replica.begin().read(D, ("x",)) == 1

    def test_what_is_read_through_an_own_plain_write_is_no_read(self) -> None:
        transaction = holding(d={"x": {"y": 1}, "z": 1}).begin()
        transaction.write(D, replace(("x",), {"y": 2}))
        assert transaction.read(D, ("x", "y")) == 2
        assert transaction.reads() == ()

    def test_what_lies_beside_or_above_an_own_write_is_a_read(self) -> None:
        transaction = holding(d={"x": 1, "z": 1}).begin()
        transaction.write(D, replace(("x",), 2))
        transaction.read(D, ("z",))
        transaction.read(D)
        assert [read.path for read in transaction.reads()] == [("z",), ()]

    def test_what_is_read_through_an_own_intent_is_a_read_because_the_rest_was_there_before(self) -> None:
        transaction = holding(d={"n": 1, "l": ["a"]}).begin()
        transaction.write(D, increment(("n",)), append(("l",), ["b"]))
        assert transaction.read(D, ("n",)) == 2
        assert transaction.read(D, ("l",)) == ("a", "b")
        assert [read.path for read in transaction.reads()] == [("n",), ("l",)]

    def test_a_derived_write_that_changes_nothing_hides_no_read(self) -> None:
        transaction = holding(d={"x": 1}).begin(derived=True)
        transaction.write(D, replace(("x",), 1))
        transaction.read(D, ("x",))
        assert [read.path for read in transaction.reads()] == [("x",)]

    def test_a_patch_that_does_not_fit_says_so_where_it_is_written(self) -> None:
        transaction = holding(d={"x": 1}).begin()
        with pytest.raises(PatchError, match="an array"):
            transaction.write(D, append(("x",), [1]))
        assert transaction.operations() == ()

    @pytest.mark.parametrize("first", [increment(("n",)), replace(("n",), 7)], ids=["intent", "plain"])
    def test_a_write_of_several_patches_is_made_whole_or_not_at_all(self, first: Patch) -> None:
        replica = holding(d={"n": 1})
        transaction = replica.begin()
        with pytest.raises(PatchError):
            transaction.write(D, first, replace(("nope",), 1))
        assert transaction.read(D, ("n",)) == 1
        assert transaction.operations() == ()
        assert replica.commit(transaction) is None

    def test_writing_a_document_that_is_not_here_waits_for_it(self) -> None:
        with pytest.raises(NotHere):
            holding(d=1).begin().write(E, replace((), 1))


class TestMinimalPatches:
    def test_setting_the_whole_document_tells_only_what_differs(self) -> None:
        replica = holding(d={"x": 1, "y": {"a": 1, "b": 2}, "gone": 0})
        transaction = replica.begin()
        transaction.write(D, replace((), {"x": 1, "y": {"a": 1, "b": 3}, "new": 4}))
        assert patches_of(replica, transaction) == (remove(("gone",)), replace(("y", "b"), 3), add(("new",), 4))

    def test_several_writes_of_one_place_are_told_as_one(self) -> None:
        replica = holding(d={"x": 1})
        transaction = replica.begin()
        for number in range(10):
            transaction.write(D, replace(("x",), number + 2))
        assert patches_of(replica, transaction) == (replace(("x",), 11),)

    def test_there_and_back_again_is_nothing_if_it_is_derived(self) -> None:
        replica = holding(d={"x": 1, "y": 1})
        transaction = replica.begin(derived=True)
        transaction.write(D, replace(("x",), 2), remove(("y",)), add(("y",), 1), replace(("x",), 1))
        told = Told()
        assert replica.commit(transaction, told) is None
        assert told.landed

    def test_equal_values_are_told_and_change_nothing_that_is_shown(self) -> None:
        replica = holding(d={"x": 1, "l": [1], "o": {"x": 1}})
        heard: list[Notification] = []
        replica.feed.subscribe(heard.append)
        transaction = replica.begin()
        transaction.write(D, replace(("x",), 1), replace(("l",), [1]), replace(("o",), {"x": 1}))
        # An object is told by its fields.
        assert patches_of(replica, transaction) == (add(("x",), 1), add(("l",), [1]))
        assert (replica.visible(D), heard) == ({"x": 1, "l": (1,), "o": {"x": 1}}, [])

    def test_equal_element_of_an_array_is_a_read_that_is_told(self) -> None:
        replica = holding(d={"l": [1, 2]})
        transaction = replica.begin()
        transaction.write(D, replace(("l", 1), 2))
        layer = replica.commit(transaction)
        assert isinstance(layer, Layer)
        assert layer.commit.operations == ()
        assert [(read.path, read.depth) for read in layer.commit.reads] == [(("l",), Depth.DEEP)]

    def test_removal_of_an_absent_value_is_sent(self) -> None:
        """It may be there where the commit lands."""
        replica = holding(d={"x": 1})
        transaction = replica.begin()
        transaction.write(D, add(("y",), 1), remove(("y",)), remove(("z",)))
        layer = replica.commit(transaction)
        assert isinstance(layer, Layer)
        assert layer.commit.reads == ()
        assert layer.commit.operations == (Operation(D, (remove(("y",)), remove(("z",)))),)

    @pytest.mark.parametrize("read", [("l",), ()])
    def test_a_grown_array_that_was_read_is_told_as_a_splice(self, read: tuple[str, ...]) -> None:
        replica = holding(d={"l": list(range(50))})
        transaction = replica.begin()
        transaction.read(D, read)
        transaction.write(D, replace(("l",), [*range(25), "new", *range(25, 50)]))
        assert patches_of(replica, transaction) == (splice(("l",), 25, 0, ["new"]),)

    @pytest.mark.parametrize("depth", [None, Depth.SHAPE])
    def test_an_array_that_was_not_read_is_told_as_a_whole(self, depth: Depth | None) -> None:
        """Another writer may have moved its elements: a difference to it would hit others (C1)."""
        replica = holding(d={"l": list(range(50))})
        transaction = replica.begin()
        if depth is not None:
            transaction.read(D, ("l",), depth)
        transaction.write(D, replace(("l",), [*range(25), "new", *range(25, 50)]))
        assert patches_of(replica, transaction) == (replace(("l",), [*range(25), "new", *range(25, 50)]),)

    @pytest.mark.parametrize("kept", ["whole", "element"])
    def test_an_array_of_the_same_length_is_told_by_element(self, kept: str) -> None:
        replica = holding(d={"l": [1, 2, 3]})
        transaction = replica.begin()
        if kept == "whole":
            transaction.read(D, ("l",))
        transaction.write(D, replace(("l",), [1, 9, 3]) if kept == "whole" else replace(("l", 1), 9))
        assert patches_of(replica, transaction) == (replace(("l", 1), 9),)

    def test_intents_are_told_as_intents_in_the_order_they_were_made(self) -> None:
        replica = holding(d={"n": 0, "l": [], "t": []})
        transaction = replica.begin()
        made = (increment(("n",), 2), append(("l",), ["a"]), add_unique(("t",), "x"), increment(("n",), 3))
        for patch in made:
            transaction.write(D, patch)
        assert patches_of(replica, transaction) == made

    def test_plain_writes_among_intents_keep_their_place(self) -> None:
        """What an intent meets depends on what was written before it."""
        replica = holding(d={"n": 5})
        transaction = replica.begin()
        transaction.write(D, replace(("n",), 10), increment(("n",)))
        assert patches_of(replica, transaction) == (replace(("n",), 10), increment(("n",)))

    @pytest.mark.parametrize("derived", [True, False], ids=["derived", "authored"])
    def test_intents_that_change_nothing_are_told_unless_they_are_derived(self, derived: bool) -> None:
        replica = holding(d={"t": ["x"], "n": 0})
        transaction = replica.begin(derived=derived)
        written = (add_unique(("t",), "x"), remove_value(("t",), "y"), increment(("n",), 0))
        transaction.write(D, *written)
        if derived:
            assert replica.commit(transaction) is None
        else:
            assert patches_of(replica, transaction) == written

    def test_a_document_that_was_only_looked_at_has_no_operation(self) -> None:
        replica = holding(d=1, e=1)
        transaction = replica.begin()
        transaction.read(D)
        transaction.write(E, replace((), 2))
        layer = replica.commit(transaction)
        assert isinstance(layer, Layer)
        assert [operation.doc for operation in layer.commit.operations] == [E]
        assert [read.doc for read in layer.commit.reads] == [D]

    def test_deleting_and_making_documents(self) -> None:
        replica = holding(d={"x": 1})
        transaction = replica.begin()
        transaction.write(D, remove(()))
        assert transaction.read(D) is ABSENT
        assert patches_of(replica, transaction) == (remove(()),)
        again = replica.begin()
        again.write(D, replace((), {"x": 2}))
        layer = replica.commit(again)
        assert isinstance(layer, Layer)
        (operation,) = layer.commit.operations
        assert apply(ABSENT, operation.patches[0])[0] == {"x": 2}
        assert replica.visible(D) == {"x": 2}


class TestWhatElseACommitCarries:
    def test_attempted_writes_are_kept_apart_and_complete(self) -> None:
        """Evidence for labels: what was tried, also where it changed nothing. Never a reason to run or to send."""
        replica = holding(d={"x": 1, "y": 1})
        transaction = replica.begin(derived=True)
        transaction.write(D, replace(("x",), 1), replace(("y",), 2))
        with pytest.raises(PatchError):
            transaction.write(D, replace(("nope",), 1))
        assert transaction.attempted == [(D, ("x",)), (D, ("y",)), (D, ("nope",))]
        assert patches_of(replica, transaction) == (replace(("y",), 2),)

    def test_trigger_reads_travel_as_causes_not_as_reads(self) -> None:
        replica = holding(d={"x": 1})
        transaction = replica.begin(node="Cart/ann#total", derived=True)
        transaction.causes = ((E, ("lines",)),)
        transaction.write(D, replace(("x",), 2))
        layer = replica.commit(transaction)
        assert isinstance(layer, Layer)
        assert layer.commit.reads == ()
        provenance = layer.commit.provenance
        assert (provenance.node, provenance.causes, provenance.derived) == (
            "Cart/ann#total",
            ((E, ("lines",)),),
            True,
        )

    def test_a_commit_without_operations_is_sent_for_its_preconditions_events_or_records(self) -> None:
        replica = holding(d=1)
        carried: list[Layer] = []
        fills: list[Work] = [
            lambda t: t.preconditions.append(EntityAbsent(D)),
            lambda t: t.events.append(SentEvent("id", "stream", None)),
            lambda t: t.records.append(TopicRecord("topic", "key", None)),
        ]
        for fill in fills:
            transaction = replica.begin()
            fill(transaction)
            assert not transaction.is_empty()
            layer = replica.commit(transaction)
            assert isinstance(layer, Layer)
            carried.append(layer)
        assert carried[0].commit.preconditions
        assert carried[1].commit.events
        assert carried[2].commit.records
        assert [layer.local_seq for layer in carried] == [1, 2, 3]

    def test_the_local_seq_is_remembered_on_the_transaction(self) -> None:
        replica = holding(d=1)
        first, second, third = (replica.begin() for _ in range(3))
        first.write(D, replace((), 2))
        third.write(D, replace((), 3))
        for transaction in (first, second, third):
            replica.commit(transaction)
        assert (first.local_seq, second.local_seq, third.local_seq) == (1, 0, 2)

    def test_source_and_group_are_kept_by_identity(self) -> None:
        replica = holding(d=1)
        node, group = object(), object()
        transaction = replica.begin(source=node, group=group)
        transaction.write(D, replace((), 2))
        layer = replica.commit(transaction)
        assert isinstance(layer, Layer)
        assert layer.source is node
        assert layer.group is group


class TestTheEnd:
    @pytest.mark.parametrize("use", ["read", "write", "commit"])
    def test_a_finished_transaction_cannot_be_used_again(self, use: str) -> None:
        replica = holding(d=1)
        transaction = replica.begin()
        transaction.write(D, replace((), 2))
        replica.commit(transaction)
        uses: dict[str, Callable[[], object]] = {
            "read": lambda: transaction.read(D),
            "write": lambda: transaction.write(D, replace((), 3)),
            "commit": lambda: replica.commit(transaction),
        }
        with pytest.raises(AuthoringError):
            uses[use]()

    def test_a_dropped_transaction_leaves_nothing_behind(self) -> None:
        replica = holding(d=1)
        transaction = replica.begin()
        transaction.write(D, replace((), 2))
        del transaction
        assert replica.visible(D) == 1
        assert len(replica.pending) == 0

    def test_a_write_that_does_not_fit_what_is_shown_by_now_is_refused_here_with_the_reason(self) -> None:
        replica = holding(d={"x": {"y": 1}})
        transaction = replica.begin()
        transaction.write(D, replace(("x", "y"), 2))
        replica.integrate(Sync(2, (Patched(D, 2, (replace(("x",), 0),)),)))
        told = Told()
        replica.commit(transaction, told)
        assert "cannot take 'replace' now" in str(told.rejection)
        assert replica.visible(D) == {"x": 0}
        assert len(replica.pending) == 0


def test_ranges_are_inclusive_and_join_neighbours() -> None:
    assert ranges([]) == ()
    assert ranges([1, 2, 3, 5, 7, 8]) == ((1, 3), (5, 5), (7, 8))


def test_an_operation_lists_each_document_once() -> None:
    replica = holding(d={"x": 0}, e={"x": 0})
    transaction = replica.begin()
    for number in (1, 2):
        for key in (D, E):
            transaction.write(key, replace(("x",), number))
    layer = replica.commit(transaction)
    assert isinstance(layer, Layer)
    assert layer.commit.operations == (
        Operation(D, (replace(("x",), 2),)),
        Operation(E, (replace(("x",), 2),)),
    )


class TestValuesThatAreNotMadeAgain:
    """A patch is applied once here, unless the value under it has changed."""

    @pytest.mark.parametrize("patch", [append((), [9]), replace((0,), 9)], ids=["intent", "plain"])
    def test_written_value_is_shown_and_confirmed_as_it_is(self, patch: Patch) -> None:
        replica = holding(1, d=(1, 2, 3))
        transaction = replica.begin()
        transaction.write(D, patch)
        written = transaction.peek(D)
        layer = replica.commit(transaction)
        assert isinstance(layer, Layer)
        document = replica.documents.of(D)
        assert document.value is written
        layer.send(layer.local_seq)
        replica.pending.sent(layer)
        replica.accepted(layer.local_seq, 2)
        replica.integrate(Sync(2, (Own(D, 2, layer.local_seq),)))
        assert document.confirmed is document.value is written

    def test_write_is_made_again_of_a_value_that_another_session_changed_meanwhile(self) -> None:
        replica = holding(1, d={"l": (1,), "m": 1})
        transaction = replica.begin()
        transaction.write(D, append(("l",), [2]))
        replica.integrate(Sync(2, (Patched(D, 2, (replace(("m",), 5),)),)))
        replica.commit(transaction)
        assert replica.documents.of(D).value == {"l": (1, 2), "m": 5}

    def test_write_is_made_again_of_confirmed_state_that_another_session_changed_before_it(self) -> None:
        replica = holding(1, d={"l": (1,), "m": 1})
        transaction = replica.begin()
        transaction.write(D, append(("l",), [2]))
        layer = replica.commit(transaction)
        assert isinstance(layer, Layer)
        layer.send(layer.local_seq)
        replica.pending.sent(layer)
        replica.accepted(layer.local_seq, 3)
        replica.integrate(Sync(3, (Patched(D, 2, (replace(("m",), 5),)), Own(D, 3, layer.local_seq))))
        assert replica.documents.of(D).confirmed == {"l": (1, 2), "m": 5}
