"""Whatever somebody changes with a database tool, verifying finds it: every cell of every row of every table.

The spaces hold all that a space can hold. Each damage is done inside a transaction of the store that is verified, and
rolled back, so that one space serves for all of them. Nobody here knows how rows are sealed. `./dev sim` does all of
it, `./dev test` and `./dev check` the same tenth, evenly chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import apsw
import pytest

from headwater.clock import VirtualClock
from headwater.data.address import Depth
from headwater.data.patch import add, append, increment, remove, replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.lazy_file import LazyFileStore
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_file, verify_store
from headwater.errors import CorruptionError
from headwater.protocol.commit import Commit, SentEvent, TopicRecord
from headwater.protocol.verdict import Accepted
from tests.counts import sampled
from tests.unit.engine.delivery_kit import lease_target, reacted
from tests.unit.engine.kit import doc, open_engine, read, write
from tests.unit.engine.observing_kit import Runner, looked, node

pytestmark = pytest.mark.thorough

LIMITS = Limits(snapshot_patches=2, marks_patches=2, heads_commits=7, snapshots_fresh=2)
Row: TypeAlias = tuple[Any, ...]


def worked(engine: Engine) -> None:
    """Documents that come and go, sessions of every kind, branches, leases, what was sent, refusals."""
    for key in ("ann", "bob", "cid", "idle"):
        engine.open_session(key, f"user {key}")

    def lands(key: str, *commits: Commit) -> None:
        assert all(isinstance(verdict, Accepted) for verdict in engine.submit(key, *commits))

    for n in range(1, 13):
        lands(
            "ann",
            Commit(
                n,
                (write(f"d{n % 2}", replace((), {"n": n, "m": [n]})),),
                events=(SentEvent(f"e{n}", "stream", {"p": n}, n),) if n % 4 == 1 else (),
                records=(TopicRecord("topic", "key", n), TopicRecord(f"t{n}", "", None)) if n % 4 == 2 else (),
            ),
        )
    lands("bob", Commit(1, (write("wave", add((), [0])),)), Commit(2, (write("wave", append((), [1])),)))
    assert not isinstance(engine.submit("bob", Commit(3, reads=(read("d0", seq=0),)))[0], Accepted)
    engine.fork("side")
    engine.fork("gone", parent="side")
    for n in range(1, 6):
        lands("cid", Commit(n, (write("d0", replace(("n",), -n)),), branch="side"))
    lands("cid", Commit(6, (write("only on gone", add((), 1)),), branch="gone"))
    engine.delete_branch("gone")
    lands("ann", Commit(13, (write("d1", remove(())),), preconditions=(lease_target(engine, "key"),)))
    lands("ann", Commit(14))  # what writes nothing is a commit, too
    engine.acknowledge("ann", 3)
    observed(engine)
    reacted(engine)


def observed(engine: Engine) -> None:
    """What nodes did, on two branches and for a user, what was never written, and what another space reads."""
    for key, branch in (("runs", "main"), ("runs on the side", "side")):
        runner = Runner(engine, key, branch=branch)
        seq = engine.last_seq
        runner.observe(
            runner.run("p.total", looked("d0", "n", seq=seq), looked("wave", seq=seq), cause=doc("d0"), took_us=9),
            runner.run("p.views", looked("d0", seq=seq, depth=Depth.SHAPE), children=("k1", "k2")),
            runner.run(node("p.views", child="k1"), looked("never written", seq=seq), failed="ValueError"),
            runner.run(node("q.mine", scope="user", principal="ann"), looked("d0", "m", 0, seq=seq)),
        )


def went_on(engine: Engine) -> None:
    for n in range(15, 25):
        sent = SentEvent(f"e{n}", "stream", n), TopicRecord("topic", "key", n)
        engine.submit("ann", Commit(n, (write("d0", increment(("n",))),), events=sent[:1], records=sent[1:]))
    engine.close_session("cid", 6)


def whole(path: Path) -> None:
    engine = open_engine(path, limits=LIMITS)
    worked(engine)
    went_on(engine)
    engine.close()


def merged(path: Path) -> None:
    engine = open_engine(path, limits=LIMITS)
    worked(engine)
    assert isinstance(engine.merge("side")[1], Accepted)
    engine.close()


def compacted(path: Path) -> None:
    """A history whose beginning was given up: bases, rows kept for sessions, a document that is only a name."""
    engine = open_engine(path, limits=LIMITS)
    worked(engine)
    engine.delete_branch("side")
    engine.close_session("cid", 6)
    assert engine.compact(10) == 10
    went_on_twice = Limits(snapshot_patches=3, marks_patches=5, heads_commits=4)
    engine.close()
    engine = open_engine(path, limits=went_on_twice)
    assert engine.compact(21) == 21
    engine.open_session("dan", "user dan")
    engine.submit("dan", Commit(1, (write("d0", increment(("n",))),)), Commit(2, (write("new", add((), 1)),)))
    engine.close()


def deferred(path: Path) -> None:
    """The file is made by the first commit, out of what was in memory."""
    engine = Engine(LazyFileStore(path, synchronous="OFF"), clock=VirtualClock(), limits=LIMITS)
    engine.open_session("looks", "user looks")
    worked(engine)
    engine.close()


def crashed(path: Path) -> None:
    """Heads are behind the log, and nobody has opened the space since."""
    store = SqliteStore(path, synchronous="OFF")
    engine = Engine(store, clock=VirtualClock(), limits=LIMITS)
    worked(engine)
    for n in range(15, 25):
        engine.submit("ann", Commit(n, (write(f"new {n // 4}", add((), n)),)))
    store.close()


SPACES: dict[str, Callable[[Path], None]] = {
    "whole": whole,
    "merged": merged,
    "compacted": compacted,
    "deferred": deferred,
    "crashed": crashed,
}


class Table(NamedTuple):
    name: str
    columns: list[str]
    keys: list[str]
    rows: list[Row]

    def where(self, row: Row) -> tuple[str, Row]:
        values = tuple(row[self.columns.index(key)] for key in self.keys)
        return " AND ".join(f"{key}=?" for key in self.keys), values


class Damage(NamedTuple):
    what: str
    statements: list[tuple[str, Row]]


class Space:
    """A store and all that is in it."""

    def __init__(self, path: Path) -> None:
        opened: list[apsw.Connection] = []
        apsw.connection_hooks.append(opened.append)
        try:
            self.store = SqliteStore(path, synchronous="OFF", create=False)
        finally:
            apsw.connection_hooks.remove(opened.append)
        self._connection = opened[-1]  # the store's own, so that it sees damage that is taken back after each look
        names = self._all("SELECT name FROM sqlite_schema WHERE type='table' ORDER BY name")
        self.tables = [self._table(name) for (name,) in names]

    def _table(self, name: str) -> Table:
        info = self._all(f"PRAGMA table_info({name})")
        keys = [column[1] for column in info if column[5]] or ["rowid"]
        columns = [*(column[1] for column in info), *(["rowid"] if keys == ["rowid"] else [])]
        return Table(name, columns, keys, self._all(f"SELECT {', '.join(columns)} FROM {name}"))

    def _all(self, statement: str) -> list[Row]:
        return self._connection.execute(statement).fetchall()

    def is_found(self, damage: Damage) -> bool | None:
        """None: SQLite itself does not let it happen."""
        self.store.begin()
        try:
            try:
                for statement, values in damage.statements:
                    self._connection.execute(statement, values)
            except apsw.ConstraintError:
                return None
            try:
                return not verify_store(self.store).ok
            except CorruptionError:
                return True
        finally:
            self.store.rollback()

    def close(self) -> None:
        self.store.close()


def other_values(value: object) -> Iterator[object]:
    if isinstance(value, int):
        yield from {value + 1, value - 1, 0, 2**40} - {value}
    elif isinstance(value, str):
        yield from {value + "x", value[:-1], " " + value, "0" + value, value.upper()} - {value}
    else:
        assert isinstance(value, bytes)
        yield value + b"\x00"
        if value:
            yield value[:-1]
            for place in {0, 3, len(value) // 2, len(value) - 1}:
                if place < len(value):
                    yield value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]


def edits(table: Table) -> Iterator[Damage]:
    for row in table.rows:
        where, named = table.where(row)
        for column, value in zip(table.columns, row, strict=True):
            if column == "rowid":
                continue  # no column of ours: nobody reads it
            for other in other_values(value):
                statement = f"UPDATE {table.name} SET {column}=? WHERE {where}", (other, *named)
                yield Damage(f"{table.name}.{column} of {named} is {other!r} for {value!r}", [statement])


def removals(table: Table) -> Iterator[Damage]:
    for row in table.rows:
        where, named = table.where(row)
        yield Damage(f"{table.name} lacks {named}", [(f"DELETE FROM {table.name} WHERE {where}", named)])
    if len(table.rows) > 1:
        yield Damage(f"{table.name} is empty", [(f"DELETE FROM {table.name}", ())])


def additions(table: Table) -> Iterator[Damage]:
    """A row that is there once more, but for one cell of its name."""
    insert = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({','.join('?' * len(table.columns))})"
    for row in table.rows:
        for place in range(len(table.columns)):
            for other in other_values(row[place]):
                again = (*row[:place], other, *row[place + 1 :])
                yield Damage(f"{table.name} has {again}, too", [(insert, again)])


def exchanges(table: Table) -> Iterator[Damage]:
    """Neighbours that have each other's content: one column, and all that does not name them."""
    free = [column for column in table.columns if column not in table.keys]
    for one, two in zip(table.rows, table.rows[1:], strict=False):
        for columns in (*([column] for column in free), free):
            places = [table.columns.index(column) for column in columns]
            values = [tuple(row[place] for place in places) for row in (one, two)]
            if not columns or values[0] == values[1]:
                continue
            changed = ", ".join(f"{column}=?" for column in columns)
            statements = []
            for row, taken in ((one, values[1]), (two, values[0])):
                where, named = table.where(row)
                statements.append((f"UPDATE {table.name} SET {changed} WHERE {where}", (*taken, *named)))
            yield Damage(f"{table.name}: {columns} of {one[:3]} and {two[:3]} changed places", statements)


DAMAGES: dict[str, Callable[[Table], Iterator[Damage]]] = {
    "edited": edits,
    "removed": removals,
    "added": additions,
    "exchanged": exchanges,
}


@pytest.fixture(scope="module", params=[*SPACES])
def space(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    path = tmp_path_factory.mktemp("cells") / "x.space"
    SPACES[request.param](path)
    report = verify_file(path)
    assert report.ok, report
    opened = Space(path)
    yield opened
    opened.close()


def test_the_spaces_hold_rows_in_every_table(space: Space) -> None:
    assert len(space.tables) == 17
    assert all(table.rows for table in space.tables)


def test_of_a_crashed_space_a_missing_last_commit_is_the_only_change_that_looks_like_an_earlier_crash(
    tmp_path: Path,
) -> None:
    """Its rows after the last write-back have no witness but the chain, and of the last one nothing follows."""
    path = tmp_path / "x.space"
    store = SqliteStore(path, synchronous="OFF")
    engine = Engine(store, clock=VirtualClock(), limits=Limits(heads_commits=1_000))
    worked(engine)
    for n in range(15, 19):
        engine.submit("ann", Commit(n, (write("d0", increment(("n",))),)))
    last = engine.last_seq
    store.close()
    space = Space(path)
    last_commit = f"log lacks ({last},)"
    damages = [damage for table in space.tables for each in DAMAGES.values() for damage in each(table)]
    tried = [*sampled(damages), *(damage for damage in damages if damage.what == last_commit)]
    missed = {damage.what for damage in tried if space.is_found(damage) is False}
    space.close()
    assert missed == {last_commit}
    open_engine(path).close()  # which writes down how far the log goes
    space = Space(path)
    log = next(table for table in space.tables if table.name == "log")
    assert all(space.is_found(damage) for damage in removals(log))
    space.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP INDEX snapshots_by_seq",
        "CREATE TABLE notes (text TEXT)",
        "CREATE TRIGGER thief AFTER INSERT ON targets BEGIN UPDATE targets SET holder='thief'; END",
        "ALTER TABLE targets ADD COLUMN note TEXT",
        "CREATE VIEW everything AS SELECT * FROM log",
    ],
)
def test_a_changed_schema_is_found(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "x.space"
    whole(path)
    editor = apsw.Connection(str(path))
    editor.execute(statement)
    editor.close()
    found = verify_file(path).violation
    assert found is not None
    assert found.rule == "integrity"
    assert "the schema is not the one of its version: " in found.message


@pytest.mark.parametrize("how", DAMAGES)
def test_whatever_is_changed_is_found(space: Space, how: str) -> None:
    assert verify_store(space.store).ok
    missed, tried = [], 0
    damages = sampled([damage for table in space.tables for damage in DAMAGES[how](table)])
    for damage in damages:
        found = space.is_found(damage)
        tried += found is not None
        if found is False:
            missed.append(damage.what)
    assert not missed, f"{len(missed)} of {tried}: {missed[:20]}"
    assert tried > len(damages) // 10
    assert verify_store(space.store).ok
