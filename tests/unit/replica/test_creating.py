"""A document that is created without being looked at: a receipt. It lands once, and leaves nothing behind."""

from __future__ import annotations

from headwater.data.patch import replace
from headwater.data.value import Value
from headwater.protocol.verdict import PreconditionFailed
from headwater.replica.transaction import Transaction
from tests.unit.replica.kit import Client, Work, World, doc

RECEIPT = doc("receipt")


def creating(value: Value, *, also: str = "") -> Work:
    def work(transaction: Transaction) -> None:
        transaction.create(RECEIPT, value)
        if also:
            transaction.write(doc(also), replace((), value))

    return work


def held(client: Client) -> set[str]:
    return {document.key.id for document in client.replica.documents.held()}


def test_a_document_that_is_not_here_can_be_created_and_is_forgotten_once_it_landed() -> None:
    world = World("ann")
    (ann,) = world.clients
    told = ann.do(creating({"n": 1}))
    assert not ann.replica.is_here(RECEIPT)
    world.settle()
    assert told.landed
    assert world.value(RECEIPT) == {"n": 1}
    assert "receipt" not in held(ann), "a receipt for each event would fill the memory"


def test_the_second_one_is_refused_for_good_with_all_that_it_wrote() -> None:
    world = World("ann", "bob")
    ann, bob = world.clients
    for client in (ann, bob):
        client.watch("d")
    world.settle()
    first, second = ann.do(creating("ann's", also="d")), bob.do(creating("bob's", also="d"))
    world.settle()
    assert first.landed
    assert isinstance(second.rejection, PreconditionFailed)
    assert (world.value(RECEIPT), world.value("d")) == ("ann's", "ann's")
    assert bob.replica.visible(doc("d")) == "ann's"
    assert all("receipt" not in held(client) for client in (ann, bob))


def test_whoever_watches_it_goes_on_seeing_it() -> None:
    world = World("ann", "bob")
    ann, bob = world.clients
    for client in (ann, bob):
        client.watch("receipt")
    world.settle()
    ann.do(creating(7))
    assert ann.replica.visible(RECEIPT) == 7, "at once"
    world.settle()
    assert [client.replica.visible(RECEIPT) for client in (ann, bob)] == [7, 7]


def test_a_receipt_that_was_on_the_wire_is_replayed_as_it_was() -> None:
    world = World("ann")
    (ann,) = world.clients
    told = ann.do(creating(1))
    ann.next_out()  # it leaves, and the connection is lost before it arrives
    ann.again()
    world.settle()
    assert told.landed
    assert (world.value(RECEIPT), world.engine.last_seq) == (1, 1)
    assert "receipt" not in held(ann)
