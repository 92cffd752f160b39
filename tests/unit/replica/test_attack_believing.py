"""Attacks on what a replica believes: fates that the engine did not give, and values that nobody keeps current."""

from __future__ import annotations

from dataclasses import replace as changed

from headwater.data.address import DocKey, Link
from headwater.data.patch import replace
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.replica.transaction import Transaction
from tests.unit.replica.kit import Client, World, bump, doc, putting, together

NOTE = DocKey("user:ann", "note")


def a_reader_beside_an_owner() -> tuple[World, Client, Client]:
    """Bob owns the space, ann may read it; both watch src and out."""
    world = World(access=True)
    bob = world.join("b", principal="bob")
    bob.watch("src", "out", DocKey("space", "$access"))
    world.settle()
    bob.write("src", replace((), {"n": 1}))
    world.settle()
    readers = {"owners": ("bob",), "writers": (), "readers": ("ann",)}
    bob.do(lambda t: t.write(DocKey("space", "$access"), replace((), readers)))
    world.settle()
    ann = world.join("a", principal="ann")
    ann.watch("src", "out", NOTE)
    world.settle()
    ann.replica.may_write = False
    return world, bob, ann


def derives(transaction: Transaction) -> None:
    transaction.read(doc("src"))
    transaction.write(doc("out"), replace((), {"v": 2}))


def notes(transaction: Transaction) -> None:
    transaction.read(doc("out"))
    transaction.write(NOTE, replace((), {"saw": 2}))


def test_a_commit_on_a_local_layer_that_yields_is_not_told_that_it_landed() -> None:
    world, bob, ann = a_reader_beside_an_owner()
    ann.do(derives, derived=True)
    told = ann.do(notes)  # names the layer that stays here
    bob.write("out", replace((), {"v": 3}))
    bob.send()
    ann.hear()
    world.settle()
    assert world.engine.read(NOTE).seq == 0, "the engine rejected it"
    assert not told.landed


def test_what_a_reader_writes_of_its_own_lands_although_it_looked_at_something_derived_here() -> None:
    world, _, ann = a_reader_beside_an_owner()
    ann.do(derives, derived=True)
    told = ann.do(notes)
    world.settle()
    assert told.landed or world.engine.read(NOTE).seq, "whatever is tried again names the same layer again"


def test_a_local_layer_does_not_keep_the_engine_from_letting_verdicts_go() -> None:
    world, _, ann = a_reader_beside_an_owner()
    ann.do(derives, derived=True)
    for number in range(3):
        ann.do(lambda t, number=number: t.write(NOTE, replace((), {"n": number})))  # type: ignore[misc]
        world.settle()
    assert world.engine.session("a").acked >= 3


def test_a_document_whose_watch_could_not_be_widened_is_still_kept_current() -> None:
    world = World("a", "b", limits=changed(DEFAULT_LIMITS, follow_documents=2))
    a, b = world.clients
    for client in (a, b):
        client.watch("d", "e")
    world.settle()
    links = tuple(Link(id=f"x{number}") for number in range(3))
    b.do(together(putting("d", replace((), {"n": 0, "links": links})), putting("e", replace((), {"n": 0}))))
    world.settle()
    a.watch("d", follow=True)
    world.settle()
    assert a.failed_loads, "links lead to too many documents"
    a.again()
    world.settle()
    b.do(bump("d"))
    world.settle()
    a.do(bump("e"))  # moves a's seq past the write that it did not hear of
    world.settle()
    if a.replica.is_here(doc("d")):
        a.do(bump("d"))
        world.settle()
        b.do(bump("d"))
        world.settle()
        shown = world.value("d")
        assert isinstance(shown, dict)
        assert shown["n"] == 3, "an increment was overwritten by somebody who never saw it"
