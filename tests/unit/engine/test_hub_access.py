"""Who hears what: the hub asks before it tells, and asks again when access changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.data.address import DocKey, Link
from headwater.data.patch import append, remove_value, replace
from headwater.data.value import ABSENT
from headwater.engine.admission.access import ACCESS
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.sync.peer import PeerState
from headwater.errors import StorageError
from headwater.protocol.commit import Commit, EntityAbsent, Operation
from headwater.protocol.messages import (
    Answer,
    Problem,
    Query,
    Selector,
    Sync,
    Transact,
    Verdicts,
    Watch,
    Watched,
)
from headwater.protocol.verdict import Rejected
from tests.unit.engine.faults import faulty
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.kit import Writer, doc, write
from tests.unit.replica.kit import World

D, E = doc("d"), doc("e")


class TestAccess:
    def space(self) -> tuple[World, Raw]:
        """ann owns it, rob reads it."""
        world = World(access=True)
        ann = Raw(world, "ann-session", principal="ann")
        ann.write(1, put("d", 1))
        ann.write(2, Operation(ACCESS, (append(("readers",), ["rob"]),)))
        return world, ann

    def test_the_first_commit_creates_the_space_and_its_author_owns_it(self) -> None:
        world = World(access=True)
        ann = Raw(world, "s", principal="ann")
        ann.watch(ACCESS, D)
        ann.write(1, put("d", 1))
        assert world.value(ACCESS) == {"owners": ("ann",), "writers": (), "readers": ()}
        told = [c.doc for m in ann.only(Sync) if isinstance(m, Sync) for c in m.changes]
        assert told == [D, ACCESS]

    def test_a_first_commit_that_is_rejected_founds_nothing_and_the_first_that_lands_does(self) -> None:
        """Also when both are of one group: who was first counts for nothing, only whose commit it is that landed."""
        world = World(access=True)
        sam = Raw(world, "sam-session", principal="sam")
        ann = Raw(world, "ann-session", principal="ann")
        bob = Raw(world, "bob-session", principal="bob")
        absent = write("d", replace(("x",), 1))
        told = sam.write(1, absent)[0]
        assert isinstance(told, Verdicts)
        assert isinstance(told.verdicts[0], Rejected)
        assert (world.engine.last_seq, world.value(ACCESS)) == (0, ABSENT)
        frames = [(sam, 2, absent), (ann, 1, put("d", 1)), (bob, 1, put("d", 2))]
        world.hub.process([(who.peer, Transact((Commit(number, (what,)),))) for who, number, what in frames])
        assert world.value(ACCESS) == {"owners": ("ann",), "writers": (), "readers": ()}
        assert (world.value(D), world.engine.last_seq) == (1, 2)
        assert [isinstance(message, Verdicts) for message in ann.heard].count(True) == 1
        assert sam.peer.is_closed()
        assert bob.peer.is_closed()

    def test_a_space_that_has_content_has_an_owner_whatever_fails(self, tmp_path: Path) -> None:
        """C7: the founding is part of the transaction of the first commit."""
        for after in range(1, 60):
            store, faults = faulty(SqliteStore(tmp_path / f"{after}.space", synchronous="OFF"))
            engine = Engine(store, clock=VirtualClock(), access=True)
            engine.open_session("s", "ann")
            faults.fail_at = len(faults.calls) + after
            try:
                outcomes = engine.submit_group([("s", (Commit(1, (put("d", 1),)),))], founds=True)
            except StorageError:
                assert engine.is_founded == (engine.last_seq > 0)
            else:
                assert isinstance(outcomes[0], tuple)
                assert (engine.is_founded, engine.last_seq) == (True, 2)
                return
        raise AssertionError("it never came to its end")

    def test_a_stranger_cannot_even_open(self) -> None:
        world, _ = self.space()
        sam = Raw(world, principal="sam")
        sam.open("sam-session")
        (problem,) = sam.heard
        assert isinstance(problem, Problem)
        assert "'sam' may not read this space. Ask one of its owners." in problem.message
        assert sam.peer.state is PeerState.CLOSED

    def test_a_reader_watches_and_asks_but_does_not_write(self) -> None:
        world, ann = self.space()
        rob = Raw(world, "rob-session", principal="rob")
        assert any(isinstance(message, Watched) for message in rob.watch(D))
        ann.write(3, put("d", 2))
        assert isinstance(rob.heard[-1], Sync)
        verdicts = rob.write(1, put("d", 9))[0]
        assert isinstance(verdicts, Verdicts)
        assert isinstance(verdicts.verdicts[0], Rejected)
        assert world.value("d") == 2

    @pytest.mark.parametrize("scope", ["user:ann", "session:ann-session"])
    def test_what_belongs_to_somebody_else_is_neither_watched_nor_asked_for(self, scope: str) -> None:
        world, ann = self.space()
        secret = DocKey(scope, "secret")
        ann.write(3, Operation(secret, (replace((), "s"),)))
        assert any(isinstance(message, Watched) for message in ann.watch(secret))
        rob = Raw(world, "rob-session", principal="rob")
        for message in (Watch(1, (Selector(secret),)), Query(1, scope, "secret"), Query(1, scope)):
            (problem,) = rob.say(message)
            assert isinstance(problem, Problem)
            assert "is not for 'rob'" in problem.message
            assert (problem.id, problem.fatal) == (1, False)
        assert "s" not in [s.get() for m in rob.heard if isinstance(m, Watched | Answer) for s in m.documents]

    def test_following_a_link_does_not_lead_into_somebody_else_s_documents(self) -> None:
        world, ann = self.space()
        ann.write(3, Operation(DocKey("user:ann", "secret"), (replace((), "s"),)))
        ann.write(4, put("d", [Link(scope="user:ann", id="secret"), Link(id="e")]))
        rob = Raw(world, "rob-session", principal="rob")
        (watched,) = [m for m in rob.watch(D, follow=True) if isinstance(m, Watched)]
        assert [state.doc for state in watched.documents] == [D, E]

    @pytest.mark.parametrize("by", ["an-owner", "the-host"])
    def test_who_may_not_read_any_more_hears_nothing_more(self, by: str) -> None:
        world, ann = self.space()
        rob = Raw(world, "rob-session", principal="rob")
        rob.watch(D)
        out = Operation(ACCESS, (remove_value(("readers",), "rob"),))
        if by == "an-owner":
            ann.write(3, out)
        else:
            Writer(world.engine, "host").lands(out)
        ann.write(4, put("d", "private"))
        assert rob.peer.state is PeerState.CLOSED
        assert isinstance(rob.heard[-1], Problem)
        assert "private" not in str(rob.heard)
        assert world.hub.watched == 0
        again = Raw(world, principal="rob")
        again.open("rob-session", rob.token)
        assert again.peer.state is PeerState.CLOSED

    def test_one_who_stays_is_not_disturbed_by_another_s_removal(self) -> None:
        world, ann = self.space()
        ann.write(3, Operation(ACCESS, (append(("readers",), ["zoe"]),)))
        rob, zoe = (Raw(world, f"{name}-session", principal=name) for name in ("rob", "zoe"))
        for peer in (rob, zoe):
            peer.watch(D)
        ann.write(4, Operation(ACCESS, (remove_value(("readers",), "rob"),)))
        ann.write(5, put("d", 5))
        assert zoe.peer.state is PeerState.OPEN
        last = zoe.heard[-1]
        assert isinstance(last, Sync)
        assert last.changes[0].doc == D

    def test_somebody_else_s_documents_cannot_be_probed(self) -> None:
        world, ann = self.space()
        ann.write(3, Operation(DocKey("user:ann", "there"), (replace((), 1),)))
        rob = Raw(world, "rob-session", principal="rob")
        answers = []
        for number, name in enumerate(("there", "not-there"), 1):
            said = rob.say(Transact((Commit(number, preconditions=(EntityAbsent(DocKey("user:ann", name)),)),)))
            answers.append(str(said[0]).replace(name, "NAME").replace(f"local_seq={number}", "local_seq=N"))
        assert answers[0] == answers[1]
