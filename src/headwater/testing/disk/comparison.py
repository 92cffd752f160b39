"""Compares the state after a crash or a fault with the tape, and counts the checks.

Defines when tables, documents and answers are the same. Raises `Violation`, which the harness collects; changes
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from headwater.engine import Outcome
from headwater.engine.verify import Report
from headwater.protocol.commit import encode_commit
from headwater.protocol.log_record import decode_record
from headwater.protocol.verdict import Accepted, Verdict
from headwater.testing.disk.machine import Documents
from headwater.testing.disk.steps import Frames
from headwater.testing.disk.tape import Answered, Asked, Tables, Tape, Transacted

# When these are written depends on the memory, which a crash empties. Their content follows from the log
# and is compared through the documents, and through the answers to refused commits (`judged`, which a
# session's seal covers; that it fits is the history oracle's to say).
DERIVED: Final = frozenset(
    {
        *("heads", "marks", "meta", "sessions.judged", "sessions.seal"),
        # Time goes on from the last moment that is stored, so that it is another one after a crash.
        *("targets.due_us", "targets.since_us", "targets.began_us", "targets.seal"),
    }
)


class Violation(Exception):
    """A failed check. Collected, not raised to the caller of the harness."""


@dataclass(slots=True)
class Tally:
    """The number of checks."""

    checks: int = 0
    acknowledged: int = 0  # commits, summed over all checks
    resent: int = 0  # frames
    violations: list[str] = field(default_factory=list)


def after_steps(tape: Tape) -> list[int]:
    """Which state each step ended with."""
    state = 0
    found = []
    for moment in tape.moments:
        state += isinstance(moment, Transacted)
        if isinstance(moment, Answered):
            found.append(state)
    return found


def opened(tape: Tape) -> int:
    """Which state a new space is in before its first step."""
    first = next((n for n, moment in enumerate(tape.moments) if isinstance(moment, Asked)), len(tape.moments))
    return sum(isinstance(moment, Transacted) for moment in tape.moments[:first])


def acknowledged(tape: Tape) -> list[list[tuple[int, bytes]]]:
    """The seq and the bytes of every commit that each step was told to be accepted."""
    found: list[list[tuple[int, bytes]]] = []
    for step, outcomes in zip(tape.steps, tape.answers, strict=True):
        frames = [frame for _, frame in step.batch] if isinstance(step, Frames) else []
        found.append(
            [
                (verdict.seq, encode_commit(commit))
                for frame, outcome in zip(frames, outcomes, strict=True)
                if not isinstance(outcome, Exception)
                for commit, verdict in zip(frame, outcome, strict=True)
                if isinstance(verdict, Accepted)
            ]
        )
    return found


def logged_commits(tables: Tables) -> tuple[dict[int, bytes], int]:
    """The commits in the log by seq, and the seq that history is kept from."""
    columns, *rows = tables.get("log") or [("seq", "body")]
    seq, body = columns.index("seq"), columns.index("body")
    logged: dict[int, bytes] = {}
    for row in rows:
        try:
            entries = decode_record(cast(bytes, row[body]))
        except (msgspec.MsgspecError, ValueError) as error:
            raise Violation(f"the log row of seq {row[seq]} cannot be read: {error}") from error
        for place, entry in enumerate(entries):
            logged[cast(int, row[seq]) + place] = bytes(entry.commit)
    meta = {str(row[0]): str(row[1]) for row in tables.get("meta", ())}
    return logged, int(meta.get("compacted_seq", 1))


def compare_tables(expected: Tables, found: Tables, when: str, without: frozenset[str] = frozenset()) -> None:
    for table in sorted({*expected, *found} - without):
        before, after = (_without(tables.get(table, []), table, without) for tables in (expected, found))
        if before != after:
            missing = [row for row in before if row not in after][:1]
            extra = [row for row in after if row not in before][:1]
            raise Violation(f"{when}: table {table} lacks {missing!r:.300} and has {extra!r:.300} instead")


def _without(rows: list[tuple[object, ...]], table: str, without: frozenset[str]) -> list[tuple[object, ...]]:
    """The rows of a table without some of its columns."""
    dropped = [place for place, column in enumerate(rows[0]) if f"{table}.{column}" in without] if rows else []
    if not dropped:
        return rows
    return [tuple(value for place, value in enumerate(row) if place not in dropped) for row in rows]


def compare_documents(expected: Documents, found: Documents, when: str) -> None:
    for at in sorted({*expected, *found}):
        if expected.get(at) != found.get(at):
            raise Violation(
                f"{when}: {at} reads {found.get(at, 'nothing')!r:.200}, not {expected.get(at, 'nothing')!r:.200}"
            )


def check_history(report: Report) -> None:
    if report.violation is not None:
        raise Violation(f"the history oracle: {report.violation}")


def compare_outcomes(expected: list[Outcome], found: list[Outcome], when: str) -> None:
    """The same fate for each commit. Why it was refused may have been forgotten, that it was may not."""
    for before, after in zip(expected, found, strict=True):
        if isinstance(before, Exception) or isinstance(after, Exception):
            if type(before) is not type(after):
                raise Violation(f"{when}: answered {after!r}, before it was {before!r}")
            continue
        for old, new in zip(before, after, strict=True):
            if type(old) is not type(new) or old.local_seq != new.local_seq:
                raise Violation(f"{when}: answered {new}, before it was {old}")
            if isinstance(old, Accepted) and isinstance(new, Accepted) and old.seq != new.seq:
                raise Violation(f"{when}: accepted at seq {new.seq}, before it was {old.seq}")


def verdicts(outcomes: list[Outcome]) -> list[Verdict]:
    return [verdict for outcome in outcomes if not isinstance(outcome, Exception) for verdict in outcome]


def has_refusal(outcome: Outcome) -> bool:
    return isinstance(outcome, Exception) or not all(isinstance(verdict, Accepted) for verdict in outcome)


def is_replayed(verdict: Verdict) -> bool:
    return not isinstance(verdict, Accepted) or verdict.replayed
