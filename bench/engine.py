"""The engine against the limit: bare apsw writing the same bytes with the same durability, in one run."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import apsw

from bench.figures import Figures, interleaved, note, seconds
from bench.million import run as run_million
from headwater.data.address import Depth, DocKey
from headwater.data.limits import DEFAULT_VALUE_LIMITS
from headwater.data.patch import replace
from headwater.data.value import Value
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit, Operation, Read, checked_frame, encode_commit
from headwater.protocol.verdict import Accepted, Rejected, Verdict

HISTORIES: Final = (10, 1_000, 100_000)
KEYS: Final = 20
DOCUMENT: Final[Value] = {f"field{n:02}": "x" * 40 for n in range(KEYS)}  # one KiB
SAMPLE: Final = 200
READS: Final = 2_000
COMMITS_IN_FLIGHT: Final = 64
GROUPS: Final = 60
WIDTHS: Final = (1, 10, 100, 1_000, 10_000)
WIDE_ROUNDS: Final = 16  # as many as there are commits between two snapshots of a document
WIDE_DOCUMENTS: Final = 1_000


class Writer:
    """One session that commits one-leaf patches, with their read, as an application would."""

    def __init__(self, engine: Engine, session: str) -> None:
        self.engine = engine
        self.session = session
        self.local_seq = 0
        engine.open_session(session)

    def commit(self, doc: DocKey, field: int, basis: int | None = None) -> Commit:
        """The next commit: writes one field, having read it."""
        self.local_seq += 1
        path = (f"field{field % KEYS:02}",)
        reads = () if basis is None else (Read(doc, path, Depth.DEEP, basis),)
        return Commit(self.local_seq, (Operation(doc, (replace(path, f"value {self.local_seq}"),)),), reads)

    def create(self, doc: DocKey) -> None:
        self.local_seq += 1
        self.engine.submit(self.session, Commit(self.local_seq, (Operation(doc, (replace((), DOCUMENT),)),)))

    def grow(self, doc: DocKey, patches: int) -> None:
        """Patches on every field but the first, so that a read of the first stays current for ever."""
        self.create(doc)
        for begin in range(0, patches, 250):
            frames = [
                (self.session, (self.commit(doc, 1 + n % (KEYS - 1)),)) for n in range(begin, min(begin + 250, patches))
            ]
            self.engine.submit_group(frames)


@contextmanager
def opened(name: str) -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        engine = Engine(SqliteStore(Path(folder) / f"{name}.space"))
        yield engine
        engine.close()


def run(figures: Figures) -> None:
    flat_costs(figures)
    wide_commits(figures)
    against_bare(figures)
    run_million(figures)


# ---- costs that do not grow with history ---------------------------------------------------------


def flat_costs(figures: Figures) -> None:
    with opened("flat") as engine:
        writer = Writer(engine, "writer")
        docs = {patches: DocKey("space", f"doc{patches}") for patches in HISTORIES}
        begins = {}
        for patches, doc in docs.items():
            note(f"  growing a history of {patches} patches")
            begins[patches] = engine.last_seq + 1
            writer.grow(doc, patches)
        ends = dict(zip(HISTORIES, [*(begins[h] - 1 for h in HISTORIES[1:]), engine.last_seq], strict=True))
        random = Random(7)

        def commit(patches: int) -> int:
            doc = docs[patches]
            for _ in range(SAMPLE):
                accepted(engine.submit("writer", writer.commit(doc, 1, engine.last_seq)))
            return SAMPLE

        def admit(patches: int) -> int:
            old = Read(docs[patches], ("field00",), Depth.DEEP, begins[patches])
            return admitted(engine, old)

        def admit_cold(patches: int) -> int:
            old = Read(docs[patches], ("field00",), Depth.DEEP, begins[patches])
            for _ in range(50):
                forget(engine)
                admitted(engine, old, 1)
            return 50

        def read(patches: int) -> int:
            doc = docs[patches]
            for _ in range(READS):
                engine.read(doc)
            return READS

        def read_cold(patches: int) -> int:
            for _ in range(50):
                forget(engine)
                engine.read(docs[patches])
            return 50

        def read_past(patches: int) -> int:
            for _ in range(SAMPLE):
                engine.read(docs[patches], at=random.randint(begins[patches], ends[patches]))
            return SAMPLE

        kinds: list[tuple[str, Callable[[int], int], float]] = [
            ("read_past", read_past, 4.0),
            ("read_current", read, 1.5),
            ("read_current_cold", read_cold, 1.5),
            ("admit_old_basis", admit, 1.5),
            ("admit_old_basis_cold", admit_cold, 1.5),
            ("commit", commit, 1.5),
        ]
        for name, work, at_most in kinds:
            note(f"  {name}")
            times = interleaved({str(patches): partial(work, patches) for patches in HISTORIES})
            for patches in HISTORIES:
                figures.report(
                    f"engine.{name}.{patches}",
                    times[str(patches)] * 1e6,
                    "us",
                    against=f"the same at {HISTORIES[0]} patches",
                    ratio=times[str(patches)] / times[str(HISTORIES[0])],
                    at_most=at_most,
                )


def admitted(engine: Engine, read: Read, times: int = READS) -> int:
    session = engine.session("writer")
    for _ in range(times):
        if engine.is_current(session, (read,)) is not True:
            raise AssertionError("the old basis should still be current")
    return times


def forget(engine: Engine) -> None:
    """As after a restart: nothing of any document is in memory."""
    engine.drop_caches()


def accepted(verdicts: tuple[Verdict, ...]) -> None:
    if not all(isinstance(verdict, Accepted) for verdict in verdicts):
        raise AssertionError(f"a commit of the bench was rejected: {verdicts}")


# ---- commits of many documents ------------------------------------------------------------------


class WideWriter:
    """One session whose commits each write many small documents. Counts processor time: others may use the machine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.local_seq = 0
        engine.open_session("writer")

    def commit(self, begin: int, documents: int) -> float:
        """Write documents by their numbers. Answers the processor time of the engine, in seconds."""
        self.local_seq += 1
        value: Value = {"n": self.local_seq, "text": "x" * 10}
        patches = (replace((), value),)
        docs = [DocKey("space", f"doc{n}") for n in range(begin, begin + documents)]
        commit = Commit(self.local_seq, tuple([Operation(doc, patches) for doc in docs]))
        started = time.process_time()
        verdicts = self.engine.submit("writer", commit)
        spent = time.process_time() - started
        accepted(verdicts)
        return spent


def wide_commits(figures: Figures) -> None:
    """Commits of 1 to 10,000 documents, then 1,000 commits of 1,000 documents.

    The first part does without Python's cyclic collector, as `timeit` does: the wide commits of one engine would pay
    for looking through the documents of all the others.
    """
    with ExitStack() as engines:
        engines.callback(gc.enable)
        gc.disable()
        writers = {size: WideWriter(engines.enter_context(opened(f"wide{size}"))) for size in WIDTHS}
        spent = dict.fromkeys(WIDTHS, 0.0)
        for turn in range(WIDE_ROUNDS + 1):
            note(f"  commits of {WIDTHS[0]} to {WIDTHS[-1]} documents, round {turn} of {WIDE_ROUNDS}")
            for size, writer in writers.items():
                commits = max(1, WIDE_DOCUMENTS // size)
                seconds = sum([writer.commit(0, size) for _ in range(commits)]) / commits / size
                spent[size] += seconds if turn else 0.0  # The first round makes the documents.
        costs = {size: total / WIDE_ROUNDS for size, total in spent.items()}
        for size in WIDTHS:
            best = min([costs[other] for other in WIDTHS if other <= size])
            figures.report(
                f"engine.wide_commit.{size}",
                costs[size] * 1e6,
                "us of processor time a document",
                against="the cheapest of the narrower commits",
                ratio=costs[size] / best,
                at_most=1.5,
            )
    gc.collect()
    for name, step in (("same", 0), ("new", WIDE_DOCUMENTS)):
        with opened(f"wide-{name}") as engine:
            writer = WideWriter(engine)
            hundreds: list[float] = []
            for hundred in range(10):
                note(f"  commits of {WIDE_DOCUMENTS} {name} documents, {100 * hundred} of 1,000")
                begins = [step * (100 * hundred + n) for n in range(100)]
                hundreds.append(sum([writer.commit(begin, WIDE_DOCUMENTS) for begin in begins]) / 100 / WIDE_DOCUMENTS)
            figures.report(
                f"engine.wide_commits_{name}.1000",
                hundreds[-1] * 1e6,
                "us of processor time a document",
                against="commits 101 to 200, with the cache as full",
                ratio=hundreds[-1] / hundreds[1],
                at_most=1.5,
            )


# ---- against bare apsw ---------------------------------------------------------------------------


class Bare:
    """What the disk allows: the encoded commit into a log row and a head row, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.connection = apsw.Connection(str(folder / "bare.db"))
        self.cursor = self.connection.cursor()
        for statement in (
            "PRAGMA locking_mode=EXCLUSIVE",
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "CREATE TABLE log (seq INTEGER PRIMARY KEY, body BLOB)",
            "CREATE TABLE head (doc INTEGER PRIMARY KEY, seq INTEGER, body BLOB)",
        ):
            self.cursor.execute(statement)
        self.seq = 0

    def write(self, bodies: list[tuple[int, bytes]]) -> None:
        execute = self.cursor.execute
        execute("BEGIN IMMEDIATE")
        for doc, body in bodies:
            self.seq += 1
            execute("INSERT INTO log VALUES (?,?)", (self.seq, body))
            execute(
                "INSERT INTO head VALUES (?,?,?) ON CONFLICT (doc) DO UPDATE SET seq=excluded.seq, body=excluded.body",
                (doc, self.seq, body),
            )
        execute("COMMIT")


def against_bare(figures: Figures) -> None:
    docs = [DocKey("space", f"doc{n}") for n in range(100)]
    with opened("bare") as engine, tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        bare = Bare(Path(folder))
        writer, loser = Writer(engine, "writer"), Writer(engine, "loser")
        for doc in docs:
            writer.create(doc)

        def frames(count: int) -> list[Commit]:
            basis = engine.last_seq
            return [writer.commit(docs[n % 100], n, basis) for n in range(count)]

        def engine_one() -> int:
            for n in range(SAMPLE):
                accepted(engine.submit("writer", writer.commit(docs[n % 100], n, engine.last_seq)))
            return SAMPLE

        def replay_one() -> int:
            for commit in replays:
                engine.submit("writer", commit)
            return SAMPLE

        def reject_one() -> int:
            for n in range(SAMPLE):
                verdict = engine.submit("loser", loser.commit(docs[n % 100], 3, 1))[0]
                if not isinstance(verdict, Rejected):
                    raise AssertionError(f"a stale commit was accepted: {verdict}")
            return SAMPLE

        for n in range(100):
            accepted(engine.submit("writer", writer.commit(docs[n], 3)))
        replays = []
        for n in range(SAMPLE):
            replays.append(writer.commit(docs[n % 100], n, engine.last_seq))
            accepted(engine.submit("writer", replays[-1]))
        prepared = [encode_commit(commit) for commit in replays]
        times = interleaved(
            {
                "engine": engine_one,
                "replay": replay_one,
                "reject": reject_one,
            }
        )
        for kind in ("reject", "replay"):
            figures.report(
                f"engine.{kind}",
                times[kind] * 1e6,
                "us",
                against="an accepted commit",
                ratio=times[kind] / times["engine"],
                at_most=1.0,
            )

        in_flight(figures, engine, bare, frames, prepared, 1, "engine.one_in_flight", 0.70)
        name = f"engine.{COMMITS_IN_FLIGHT}_in_flight"
        in_flight(figures, engine, bare, frames, prepared, COMMITS_IN_FLIGHT, name, 0.35)
        bare.connection.close()


def in_flight(
    figures: Figures,
    engine: Engine,
    bare: Bare,
    frames: Callable[[int], list[Commit]],
    prepared: list[bytes],
    size: int,
    name: str,
    at_least: float,
) -> None:
    """The engine and bare apsw take turns, group by group, so that both meet the same disk.

    Clients make their commits, and frames are checked where they are decoded: both happen before the clock runs,
    as does the encoding for bare apsw.
    """
    best = {"bare": float("inf"), "engine": float("inf")}
    groups = GROUPS if size > 1 else SAMPLE
    for _ in range(5):
        spent = {"bare": 0.0, "engine": 0.0}
        for turn in range(groups):
            group = [("writer", checked_frame((commit,), DEFAULT_VALUE_LIMITS)) for commit in frames(size)]
            bodies = [((turn + n) % 100, prepared[(turn + n) % SAMPLE]) for n in range(size)]
            spent["engine"] += seconds(partial(engine.submit_group, group))
            spent["bare"] += seconds(partial(bare.write, bodies))
        best = {kind: min(known, spent[kind] / groups / size) for kind, known in best.items()}
    rate(figures, name, best["engine"], best["bare"], f"bare apsw, {size} a transaction", at_least)


def rate(figures: Figures, name: str, seconds: float, bare_seconds: float, against: str, at_least: float) -> None:
    figures.report(name, 1 / seconds, "commits/s", against=against, ratio=bare_seconds / seconds, at_least=at_least)
