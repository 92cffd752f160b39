"""Many writers on one space: what does not touch does not collide, and intents merge."""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.patch import add_unique, append, increment, remove_value, replace
from headwater.data.value import lookup
from headwater.engine import Engine
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Accepted, Verdict
from tests.unit.engine.kit import SHAPE, Writer, conflict_of, open_engine, read, seq_of, value_of, write

WRITERS = 10
ROUNDS = 20


def writers_on(engine: Engine) -> list[Writer]:
    return [Writer(engine, f"w{n}") for n in range(WRITERS)]


def sent_together(engine: Engine, sent: list[tuple[Writer, Commit]]) -> list[Verdict]:
    """All frames in one group, as a busy server would take them."""
    verdicts: list[Verdict] = []
    for outcome in engine.submit_group([(writer.key, [commit]) for writer, commit in sent]):
        assert isinstance(outcome, tuple), outcome
        verdicts += outcome
    return verdicts


@pytest.mark.parametrize("grouped", [True, False], ids=["in-groups", "one-by-one"])
def test_ten_writers_on_ten_keys_of_one_map_never_conflict(grouped: bool) -> None:
    """Each reads and rewrites its own key from a basis that is as old as the last round."""
    engine = open_engine()
    writers = writers_on(engine)
    writers[0].lands(write("map", replace((), {f"k{n}": 0 for n in range(WRITERS)})))
    for _ in range(ROUNDS):
        basis = engine.last_seq
        sent = []
        for number, writer in enumerate(writers):
            key = (f"k{number}",)
            seen = lookup(value_of(engine, "map", at=basis), key)
            assert isinstance(seen, int)
            sent.append(
                (writer, writer.commit(write("map", replace(key, seen + 1)), reads=[read("map", key, seq=basis)]))
            )
        Random(basis).shuffle(sent)
        verdicts = (
            sent_together(engine, sent)
            if grouped
            else [engine.submit(writer.key, commit)[0] for writer, commit in sent]
        )
        assert all(isinstance(verdict, Accepted) for verdict in verdicts)
    assert value_of(engine, "map") == {f"k{n}": ROUNDS for n in range(WRITERS)}


def test_ten_writers_adding_ten_new_keys_to_one_map_never_conflict() -> None:
    engine = open_engine()
    writers = writers_on(engine)
    basis = writers[0].lands(write("map", replace((), {})))
    for number, writer in enumerate(writers):
        key = (f"k{number}",)
        writer.lands(write("map", increment(key)), reads=[read("map", key, seq=basis)])
    assert value_of(engine, "map") == {f"k{n}": 1 for n in range(WRITERS)}


def test_ten_writers_appending_to_one_list_never_conflict_and_everyone_sees_one_order() -> None:
    engine = open_engine()
    writers = writers_on(engine)
    landed: list[tuple[int, tuple[str, int]]] = []
    for round_ in range(ROUNDS):
        sent = [(w, w.commit(write("list", append((), [(w.key, round_)])))) for w in writers]
        Random(round_).shuffle(sent)
        for (writer, _), verdict in zip(sent, sent_together(engine, sent), strict=True):
            landed.append((seq_of(verdict), (writer.key, round_)))
    final = value_of(engine, "list")
    assert isinstance(final, tuple)
    assert len(final) == WRITERS * ROUNDS
    assert final == tuple(item for _, item in sorted(landed))  # the order of the log, and nothing else
    for writer in writers:
        own = [item for item in final if isinstance(item, tuple) and item[0] == writer.key]
        assert own == [(writer.key, round_) for round_ in range(ROUNDS)]


def test_counters_and_sets_merge_by_intent_too() -> None:
    engine = open_engine()
    writers = writers_on(engine)
    for round_ in range(ROUNDS):
        for writer in writers:
            writer.lands(
                write("counter", increment((), 2)),
                write("tags", add_unique((), round_ % 3), remove_value((), 99)),
            )
    assert value_of(engine, "counter") == 2 * WRITERS * ROUNDS
    assert value_of(engine, "tags") == (0, 1, 2)


def test_writers_of_the_same_key_conflict_and_exactly_one_wins_each_round() -> None:
    engine = open_engine()
    writers = writers_on(engine)
    writers[0].lands(write("d", replace((), {"x": 0})))
    for round_ in range(5):
        basis = engine.last_seq
        reads = [read("d", ("x",), seq=basis)]
        verdicts = [w.send(write("d", replace(("x",), f"{w.key}/{round_}")), reads=reads) for w in writers]
        winners = [verdict for verdict in verdicts if isinstance(verdict, Accepted)]
        assert len(winners) == 1
        for verdict in verdicts[1:]:
            assert [c.seq for c in conflict_of(verdict).collisions] == [winners[0].seq]


def test_a_reader_of_the_whole_container_conflicts_with_a_writer_of_any_key_in_it() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("map", replace((), {"a": 1, "b": 1})))
    bob.lands(write("map", replace(("b",), 2)))
    conflict_of(ann.send(write("sum", replace((), 2)), reads=[read("map", seq=basis)]))
    assert ann.lands(write("keys", replace((), 2)), reads=[read("map", seq=basis, depth=SHAPE)])
    assert ann.lands(write("map", replace(("a",), 2)), reads=[read("map", ("a",), seq=basis)])


def test_retrying_on_what_the_conflict_names_lands_every_writer_within_as_many_rounds_as_writers() -> None:
    """Eight writers increment by reading and writing; everyone's increment is in the end result."""
    engine = open_engine()
    writers = writers_on(engine)
    writers[0].lands(write("n", replace((), 0)))
    waiting = list(writers)
    rounds = 0
    while waiting:
        rounds += 1
        assert rounds <= WRITERS
        basis = engine.last_seq
        seen = value_of(engine, "n", at=basis)
        assert isinstance(seen, int)
        verdicts = [(w, w.send(write("n", replace((), seen + 1)), reads=[read("n", seq=basis)])) for w in waiting]
        waiting = [writer for writer, verdict in verdicts if not isinstance(verdict, Accepted)]
    assert value_of(engine, "n") == WRITERS
