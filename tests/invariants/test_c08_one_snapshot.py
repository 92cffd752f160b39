"""C8: reads of one transaction see one snapshot.

The engine's part: the answer of one call is of one moment and says which, a moment once read never changes, and a
commit whose reads are of two moments is judged by each read's own. The replica's part: a transaction keeps the view it
began with, whatever arrives, reverts or is let go while it lasts.
"""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.patch import increment, replace
from headwater.data.value import MaybeValue
from headwater.engine import Limits
from headwater.protocol.verdict import Accepted
from headwater.replica import Transaction
from tests.counts import scaled
from tests.unit.engine.kit import Writer, conflict_of, doc, open_engine, read, seq_of, value_of, write
from tests.unit.replica.kit import Client, Told, Work, World, bump


def test_every_document_of_a_page_is_of_the_same_moment() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    for number in range(20):
        ann.lands(write("a", increment(())), write("b", increment(())), write(f"d{number}", replace((), 1)))
        page = engine.documents("space")
        assert {document.as_of for document in page.items} == {engine.last_seq}
        values = {document.doc.id: document.value for document in page.items}
        assert values["a"] == values["b"] == number + 1


def test_a_moment_once_read_looks_the_same_for_ever() -> None:
    engine = open_engine(limits=Limits(snapshot_patches=2, cache_bytes=1))
    ann = Writer(engine, "ann")
    seen = {}
    for number in range(40):
        seq = ann.lands(write("a", increment(())), write("b", replace((), {"n": number})))
        seen[seq] = (value_of(engine, "a"), value_of(engine, "b"))
    for seq, values in seen.items():
        assert (value_of(engine, "a", at=seq), value_of(engine, "b", at=seq)) == values


def test_several_reads_at_one_seq_are_a_snapshot_while_others_write() -> None:
    """Two documents that always change together are never seen apart."""
    engine = open_engine()
    ann = Writer(engine, "ann")
    for _ in range(30):
        ann.lands(write("a", increment(())), write("b", increment(())))
        moment = engine.last_seq
        left = value_of(engine, "a", at=moment)
        ann.lands(write("a", increment(())), write("b", increment(())))  # between the two reads
        assert value_of(engine, "b", at=moment) == left


def test_a_read_answers_with_the_moment_it_is_of() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    first = ann.lands(write("a", replace((), 1)))
    second = ann.lands(write("b", replace((), 1)))
    assert (engine.read(doc("a")).seq, engine.read(doc("a")).as_of) == (first, second)
    past = engine.read(doc("b"), at=first)
    assert (past.seq, past.as_of) == (0, first)


def test_reads_of_different_moments_stand_only_if_each_still_holds() -> None:
    """A torn view is admitted only where it equals a whole one."""
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    old = bob.lands(write("a", replace((), 1)), write("b", replace((), 1)))
    new = bob.lands(write("a", replace((), 2)), write("b", replace((), 2)))
    torn = ann.send(write("c", replace((), 1)), reads=[read("a", seq=old), read("b", seq=new)])
    assert [c.doc.id for c in conflict_of(torn).collisions] == ["a"]
    third = bob.lands(write("b", replace((), 3)))
    whole = ann.send(write("c", replace((), 1)), reads=[read("a", seq=new), read("b", seq=third)])
    assert seq_of(whole)


def test_the_operations_of_a_commit_become_visible_together() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    wave = [
        ann.commit(write("a", replace((), 1)), write("b", replace((), 1))),
        ann.commit(write("a", replace((), 2)), write("b", replace((), 2))),
    ]
    verdicts = engine.submit("ann", *wave)
    for verdict, value in zip(verdicts, (1, 2), strict=True):
        assert isinstance(verdict, Accepted)
        assert [value_of(engine, id, at=verdict.seq) for id in "ab"] == [value, value]


# ---- the replica ---------------------------------------------------------------------------------------


def both_at_zero(*names: str) -> World:
    """Documents a and b, which every writer below changes together."""
    world = World(*names)
    for client in world.clients:
        client.watch("a", "b")
    world.settle()
    world.clients[0].do(raise_both(0))
    world.settle()
    return world


def raise_both(number: int) -> Work:
    def work(transaction: Transaction) -> None:
        for id in "ab":
            transaction.write(doc(id), replace((), {"n": number}))

    return work


@pytest.mark.parametrize("event", ["integrate", "commit", "revert", "let-go", "gap", "confirm"])
def test_a_transaction_keeps_its_view_whatever_happens_while_it_lasts(event: str) -> None:
    world = both_at_zero("reader", "writer")
    reader, writer = world.clients
    if event in ("revert", "confirm"):
        if event == "revert":
            writer.do(bump("a"))
            writer.send()
        reader.do(bump("a"))
    transaction = reader.replica.begin()
    basis = transaction.basis
    before = transaction.read(doc("a"), ("n",))
    match event:
        case "integrate":
            writer.do(raise_both(9))
        case "commit":
            reader.do(raise_both(9))
        case "let-go":
            assert reader.replica.let_go(doc("a"))
            assert reader.replica.let_go(doc("b"))
        case "gap":
            reader.down()
            world.later(10**9)
            writer.do(raise_both(9))
            world.settle()
            reader.up()
        case _:
            pass  # "revert" and "confirm": the verdict that `settle` brings
    world.settle()
    assert transaction.read(doc("a"), ("n",)) == before
    assert transaction.read(doc("b"), ("n",)) == 0
    assert {each.seq for each in transaction.reads()} == {basis}


def test_a_view_that_is_stale_by_the_commit_is_refused_as_a_whole() -> None:
    """One snapshot is not enough: it must also be the truth when the commit lands (C1)."""
    world = both_at_zero("reader", "writer")
    reader, writer = world.clients
    transaction = reader.replica.begin()
    seen = transaction.read(doc("a"), ("n",))
    writer.do(raise_both(9))
    world.settle()
    assert isinstance(seen, int)
    transaction.write(doc("b"), replace(("n",), seen + 1))
    told = Told()
    reader.replica.commit(transaction, told)
    world.settle()
    assert not told.landed
    assert world.value("b") == {"n": 9}


@pytest.mark.random
def test_documents_that_change_together_are_never_seen_apart_however_messages_come() -> None:
    for seed in range(scaled(300)):
        random = Random(seed)
        world = both_at_zero("reader", "writer", "late")
        reader, writer, late = world.clients
        for number in range(1, 30):
            match random.randrange(5):
                case 0:
                    writer.do(raise_both(number))
                case 1:
                    random.choice(world.clients).send(1)
                case 2:
                    random.choice(world.clients).hear(1)
                case 3:
                    late.again()
                case _:
                    forget(late, random)
            for client in (reader, late):
                assert seen_apart(client) == [], seed


def forget(client: Client, random: Random) -> None:
    id = random.choice("ab")
    if client.replica.let_go(doc(id)):
        client.watch(id)


def seen_apart(client: Client) -> list[MaybeValue]:
    """The two documents in one view, if both are here and differ."""
    transaction = client.replica.begin()
    if not (client.replica.is_here(doc("a")) and client.replica.is_here(doc("b"))):
        return []
    values = [transaction.read(doc(id)) for id in "ab"]
    return [] if values[0] == values[1] else values
