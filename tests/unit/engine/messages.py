"""Provoking messages: how a case is registered, and what the cases share. Decides and checks nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.errors import CommitRejected, HeadwaterError, InvariantViolation
from headwater.protocol.verdict import Rejected, Verdict, as_error
from tests.unit.engine.kit import Writer, write
from tests.unit.engine.sealing import reseal


def raised(call: Callable[[], object]) -> str:
    """The message of the error that the call ends with."""
    try:
        outcome = call()
    except (HeadwaterError, InvariantViolation) as error:
        return str(error)
    raise AssertionError(f"nothing was raised, the answer was {outcome}")


def rejection(verdict: Verdict) -> str:
    assert isinstance(verdict, Rejected), verdict
    error = as_error(verdict)
    assert isinstance(error, CommitRejected)
    return str(error)


def ann_on(engine: Engine, commits: int = 0) -> Writer:
    ann = Writer(engine, "ann")
    for number in range(commits):
        ann.lands(write("d", replace((), {"x": number})))
    return ann


def execute(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for sql in statements:
        connection.cursor().execute(sql)
    connection.close()


def forge(path: Path, *statements: str) -> None:
    """The same by somebody who seals what was edited."""
    execute(path, *statements)
    connection = apsw.Connection(str(path))
    reseal(connection)
    connection.close()


Provoke = Callable[[Path], str]
CASES: dict[str, tuple[Provoke, tuple[str, ...]]] = {}


def case(*says: str) -> Callable[[Provoke], Provoke]:
    """Registers a function that provokes a message, with what must be in it."""

    def register(provoke: Provoke) -> Provoke:
        assert provoke.__name__ not in CASES, "two cases have one name"
        CASES[provoke.__name__] = (provoke, says)
        return provoke

    return register
