"""The feed: differences of visible state, each heard once, in causal order, by everybody (C9)."""

from __future__ import annotations

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import add, increment, replace
from headwater.data.value import ABSENT, MaybeValue
from headwater.protocol.messages import Own, Patched, Sync, Whole, state_of
from headwater.protocol.verdict import RuleRefused
from headwater.replica.feed import Feed, Kind, Notification
from headwater.replica.pending import Fate, Layer
from headwater.replica.replica import Replica
from tests.unit.replica.kit import Mirror, Told, World, bump, doc, holding, putting

D, E = doc("d"), doc("e")
NO = RuleRefused("rule", "no")


def listening(replica: Replica) -> list[Notification]:
    heard: list[Notification] = []
    replica.feed.subscribe(heard.append)
    return heard


def commit(replica: Replica, id: str, value: object, **options: object) -> Layer:
    transaction = replica.begin(**options)  # type: ignore[arg-type]
    transaction.write(doc(id), replace((), value))
    layer = replica.commit(transaction)
    assert isinstance(layer, Layer)
    return layer


Shown = tuple[DocKey, MaybeValue, MaybeValue, bool]


def shown(notification: Notification) -> tuple[Shown, ...]:
    return tuple((each.doc, each.before, each.after, each.known_before) for each in notification.changes)


def changed(doc: DocKey, *, before: MaybeValue, after: MaybeValue, known_before: bool = True) -> Shown:
    return doc, before, after, known_before


def note(number: int) -> Notification:
    return Notification(Kind.COMMIT, Replica().documents.of(D), 0, 1, None, True, number)


class TestDelivery:
    def test_everybody_hears_everything_in_order(self) -> None:
        feed = Feed()
        first: list[Notification] = []
        second: list[Notification] = []
        feed.subscribe(first.append)
        feed.subscribe(second.append)
        for number in range(3):
            feed.emit(note(number))
        assert [n.seq for n in first] == [n.seq for n in second] == [0, 1, 2]

    def test_what_a_listener_causes_is_heard_after_what_caused_it_by_everybody(self) -> None:
        feed = Feed()
        heard: list[tuple[str, int]] = []

        def echo(notification: Notification) -> None:
            heard.append(("echo", notification.seq))
            if notification.seq < 3:
                feed.emit(note(notification.seq + 1))

        feed.subscribe(echo)
        feed.subscribe(lambda n: heard.append(("late", n.seq)))
        feed.emit(note(1))
        assert heard == [("echo", 1), ("late", 1), ("echo", 2), ("late", 2), ("echo", 3), ("late", 3)]

    def test_a_listener_that_leaves_hears_no_more_and_leaving_twice_is_harmless(self) -> None:
        feed = Feed()
        heard: list[Notification] = []
        cancel = feed.subscribe(heard.append)
        feed.emit(note(1))
        cancel()
        cancel()
        feed.emit(note(2))
        assert [n.seq for n in heard] == [1]

    def test_a_listener_may_leave_or_come_while_it_is_being_told(self) -> None:
        feed = Feed()
        heard: list[int] = []

        def once(notification: Notification) -> None:
            cancel()
            heard.append(notification.seq)

        cancel = feed.subscribe(once)
        feed.subscribe(lambda n: feed.subscribe(lambda m: heard.append(10 * m.seq)) if n.seq == 1 else None)
        feed.emit(note(1))
        feed.emit(note(2))
        assert heard == [1, 20]

    def test_a_listener_that_raises_keeps_nobody_from_hearing_and_somebody_is_told(self) -> None:
        replica = holding(d=0)
        raised: list[Exception] = []
        replica.on_error = raised.append
        trouble = RuntimeError("a bad listener")

        def bad(_: Notification) -> None:
            raise trouble

        replica.feed.subscribe(bad)
        heard = listening(replica)
        sent: list[Layer] = []
        replica.on_layer = sent.append
        commit(replica, "d", 1)
        commit(replica, "d", 2)
        assert [n.changes[0].after for n in heard] == [1, 2]
        assert len(sent) == 2
        assert raised == [trouble, trouble]


class TestWhatIsTold:
    def test_a_local_commit_is_told_at_once_with_before_after_source_and_group(self) -> None:
        replica = holding(3, d=0)
        heard = listening(replica)
        node, group = object(), object()
        commit(replica, "d", 1, source=node, group=group)
        (told,) = heard
        assert told.kind is Kind.COMMIT
        assert shown(told) == (changed(D, before=0, after=1),)
        assert told.source is node
        assert told.group is group
        assert told.seq == 3

    def test_a_commit_that_changes_nothing_is_not_told(self) -> None:
        replica = holding(d=0)
        heard = listening(replica)
        transaction = replica.begin()
        transaction.write(D, replace((), 0))
        replica.commit(transaction)
        assert heard == []

    def test_all_documents_of_one_commit_are_told_together(self) -> None:
        replica = holding(d=0, e=0)
        heard = listening(replica)
        transaction = replica.begin()
        transaction.write(D, replace((), 1))
        transaction.write(E, replace((), 1))
        replica.commit(transaction)
        assert [change.doc for change in heard[0].changes] == [D, E]
        assert len(heard) == 1

    def test_an_arrival_says_that_nothing_was_known_before(self) -> None:
        replica = Replica()
        heard = listening(replica)
        replica.arrive([state_of(D, 1, 5), state_of(E, 0, ABSENT)], 2)
        (told,) = heard
        assert told.kind is Kind.PULL
        assert shown(told) == (
            changed(D, before=ABSENT, after=5, known_before=False),
            changed(E, before=ABSENT, after=ABSENT, known_before=False),
        )

    def test_arriving_again_unchanged_is_not_told(self) -> None:
        replica = holding(d=5)
        heard = listening(replica)
        replica.arrive([state_of(D, 1, 5)], 2)
        assert heard == []

    def test_a_confirmation_of_what_is_shown_is_not_told(self) -> None:
        replica = holding(d=0)
        layer = commit(replica, "d", 1)
        layer.fate = Fate.SENT
        heard = listening(replica)
        replica.accepted(1, 2)
        replica.integrate(Sync(2, (Own(D, 2, 1),)))
        assert heard == []

    def test_a_foreign_write_hidden_by_a_pending_one_is_not_told_until_that_falls(self) -> None:
        replica = holding(d={"x": 0})
        transaction = replica.begin()
        transaction.write(D, replace(("x",), 1))
        layer = replica.commit(transaction)
        assert isinstance(layer, Layer)
        layer.fate = Fate.SENT
        heard = listening(replica)
        replica.integrate(Sync(2, (Patched(D, 2, (replace(("x",), 9),)),)))
        assert heard == []
        replica.rejected(1, NO)
        assert [(n.kind, shown(n)) for n in heard] == [(Kind.REVERT, (changed(D, before={"x": 1}, after={"x": 9}),))]

    def test_a_hidden_layer_that_dies_is_not_told(self) -> None:
        replica = holding(d=0)
        for value in (1, 2):
            commit(replica, "d", value).fate = Fate.SENT
        heard = listening(replica)
        replica.rejected(1, NO)
        assert replica.visible(D) == 2
        assert heard == []

    def test_several_changes_of_one_sync_are_one_difference(self) -> None:
        replica = holding(d={"n": 0}, e=0)
        heard = listening(replica)
        ups = tuple(Patched(D, seq, (increment(("n",)),)) for seq in (2, 3, 4))
        replica.integrate(Sync(4, (*ups, Whole(E, 4, True, 7))))
        assert [shown(n) for n in heard] == [
            (changed(D, before={"n": 0}, after={"n": 3}), changed(E, before=0, after=7))
        ]
        assert heard[0].seq == 4

    def test_there_and_back_within_one_sync_is_not_told(self) -> None:
        replica = holding(d={"n": 0})
        heard = listening(replica)
        replica.integrate(Sync(3, (Patched(D, 2, (increment(("n",)),)), Patched(D, 3, (increment(("n",), -1),)))))
        assert heard == []

    def test_a_change_to_a_value_that_is_not_here_counts_as_a_change(self) -> None:
        replica = holding(d=1)
        heard = listening(replica)
        assert replica.let_go(D)
        replica.integrate(Sync(2, (Patched(D, 2, (replace((), 2),)),)))
        assert [(n.kind, shown(n)) for n in heard] == [
            (Kind.INTEGRATE, (changed(D, before=ABSENT, after=ABSENT, known_before=False),))
        ]
        assert not replica.is_here(D)

    def test_after_a_gap_only_what_differs_is_told_as_a_reset(self) -> None:
        replica = holding(d=1, e=1)
        mirror = Mirror(replica)
        mirror.values.update({D: 1, E: 1})
        heard = listening(replica)
        replica.gap()
        assert not replica.is_here(D)
        replica.arrive([state_of(D, 1, 1)], 9)
        replica.arrive([state_of(E, 9, 2)], 9)
        assert [(n.kind, shown(n)) for n in heard] == [(Kind.RESET, (changed(E, before=1, after=2),))]
        assert mirror.differences() == []

    @pytest.mark.parametrize("value", [1, 2], ids=["as-before", "changed"])
    def test_an_arrival_after_an_unknown_change_is_always_told(self, value: int) -> None:
        """Whoever heard that it changed to something unknown must hear what it is."""
        replica = holding(d=1)
        mirror = Mirror(replica)
        mirror.values[D] = 1
        heard = listening(replica)
        replica.gap()
        replica.integrate(Sync(2, (Patched(D, 2, (replace((), 5),)),)))
        replica.arrive([state_of(D, 3, value)], 3)
        assert [change for n in heard for change in n.changes][-1].after == value
        assert mirror.differences() == []

    def test_a_layer_that_dies_between_a_gap_and_the_arrival_is_told_once_by_the_arrival(self) -> None:
        replica = holding(d=1)
        commit(replica, "d", 2).fate = Fate.SENT
        mirror = Mirror(replica)
        mirror.values[D] = 2
        heard = listening(replica)
        replica.gap()
        replica.rejected(1, NO)
        replica.arrive([state_of(D, 5, 7)], 9)
        assert [shown(n) for n in heard] == [(changed(D, before=2, after=7),)]
        assert mirror.differences() == []


class TestListenersThatWrite:
    def test_a_commit_made_while_hearing_another_goes_out_after_it(self) -> None:
        world = World("a")
        (a,) = world.clients
        a.watch("d", "e")
        world.settle()
        replies: list[Told] = []

        def answer(notification: Notification) -> None:
            if any(change.doc == D for change in notification.changes) and not replies:
                replies.append(a.write("e", add((), "reply")))

        a.replica.feed.subscribe(answer)
        told = a.write("d", replace((), 1))
        world.settle()
        assert told.landed
        assert replies[0].landed
        assert [change.commit.operations[0].doc.id for change in world.engine.changes().items] == ["d", "e"]
        assert a.mirror.differences() == []

    def test_a_commit_made_while_hearing_a_revert_stands_on_the_reverted_state(self) -> None:
        world = World("a", "b")
        a, b = world.clients
        for client in (a, b):
            client.watch("d")
        world.settle()
        a.write("d", replace((), {"n": 0}))
        world.settle()
        retried: list[Told] = []
        a.replica.feed.subscribe(
            lambda n: retried.append(a.do(bump("d"))) if n.kind is Kind.REVERT and not retried else None
        )
        b.do(putting("d", replace(("n",), 10)))
        b.send()
        lost = a.do(bump("d"))
        world.settle()
        assert not lost.landed
        # It ran before the winner arrived, so it may lose again; but it never stood on the dead layer.
        assert len(retried) == 1
        assert len(retried[0].calls) == 1
        assert a.mirror.differences() == []
        assert a.shows("d") == world.value("d")
