"""C5: within a session verdicts come in local_seq order; gaps are layers refused locally."""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.patch import append, replace
from headwater.errors import ProtocolError
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Accepted, Rejected
from tests.counts import scaled
from tests.unit.engine.kit import Writer, open_engine, read, value_of, write


def test_a_wave_answers_one_verdict_per_commit_in_its_order() -> None:
    engine = open_engine()
    Writer(engine, "bob").lands(write("d", replace((), {"x": 0})))
    Writer(engine, "bob2").lands(write("d", replace(("x",), 1)))
    ann = Writer(engine, "ann")
    stale = [read("d", ("x",), seq=1)]
    wave = [ann.commit(write(f"k{n}", replace((), n)), reads=stale if n % 2 else ()) for n in range(6)]
    verdicts = engine.submit("ann", *wave)
    assert [verdict.local_seq for verdict in verdicts] == [1, 2, 3, 4, 5, 6]
    assert [isinstance(verdict, Accepted) for verdict in verdicts] == [True, False] * 3
    assert [verdict.seq for verdict in verdicts if isinstance(verdict, Accepted)] == [3, 4, 5]


def test_seqs_rise_with_local_seqs_whatever_else_is_in_the_group() -> None:
    engine = open_engine()
    writers = [Writer(engine, name) for name in "abc"]
    batch = []
    for round_ in range(4):
        for writer in writers:
            batch.append((writer.key, [writer.commit(write("d", append((), [(writer.key, round_)])))]))
    outcomes = engine.submit_group(batch)
    seqs: dict[str, list[int]] = {}
    for (key, _), outcome in zip(batch, outcomes, strict=True):
        assert isinstance(outcome, tuple)
        assert isinstance(outcome[0], Accepted)
        seqs.setdefault(key, []).append(outcome[0].seq)
    assert all(sorted(each) == each for each in seqs.values())
    assert value_of(engine, "d") == tuple((key, round_) for round_ in range(4) for key in "abc")


def test_gaps_are_allowed_and_stay_gaps() -> None:
    engine = open_engine()
    engine.open_session("ann")
    assert engine.submit("ann", Commit(7, (write("d", append((), [7])),)))[0] == Accepted(7, 1)
    late = engine.submit("ann", Commit(3, (write("d", append((), [3])),)))[0]
    assert isinstance(late, Rejected)
    assert value_of(engine, "d") == (7,)


def test_a_turn_that_is_over_never_comes_back() -> None:
    """A number below the last verdict was refused locally, rejected, or accepted: it is not judged again."""
    engine = open_engine()
    engine.open_session("ann")
    engine.submit("ann", Commit(10, (write("d", append((), [10])),)))
    before = engine.last_seq
    for local_seq in (1, 5, 9):
        assert isinstance(engine.submit("ann", Commit(local_seq, (write("d", append((), [0])),)))[0], Rejected)
    assert engine.last_seq == before


@pytest.mark.parametrize("numbers", [(2, 1), (1, 1), (0,), (-3,), (1, 3, 2)])
def test_numbers_that_do_not_rise_are_no_frame(numbers: tuple[int, ...]) -> None:
    engine = open_engine()
    engine.open_session("ann")
    frame = [Commit(number, (write("d", append((), [number])),)) for number in numbers]
    with pytest.raises(ProtocolError, match="local_seq must rise"):
        engine.submit("ann", *frame)
    assert engine.last_seq == 0


def test_a_frame_outside_the_protocol_uses_up_no_numbers() -> None:
    engine = open_engine()
    engine.open_session("ann")
    with pytest.raises(ProtocolError):
        engine.submit("ann", Commit(2), Commit(1))
    assert engine.submit("ann", Commit(1), Commit(2)) == (Accepted(1, 1), Accepted(2, 2))


@pytest.mark.random
def test_any_mixture_of_frames_and_gaps_is_answered_in_order() -> None:
    for seed in range(scaled(200)):
        random = Random(seed)
        engine = open_engine()
        engine.open_session("ann")
        last, seqs = 0, [0]
        for _ in range(10):
            frame = []
            for _ in range(random.randrange(1, 5)):
                last += random.choice((1, 1, 1, 2, 5))
                kind = append((), [last]) if random.random() < 0.8 else replace(("no",), 1)
                frame.append(Commit(last, (write("d", kind),)))
            verdicts = engine.submit("ann", *frame)
            assert [v.local_seq for v in verdicts] == [c.local_seq for c in frame]
            seqs += [v.seq for v in verdicts if isinstance(v, Accepted)]
        assert seqs == list(range(len(seqs)))
