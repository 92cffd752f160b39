"""Stories of several replicas that write to the same documents at the same time."""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.patch import add, append, increment, replace
from headwater.data.value import MaybeValue
from headwater.engine import Limits
from headwater.protocol.messages import Transact
from headwater.protocol.verdict import Conflict, Rejection
from headwater.replica import Layer, Transaction
from tests.unit.replica.kit import Client, Told, Work, World, bump, doc, putting, together


def sharing(*names: str, limits: Limits | None = None, **values: object) -> World:
    """Everybody watches these documents, which the first client makes."""
    world = World(limits=limits or Limits())
    for number, name in enumerate(names):
        world.join(name, encoding="json" if number % 2 else "msgpack")
    world.settle()
    for client in world.clients:
        client.watch(*values)
    world.settle()
    world.clients[0].do(together(*(putting(id, replace((), value)) for id, value in values.items())))
    world.settle()
    return world


class Persistent:
    """Runs its work again after every conflict, once the winner is here. What a scheduler does."""

    def __init__(self, client: Client, work: Work, times: int) -> None:
        self.client = client
        self.work = work
        self.left = times
        self.attempts = 0
        self.waiting: Conflict | None = None
        self.running = False

    def step(self) -> None:
        if self.running or not self.left or (self.waiting and not self.client.session.ready(self.waiting)):
            return
        self.running, self.waiting = True, None
        self.attempts += 1
        transaction = self.client.replica.begin()
        self.work(transaction)
        self.client.replica.commit(transaction, self.heard)

    def heard(self, layer: Layer, rejection: Rejection | None) -> None:
        self.running = False
        if rejection is None:
            self.left -= 1
        else:
            assert isinstance(rejection, Conflict)
            self.waiting = rejection


def test_eight_writers_increment_one_counter_through_intents_and_nothing_is_lost() -> None:
    world = sharing(*"abcdefgh", count={"n": 0})
    random = Random(8)
    tolds = [client.write("count", increment(("n",))) for client in world.clients for _ in range(20)]
    for _ in range(400):
        client = random.choice(world.clients)
        random.choice((client.send, client.hear))(1)
    world.settle()
    assert all(told.landed for told in tolds)
    assert world.value("count") == {"n": 160}
    assert all(client.shows("count") == {"n": 160} for client in world.clients)


def test_eight_writers_increment_it_by_reading_and_writing_and_nothing_is_lost() -> None:
    world = sharing(*"abcdefgh", count={"n": 0})
    random = Random(9)
    writers = [Persistent(client, bump("count"), 10) for client in world.clients]
    for _ in range(30_000):
        if not any(writer.left for writer in writers):
            break
        writer = random.choice(writers)
        writer.step()
        random.choice((writer.client.send, writer.client.hear))()
    world.settle()
    assert world.value("count") == {"n": 80}
    assert [writer.left for writer in writers] == [0] * 8
    # A held writer does not spin: it tries again only once it has seen who won.
    assert sum(writer.attempts for writer in writers) < 80 * 8


def test_three_whole_array_appends_survive_a_conflict_storm() -> None:
    world = sharing("a", "b", "c", "storm", list={"items": [], "other": 0})

    def appending(item: str) -> Work:
        def work(transaction: Transaction) -> None:
            items = transaction.read(doc("list"), ("items",))
            assert isinstance(items, tuple)
            transaction.write(doc("list"), replace(("items",), [*items, item]))

        return work

    writers = [Persistent(client, appending(client.session.key), 1) for client in world.clients[:3]]
    storm = Persistent(world.clients[3], appending("x"), 9)
    for _ in range(200):
        for writer in (storm, *writers):
            writer.step()
        storm.client.pump()
        for writer in writers:
            writer.client.pump()
    world.settle()
    value = world.value("list")
    assert isinstance(value, dict)
    items = value["items"]
    assert isinstance(items, tuple)
    assert sorted(map(str, items)) == ["a", "b", "c", *["x"] * 9]


def test_disjoint_keys_commit_from_the_same_basis_and_the_same_key_conflicts() -> None:
    world = sharing("a", "b", "c", board={"cards": {"one": {"title": ""}, "two": {"title": ""}}})
    a, b, c = world.clients

    def rename(card: str, title: str) -> Work:
        def work(transaction: Transaction) -> None:
            path = ("cards", card, "title")
            transaction.read(doc("board"), path)
            transaction.write(doc("board"), replace(path, title))

        return work

    tolds = [a.do(rename("one", "A")), b.do(rename("two", "B")), c.do(rename("one", "C"))]
    whole = c.do(lambda t: t.write(doc("board"), add(("count",), len(str(t.read(doc("board"), ("cards",)))))))
    world.settle()
    assert [told.landed for told in tolds] == [True, True, False]
    assert not whole.landed
    assert world.value("board") == {"cards": {"one": {"title": "A"}, "two": {"title": "B"}}}


def test_a_commit_over_a_rejected_layer_is_refused_transitively_and_never_sent() -> None:
    world = sharing("a", "b", d={"n": 0, "m": 0})
    a, b = world.clients
    b.do(bump("d"))
    b.send()
    a.do(bump("d"))  # will lose
    over = a.replica.begin()
    together(bump("d"), bump("d", ("m",)))(over)
    over_that: list[Told] = []
    a.send()
    a.hear()  # the verdict: the layer under `over` is dead
    told = Told()
    assert isinstance(a.replica.commit(over, told), Conflict)
    over_that.append(a.do(bump("d", ("m",))))
    sent = [commit.local_seq for m in (*a.sent, *a.session.outgoing) if isinstance(m, Transact) for commit in m.commits]
    world.settle()
    assert not told.landed
    assert told.calls[0][0].local_seq not in sent or over.local_seq == 0
    assert over_that[0].landed
    assert world.value("d") == {"n": 1, "m": 1}


def test_a_stack_of_optimistic_edits_stands_on_itself_and_lands_whole() -> None:
    world = sharing("a", "b", d={"n": 0})
    a, b = world.clients
    tolds = [a.do(bump("d")) for _ in range(50)]
    assert a.shows("d") == {"n": 50}
    assert b.shows("d") == {"n": 0}
    world.settle()
    assert all(told.landed for told in tolds)
    assert b.shows("d") == {"n": 50}


def test_a_stack_of_edits_that_loses_falls_whole_and_can_be_made_again() -> None:
    world = sharing("a", "b", d={"n": 0})
    a, b = world.clients
    tolds = [a.do(bump("d")) for _ in range(50)]
    b.do(bump("d"))
    b.send()
    world.settle()
    assert not any(told.landed for told in tolds)
    assert a.shows("d") == b.shows("d") == {"n": 1}
    again = [a.do(bump("d")) for _ in range(50)]
    world.settle()
    assert all(told.landed for told in again)
    assert world.value("d") == {"n": 51}


@pytest.mark.parametrize("window", [1, 8])
def test_a_chat_of_three_ends_the_same_for_everybody(window: int) -> None:
    """Appends merge in the order of the log; own lines are shown at once and move to their place."""
    world = sharing("a", "b", "c", chat={"lines": []}, limits=Limits(sync_window=window, sync_patches=2))
    random = Random(window)
    said = 0
    for _ in range(300):
        client = random.choice(world.clients)
        match random.randrange(4):
            case 0:
                line = f"{client.session.key}{said}"
                said += 1
                client.write("chat", append(("lines",), [line]))
                assert line in lines(client.shows("chat"))
            case 1 | 2:
                random.choice((client.send, client.hear))(1)
            case _ if random.random() < 0.1:
                client.again()
    world.settle()
    final = lines(world.value("chat"))
    assert [lines(client.shows("chat")) for client in world.clients] == [final] * 3
    assert all(client.mirror.differences() == [] for client in world.clients)
    assert len(final) == len(set(final))


def lines(value: MaybeValue) -> tuple[object, ...]:
    assert isinstance(value, dict)
    found = value["lines"]
    assert isinstance(found, tuple)
    return found
