"""What a space remembers over a restart, a kill and a full stop in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headwater.data.patch import append, replace
from headwater.engine import Directory
from headwater.errors import ProtocolError
from headwater.protocol.commit import Commit, EntityAbsent
from headwater.protocol.verdict import Accepted, PreconditionFailed, Rejected
from tests.unit.engine.delivery_kit import lease_new_target
from tests.unit.engine.kit import Writer, conflict_of, doc, open_engine, read, value_of, write

KILLED = textwrap.dedent(
    """
    import sys
    from headwater.data.patch import append
    from headwater.engine import Directory
    from headwater.protocol.commit import Commit
    from tests.unit.engine.kit import write

    engine = Directory(sys.argv[1]).space("shop")
    engine.open_session("child")
    for number in range(1, 100_000):
        (verdict,) = engine.submit("child", Commit(number, (write("d", append((), [number], keep=10)),)))
        print(verdict.local_seq, verdict.seq, flush=True)
    """
)


def test_a_killed_process_loses_nothing_that_it_had_acknowledged(tmp_path: Path) -> None:
    """The child prints a line after each verdict and is killed without warning in the middle of its work."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout is not None
    acknowledged = [child.stdout.readline().split() for _ in range(100)]
    child.send_signal(signal.SIGKILL)
    acknowledged += [line.split() for line in child.stdout if line.endswith("\n")]
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    with Directory(tmp_path, synchronous="OFF") as directory:
        engine = directory.space("shop")
        last_local, last_seq = map(int, acknowledged[-1])
        assert engine.last_seq in (last_seq, last_seq + 1)  # one may have landed without its verdict leaving
        assert engine.open_session("child").last in (last_local, last_local + 1)
        logged = [c for start in range(0, last_seq, 1_000) for c in engine.changes(since=start).items]
        known = {change.commit.local_seq: change.seq for change in logged}
        assert all(known[int(local)] == int(seq) for local, seq in acknowledged)
        value = engine.read(doc("d"), at=last_seq).value
        assert value == tuple(range(max(1, last_local - 9), last_local + 1))


def test_a_space_comes_back_as_it_was(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    ann = Writer(engine, "ann")
    for number in range(50):
        ann.lands(write("d", append((), [number])), write(f"e{number % 3}", replace((), number)))
    engine.fork("dev", at=20)
    ann.lands(write("d", append((), ["dev"])), branch="dev")
    held = lease_new_target(engine)
    before = [engine.read(doc(id), branch=b) for id in ("d", "e0", "e1", "none") for b in ("main", "dev")]
    engine.close()
    engine = open_engine(tmp_path / "s.space")
    after = [engine.read(doc(id), branch=b) for id in ("d", "e0", "e1", "none") for b in ("main", "dev")]
    assert after == before
    assert engine.last_seq == 52
    ann.engine = engine
    ann.lands(preconditions=[held])


def test_an_identical_replay_finds_its_seq_an_altered_one_is_an_error_both_before_preconditions(
    tmp_path: Path,
) -> None:
    engine = open_engine(tmp_path / "s.space")
    engine.open_session("s")
    receipt = Commit(1, (write("receipt", replace((), "done")),), preconditions=(EntityAbsent(doc("receipt")),))
    assert engine.submit("s", receipt)[0] == Accepted(1, 1)
    engine.close()
    engine = open_engine(tmp_path / "s.space")
    assert engine.submit("s", receipt)[0] == Accepted(1, 1, replayed=True)
    altered = Commit(1, (write("receipt", replace((), "other")),), preconditions=receipt.preconditions)
    with pytest.raises(ProtocolError, match="with other content"):
        engine.submit("s", altered)


def test_a_redelivery_after_a_restart_is_refused_even_if_every_write_would_be_a_no_op(tmp_path: Path) -> None:
    """A second handling of the same event, by another session, finds the receipt."""
    engine = open_engine(tmp_path / "s.space")
    engine.open_session("before")
    handled = (write("receipt", replace((), "done")), write("d", replace((), 1)))
    engine.submit("before", Commit(1, handled, preconditions=(EntityAbsent(doc("receipt")),)))
    engine.close()
    engine = open_engine(tmp_path / "s.space")
    engine.open_session("after")
    verdict = engine.submit("after", Commit(1, handled, preconditions=(EntityAbsent(doc("receipt")),)))[0]
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.rejection, PreconditionFailed)
    assert verdict.rejection.precondition == "entity_absent"
    assert engine.last_seq == 1


def test_a_stack_sent_before_a_restart_goes_on_after_it(tmp_path: Path) -> None:
    """Commits in flight when the engine stopped are replayed byte for byte, and the rest follows."""
    engine = open_engine(tmp_path / "s.space")
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 0, "y": 0})))
    stack = [
        ann.commit(write("d", replace(("x",), 1)), reads=[read("d", ("x",), seq=basis)]),
        ann.commit(write("d", replace(("x",), 2)), reads=[read("d", ("x",), seq=basis, layers=((2, 2),))]),
        ann.commit(write("d", replace(("x",), 3)), reads=[read("d", ("x",), seq=basis, layers=((2, 3),))]),
    ]
    engine.submit("ann", stack[0])
    bob.lands(write("d", replace(("y",), 9)))
    engine.close()
    engine = open_engine(tmp_path / "s.space")
    verdicts = engine.submit("ann", *stack)
    assert [isinstance(verdict, Accepted) for verdict in verdicts] == [True, True, True]
    assert value_of(engine, "d") == {"x": 3, "y": 9}


def test_a_conflict_names_the_winner_also_when_it_was_written_before_the_restart(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), 0)))
    bob.lands(write("d", replace((), 1)), node="Board.rename")
    engine.close()
    engine = ann.engine = open_engine(tmp_path / "s.space")
    (collision,) = conflict_of(ann.send(reads=[read("d", seq=basis)])).collisions
    assert (collision.seq, collision.session, collision.node) == (2, "bob", "Board.rename")
    assert value_of(engine, "d") == 1


def test_opening_and_closing_leaves_one_file_per_space(tmp_path: Path) -> None:
    for _ in range(3):
        with Directory(tmp_path, synchronous="OFF") as directory:
            for name in ("a", "b", "c"):
                engine = directory.space(name)
                engine.open_session("s")
                last = engine.open_session("s").last
                engine.submit("s", Commit(last + 1, (write("d", append((), [last])),)))
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["a.space", "b.space", "c.space", "owner.lock"]
    with Directory(tmp_path) as directory:
        assert directory.spaces() == ["a", "b", "c"]
        assert [value_of(directory.space(name), "d") for name in "abc"] == [(0, 1, 2)] * 3
