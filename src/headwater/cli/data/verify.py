"""`headwater verify FILE`: replays the history of a space and says which rule does not hold first."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headwater.cli.data.commands import Token, User
from headwater.cli.data.target import ask
from headwater.cli.directory import open_directory
from headwater.cli.output import BAD_USAGE, FAILED, OK, complain, console, counted, print_json, say
from headwater.cli.owner import address_of
from headwater.cli.parameters import Json
from headwater.data.json_form import JsonForm
from headwater.engine.directory import SUFFIX
from headwater.engine.verify.history import Report, verify_file
from headwater.errors import CorruptionError, DirectoryInUseError, StorageError
from headwater.protocol.desk import Question


def verify(file: str, /, *, resume: str = "", user: User = "", token: Token = "", json: Json = False) -> int:
    """Replay the history of a space and check it against the rules of admission.

    Exits 0 if everything holds, 1 at the first violation, 2 if the file cannot be read as a space.
    If a process serves its directory, that makes a copy first, and the copy is verified. If one owns it and serves it
    to nobody, stop that one.

    With --resume, run instead every node that a start of this application would leave alone, on a copy of what is
    stored, and say which of them would have written something else. Nothing that they write is kept, and no effect is
    run. Exits 1 if there is such a node.

    Example: `headwater verify ./data/shop.space`

    Example: `headwater verify ./data --resume shop.py`

    Parameters
    ----------
    file
        The space's file, not its directory; with --resume also the directory, which means all of its spaces.
    resume
        The file of the application whose clean nodes are run.
    """
    if resume:
        from headwater.cli.data.proof import prove  # noqa: PLC0415 (help is quick)

        return prove(file, resume, user=user, token=token, json=json)
    path = Path(file)
    if not path.is_file():
        hint = f" Name one of its files, for example {path}/shop.space." if path.is_dir() else ""
        complain(f"{file} is no file.{hint}")
        return BAD_USAGE
    try:
        with _at_rest(path, user, token) as still:
            report = _verified(still, quiet=json)
    except CorruptionError as damage:
        if json:
            print_json({"ok": False, "violation": {"rule": "damage", "seq": None, "message": str(damage)}})
        complain(str(damage))
        return FAILED
    except StorageError as error:
        complain(str(error))
        return BAD_USAGE
    if json:
        print_json(_report_form(report))
    else:
        _say_report(file, report)
    return OK if report.ok else FAILED


@contextmanager
def _at_rest(path: Path, user: str, token: str) -> Iterator[Path]:
    """The file, or a copy of it if somebody serves it, who then makes that."""
    if path.suffix != SUFFIX or address_of(path.parent) is None or not _is_owned(path.parent):
        yield path
        return
    from headwater.server.commands.safe_copy import place_of_copy  # noqa: PLC0415 (help is quick)

    told = ask(str(path.parent), Question("verify", path.stem, user=user), token=token)
    copy = place_of_copy(path, told["copy"])
    try:
        yield copy
    finally:
        shutil.rmtree(copy.parent, ignore_errors=True)


def _is_owned(directory: Path) -> bool:
    try:
        with open_directory(directory):
            return False
    except DirectoryInUseError:
        return True


def _verified(path: Path, *, quiet: bool) -> Report:
    shown = console(stderr=True)
    if quiet or not shown.is_terminal:
        return verify_file(path)
    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TextColumn("commits"))
    with Progress(*columns, console=shown, transient=True) as bar:
        task = bar.add_task("verifying", total=None)
        return verify_file(path, lambda done, total: bar.update(task, completed=done, total=total))


def _say_report(file: str, report: Report) -> None:
    parts = ((report.commits, "commit"), (report.documents, "document"), (report.branches, "branch"))
    checked = ", ".join(counted(number, noun) for number, noun in parts)
    if report.violation is None:
        say(f"{file}: every rule holds ({checked})")
    else:
        violation = report.violation
        where = f" at seq {violation.seq}" if violation.seq else ""
        # Only SQLite, asked about the integrity of a file, answers in several lines.
        lines = violation.message.split("\n") if violation.rule == "integrity" else [violation.message]
        say(
            f"{file}: rule {violation.rule} does not hold{where}",
            *(f"  {line}" for line in lines),
            f"Checked before it: {checked}. Nothing after it was looked at.",
            "The engine writes no such history: restore a backup, and keep this file for a report.",
        )
    for note in report.notes:
        say(f"note: {note}")


def _report_form(report: Report) -> JsonForm:
    violation = report.violation
    return {
        "ok": report.ok,
        "commits": report.commits,
        "documents": report.documents,
        "branches": report.branches,
        "violation": None
        if violation is None
        else {"rule": violation.rule, "seq": violation.seq, "message": violation.message},
        "notes": list(report.notes),
    }
