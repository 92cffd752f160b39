"""The history oracle: checks that everything in a space's file follows from the rules.

Verifies a whole space: the file's integrity, then every commit once more at its place (`replay`), then everything
stored beside the log (`derived_tables`). Reports the first violation and looks no further: after one, nothing can be
trusted to mean anything. Never repairs, and decides nothing for the engine.
"""

from __future__ import annotations

from pathlib import Path as FilePath

import apsw

from headwater.engine.store.database import is_disk_full
from headwater.engine.store.port import Store
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify import derived_tables
from headwater.engine.verify.replay import Progress, Replay
from headwater.engine.verify.report import Report, RuleBroken, Violation
from headwater.errors import AbsentError, CorruptionError, StorageError

__all__ = ["Progress", "Report", "Violation", "verify_file", "verify_store"]


def verify_file(path: str | FilePath, progress: Progress | None = None) -> Report:
    """Verify the file of a space that no process has open. StorageError: it cannot be read as one."""
    if not FilePath(path).is_file():
        raise AbsentError(f"there is no file {path} to verify")
    try:
        damage = _integrity(path)
        if damage is not None:
            return _damaged(damage)
        store = SqliteStore(path, create=False)
    except CorruptionError as error:
        return _damaged(str(error))
    try:
        store.check_schema()
        return verify_store(store, progress)
    except CorruptionError as error:
        return _damaged(str(error))
    finally:
        store.close()


def verify_store(store: Store, progress: Progress | None = None) -> Report:
    """Verify a space through its store. Nothing else may write to it meanwhile."""
    last = store.last_row()
    last_seq = last.seq + last.commits - 1 if last is not None else 0
    replay: Replay | None = None
    try:
        lines = derived_tables.begin(store, last_seq)
        replay = Replay(store, lines, progress)
        replay.run()
        derived_tables.check(store, replay)
    except RuleBroken as broken:
        return _report(replay, broken.violation)
    return _report(replay, None)


def _report(replay: Replay | None, violation: Violation | None) -> Report:
    if replay is None:
        return Report(commits=0, documents=0, branches=0, violation=violation, notes=())
    notes = [f"not checked, {count} times: {what}" for what, count in sorted(replay.unchecked.items())]
    if replay.kept_from > 1:
        notes.insert(0, f"history before seq {replay.kept_from} was compacted away: verified from there on")
    return Report(
        commits=replay.commits,
        documents=len({key for _, key, _ in replay.lines.items()}),
        branches=len(replay.lines.branches),
        violation=violation,
        notes=tuple(notes),
    )


def _damaged(what: str) -> Report:
    violation = Violation(rule="integrity", seq=0, message=what)
    return Report(commits=0, documents=0, branches=0, violation=violation, notes=())


def _integrity(path: str | FilePath) -> str | None:
    """Return SQLite's own complaint about the file: damaged pages, or indexes that contradict their tables."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            found = connection.execute("PRAGMA integrity_check(1)").fetchall()
        except apsw.Error as error:
            if is_disk_full(error, connection):
                raise StorageError(
                    f"{path} cannot be verified: the disk is full ({error}). Free disk space, then verify it again."
                ) from error
            raise
        finally:
            connection.close()
    except (apsw.CorruptError, apsw.NotADBError, apsw.IOError) as error:
        return f"{path} is damaged: {error}"
    except apsw.Error as error:
        raise StorageError(f"{path} cannot be verified: {error}. Is it in use by another process?") from error
    return None if found == [("ok",)] else f"{path} is damaged: {found[0][0]}"
