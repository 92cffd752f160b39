"""Waves: results of nodes that are one commit and one seq, judged one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import Patch, append, replace
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine import Engine, Limits
from headwater.engine.admission.access import ACCESS
from headwater.engine.provenance import ProvenanceEnd, trace_provenance
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify import verify_store
from headwater.errors import ProtocolError
from headwater.protocol.commit import Commit, NodeResult, Operation, Provenance, Read
from headwater.protocol.messages import DocChange, Patched, Sync, Transact, Way
from headwater.protocol.observations import Observation
from headwater.protocol.verdict import Accepted, Collision, Conflict, Rejected, RuleRefused, Verdict
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.kit import Writer, doc, open_engine, open_store, read, value_of, write
from tests.unit.engine.observing_kit import Runner, clean, looked
from tests.unit.replica.kit import World

NONE: Sequence[int] = ()
ONE = replace((), 1)


class Wave:
    """A wave that is built result by result: each writes 1 to the documents of its name."""

    def __init__(self, local_seq: int) -> None:
        self.local_seq = local_seq
        self.operations: list[Operation] = []
        self.reads: list[Read] = []
        self.results: list[NodeResult] = []

    def add(
        self,
        ids: str,
        *reads: Read,
        after: Sequence[int] = NONE,
        causes: str = "",
        hops: int = 0,
        patch: Patch = ONE,
    ) -> Wave:
        places = []
        for each in reads:
            if each not in self.reads:
                self.reads.append(each)
            places.append(self.reads.index(each))
        self.operations += [write(id, patch) for id in ids]
        origin = Provenance(f"{ids}-node", "code", tuple([(doc(id), ()) for id in causes]), True, hops)
        self.results.append(NodeResult(origin, len(ids), tuple(places), tuple(after)))
        return self

    def commit(self) -> Commit:
        return Commit(
            self.local_seq,
            tuple(self.operations),
            tuple(self.reads),
            provenance=Provenance(derived=True),
            results=tuple(self.results),
        )


def values(engine: Engine, ids: str) -> list[MaybeValue]:
    return [value_of(engine, id) for id in ids]


def started(*, limits: Limits | None = None, store: SqliteStore | None = None) -> tuple[Engine, Writer]:
    """A space with x and y, written at 1 and 2; x is written again at 3."""
    engine = open_engine(store or open_store(), limits=limits or Limits())
    author = Writer(engine, "author")
    for id in "xyx":
        author.lands(write(id, replace((), author.next)), node="author")
    engine.open_session("s")
    return engine, author


def submitted(engine: Engine, wave: Wave) -> Verdict:
    (verdict,) = engine.submit("s", wave.commit())
    return verdict


def changes_of(peer: Raw) -> list[DocChange]:
    """Everything that a connection was told of documents."""
    return [change for message in peer.heard if isinstance(message, Sync) for change in message.changes]


class TestJudging:
    def test_accepted_results_have_one_seq_and_are_one_row(self) -> None:
        engine, _ = started()
        wave = Wave(1).add("a", read("x", seq=3)).add("bc", read("y", seq=3), after=[0])
        assert submitted(engine, wave) == Accepted(1, 4)
        assert [engine.read(doc(id)).seq for id in "abc"] == [4, 4, 4]
        (logged,) = engine.changes(since=3).items
        assert logged.commit == wave.commit()

    def test_result_that_missed_a_write_is_left_out_with_its_readers(self) -> None:
        engine, _ = started()
        stale = read("x", seq=2)
        wave = Wave(1).add("a", stale).add("b", after=[0]).add("c", read("y", seq=2)).add("d", after=[1]).add("e")
        assert submitted(engine, wave) == Accepted(1, 4, superseded=(0, 1, 3))
        assert values(engine, "abcde") == [ABSENT, ABSENT, 1, ABSENT, 1]
        (logged,) = engine.changes(since=3).items
        assert [operation.doc for operation in logged.commit.operations] == [doc("c"), doc("e")]
        assert [result.operations for result in logged.commit.results] == [0, 0, 1, 0, 1]

    def test_wave_without_an_accepted_result_is_rejected_and_leaves_nothing(self) -> None:
        engine, _ = started()
        stale = read("x", seq=2)
        verdict = submitted(engine, Wave(1).add("a", stale).add("b", stale))
        missed = Collision(doc("x"), (), stale.depth, 2, 3, "author", "author")
        assert verdict == Rejected(1, Conflict((missed,)))
        assert (engine.last_seq, values(engine, "ab")) == (3, [ABSENT, ABSENT])

    def test_result_that_no_retry_brings_in_is_refused_by_its_rule(self) -> None:
        engine, _ = started(limits=Limits(document_bytes=100))
        wave = Wave(1).add("a", patch=replace((), "long" * 100)).add("b", after=[0]).add("c")
        verdict = submitted(engine, wave)
        assert isinstance(verdict, Accepted)
        assert (verdict.superseded, [(place, why.rule) for place, why in verdict.refused]) == (
            (1,),
            [(0, "document_bytes")],
        )
        assert values(engine, "abc") == [ABSENT, ABSENT, 1]

    def test_refused_results_of_a_rejected_wave_are_named_beside_the_conflict(self) -> None:
        engine, _ = started(limits=Limits(document_bytes=100))
        wave = Wave(1).add("a", patch=replace((), "long" * 100)).add("b", read("x", seq=2))
        verdict = submitted(engine, wave)
        assert isinstance(verdict, Rejected)
        assert isinstance(verdict.rejection, Conflict)
        assert [(place, why.rule) for place, why in verdict.refused] == [(0, "document_bytes")]

    @pytest.mark.parametrize("limits", [Limits(commit_reads=1), Limits(commit_operations=1), Limits(commit_patches=1)])
    def test_limits_of_a_commit_hold_for_each_result(self, limits: Limits) -> None:
        engine, _ = started(limits=limits)
        wave = Wave(1).add("a", read("x", seq=3)).add("bc", read("x", seq=3), read("y", seq=3)).add("d")
        verdict = submitted(engine, wave)
        assert isinstance(verdict, Accepted)
        assert [(place, why.rule) for place, why in verdict.refused] == [(1, "commit_size")]

    def test_patch_that_does_not_fit_supersedes_its_result(self) -> None:
        engine, _ = started()
        assert submitted(engine, Wave(1).add("x", patch=append((), [1])).add("a")) == Accepted(1, 4, superseded=(0,))

    def test_read_of_a_document_that_a_result_before_it_wrote_missed_that(self) -> None:
        engine, _ = started()
        own = read("a", seq=3)
        assert submitted(engine, Wave(1).add("a", own).add("b", own)) == Accepted(1, 4, superseded=(1,))
        assert submitted(engine, Wave(2).add("b", read("c", seq=4)).add("c")) == Accepted(2, 5)

    def test_result_that_changes_nothing_is_accepted_and_is_no_write(self) -> None:
        engine, _ = started()
        submitted(engine, Wave(1).add("a"))
        assert submitted(engine, Wave(2).add("a").add("b")) == Accepted(2, 5)
        assert (engine.read(doc("a")).seq, engine.read(doc("b")).seq) == (4, 5)
        assert engine.changes(since=4).items[0].dropped == {doc("a")}

    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_read_over_a_wave_stands_on_an_accepted_result(self, tmp_path: Path, is_restarted: bool) -> None:
        store = open_store(tmp_path / "space")
        engine, _ = started(store=store)
        submitted(engine, Wave(1).add("a", read("x", seq=2)).add("b"))
        if is_restarted:
            store.close()
            engine = open_engine(tmp_path / "space")
        over = {id: Commit(number, (), (read(id, seq=3, layers=((1, 1),)),)) for number, id in enumerate("ab", 2)}
        (dead,) = engine.submit("s", over["a"])
        assert dead == Rejected(2, Conflict(dead_layers=(1,)))
        (lives,) = engine.submit("s", over["b"])
        assert isinstance(lives, Accepted)

    def test_collision_with_a_result_names_its_node(self) -> None:
        engine, author = started()
        submitted(engine, Wave(1).add("a").add("b"))
        verdict = author.send(reads=[read("b", seq=3)])
        assert isinstance(verdict, Rejected)
        assert isinstance(verdict.rejection, Conflict)
        assert [(each.session, each.node) for each in verdict.rejection.collisions] == [("s", "b-node")]

    def test_wave_with_another_effect_is_no_wave(self) -> None:
        engine, _ = started()
        made = msgspec.structs.replace(Wave(1).add("a").commit(), handled=("event",))
        with pytest.raises(ProtocolError, match="is a wave"):
            engine.submit("s", made)


class TestReplay:
    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_replay_is_answered_with_the_same_seq_and_fates(self, tmp_path: Path, is_restarted: bool) -> None:
        path = tmp_path / "space"
        engine = open_engine(path)
        Writer(engine, "author").lands(write("x", replace((), 1)))
        engine.open_session("s")
        wave = Wave(1).add("a", read("x", seq=0)).add("b").commit()
        assert engine.submit("s", wave) == (Accepted(1, 2, superseded=(0,)),)
        if is_restarted:
            engine.close()
            engine = open_engine(path)
            engine.open_session("s")
        assert engine.submit("s", wave) == (Accepted(1, 2, replayed=True, superseded=(0,)),)
        assert engine.find_superseded("s", [1]) == ((1, (0,)),)
        assert values(engine, "ab") == [ABSENT, 1]
        other = msgspec.structs.replace(wave, operations=(wave.operations[0], write("b", replace((), 2))))
        with pytest.raises(ProtocolError, match="was accepted at seq 2 with other content"):
            engine.submit("s", other)
        engine.close()

    def test_replay_of_a_rejected_wave_is_rejected(self) -> None:
        engine, _ = started()
        wave = Wave(1).add("a", read("x", seq=2))
        first = submitted(engine, wave)
        assert submitted(engine, wave) == first


class TestRights:
    def test_result_without_the_right_is_refused_alone(self) -> None:
        engine = Engine(SqliteStore(":memory:", synchronous="OFF"), clock=VirtualClock(), access=True)
        Writer(engine, "root").lands(Operation(ACCESS, (replace((), {"owners": ["ann"], "readers": ["rob"]}),)))
        engine.open_session("s", "rob")
        wave = Wave(1).add("a").commit()
        own = Operation(doc("b", "user:rob"), (replace((), 1),))
        both = msgspec.structs.replace(wave, operations=(*wave.operations, own), results=wave.results * 2)
        (verdict,) = engine.submit("s", both)
        assert isinstance(verdict, Accepted)
        assert [(place, why.rule) for place, why in verdict.refused] == [(0, "access")]
        (verdict,) = engine.submit("s", msgspec.structs.replace(wave, local_seq=2))
        assert isinstance(verdict, Rejected)
        assert isinstance(verdict.rejection, RuleRefused)
        assert (verdict.rejection.rule, verdict.refused) == ("access", ())


class TestObservations:
    def test_runs_of_accepted_results_alone_are_kept(self) -> None:
        engine, _ = started()
        runner = Runner(engine, "r")
        wave = Wave(1).add("a", read("x", seq=2)).add("b", read("y", seq=2)).commit()
        stale = runner.run("p.a", looked("x", seq=2), local_seq=1)
        kept = runner.run("p.b", looked("y", seq=2), looked("b", seq=2), local_seq=1)
        runner.send(wave, observed=(stale, msgspec.structs.replace(kept, place=1)))
        assert clean(engine) == {"p.b": True}

    def test_repeated_runs_of_a_wave_outlive_a_crash(self, tmp_path: Path) -> None:
        """The row of the wave has them until the table is written back."""
        path = tmp_path / "space"
        store = open_store(path)
        runner = Runner(open_engine(store), "r")
        for number in range(1, 4):
            wave = Wave(number)
            runs: list[Observation] = []
            for place, id in enumerate("abc"):
                wave.add(id, patch=replace((), number))
                run = runner.run(f"p.{id}", looked(id, seq=0), local_seq=number)
                runs.append(msgspec.structs.replace(run, place=place))
            runner.send(wave.commit(), observed=tuple(runs))
        store.close()
        store = open_store(path)
        assert clean(open_engine(store)) == {"p.a": True, "p.b": True, "p.c": True}
        assert verify_store(store).violation is None


class TestReadingTheLog:
    def test_others_are_told_the_hops_and_the_node_of_each_result(self) -> None:
        world = World(limits=Limits(named_hops=3))
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        bob.watch(doc("a"), doc("b"), doc("c"))
        ann.say(Transact((Wave(1).add("a").add("b", read("x", seq=0), hops=4).add("c").commit(),)))
        told = {each.doc.id: each.way for each in changes_of(bob) if isinstance(each, Patched)}
        assert told == {"a": Way(1), "b": Way(5, "b-node", "ann"), "c": Way(1)}

    @pytest.mark.parametrize("is_caught_up", [False, True])
    def test_others_are_not_told_results_that_were_left_out(self, is_caught_up: bool) -> None:
        world = World()
        ann, bob = Raw(world, "ann"), Raw(world, "bob")
        bob.watch(doc("a"), doc("b"))
        ann.write(1, put("x", 1))
        wave = Wave(2).add("a", read("x", seq=0)).add("b").commit()
        if is_caught_up:
            world.engine.submit("ann", wave)
            bob.write(1, put("y", 1))
        else:
            ann.say(Transact((wave,)))
        assert [each.doc.id for each in changes_of(bob)] == ["b"]

    def test_why_follows_results_through_their_wave(self) -> None:
        engine, _ = started()
        wave = Wave(1).add("a", read("x", seq=3), causes="x").add("b", read("y", seq=3), after=[0], causes="a")
        submitted(engine, wave.add("c", after=[1]))
        found = trace_provenance(engine, doc("c"), (), most=10)
        assert [(step.doc.id, step.provenance.node, step.end) for step in found] == [
            ("c", "c-node", ProvenanceEnd.GOES_ON),
            ("b", "b-node", ProvenanceEnd.GOES_ON),
            ("a", "a-node", ProvenanceEnd.GOES_ON),
            ("x", "author", ProvenanceEnd.WRITTEN),
        ]

    @pytest.mark.parametrize("heads_commits", [1, 1_000])
    def test_space_with_waves_is_recovered_and_verified(self, tmp_path: Path, heads_commits: int) -> None:
        path, limits = tmp_path / "space", Limits(heads_commits=heads_commits, snapshot_patches=2, marks_patches=2)
        store = open_store(path)
        engine = open_engine(store, limits=limits)
        author = Writer(engine, "author")
        engine.open_session("s")
        for number in range(1, 8):
            seq = author.lands(write("x", replace((), number)))
            stale = read("x", seq=seq - 1)
            made = Wave(number).add("a", stale, patch=replace((), number)).add("b", after=[0])
            engine.submit("s", made.add("cd", read("x", seq=seq), patch=replace((), number)).commit())
        assert values(engine, "abcd") == [ABSENT, ABSENT, 7, 7]
        store.close()
        store = open_store(path)
        engine = open_engine(store, limits=limits)
        assert values(engine, "abcd") == [ABSENT, ABSENT, 7, 7]
        assert [value_of(engine, "c", at=seq) for seq in (2, 4, 14)] == [1, 2, 7]
        report = verify_store(store)
        assert (report.violation, report.commits) == (None, 14)
