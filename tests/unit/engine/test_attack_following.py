"""Attacks on following links: how much one watcher can make the one thread of a space do."""

from __future__ import annotations

import pytest

from headwater.data.address import DocKey, Link
from headwater.data.patch import increment, replace
from headwater.engine.engine import Engine
from headwater.engine.log.history import HistoricDocument
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import Selector, Watch
from tests.unit.replica.kit import World, doc

MANY = 200


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[DocKey]:
    """Every document that is read from now on."""
    seen: list[DocKey] = []
    read = Engine.read

    def counted(self: Engine, doc: DocKey, *, branch: str = "main", at: int | None = None) -> HistoricDocument:
        seen.append(doc)
        return read(self, doc, branch=branch, at=at)

    monkeypatch.setattr(Engine, "read", counted)
    return seen


def a_tree() -> World:
    """A root that links to many documents, and two who are connected."""
    world = World("a", "b")
    world.engine.open_session("z")
    leaves = tuple(Operation(doc(f"d{number}"), (replace((), {"n": 0}),)) for number in range(MANY))
    links = tuple(Link(id=f"d{number}") for number in range(MANY))
    world.engine.submit("z", Commit(1, leaves))
    world.engine.submit("z", Commit(2, (Operation(doc("root"), (replace((), {"links": links}),)),)))
    world.settle()
    return world


def test_a_change_that_moves_no_link_does_not_walk_all_that_is_followed(reads: list[DocKey]) -> None:
    world = a_tree()
    follower, writer = world.clients
    follower.watch("root", follow=True)
    writer.watch("d0")
    world.settle()
    reads.clear()
    writer.write("d0", increment(("n",), 1))
    world.settle()
    assert len(reads) < MANY // 4


def test_a_watch_that_names_one_document_many_times_walks_its_links_once(reads: list[DocKey]) -> None:
    world = a_tree()
    peer = world.clients[0].peer
    assert peer is not None
    reads.clear()
    world.hub.process([(peer, Watch(77, (Selector(doc("root"), True),) * 50))])
    assert len(reads) < 4 * MANY
