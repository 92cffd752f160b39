"""`headwater verify FILE` and `headwater verify --resume APP.py`: check the history of a space, and its clean nodes.

The first replays the history and prints the first rule that does not hold. The second runs every node that a start
would leave alone on a copy, and prints those that would write another value. The process that serves a directory makes
the copies; of a directory that is not in use they are made here. Values that nodes write are compared and dropped:
neither the data nor its copy is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headwater.cli.data.commands import Token, User
from headwater.cli.data.space_copy import MANIFEST, copy_files, copy_space
from headwater.cli.data.target import ask
from headwater.cli.directory import open_directory, owner_address, space_sizes
from headwater.cli.limits import DEFAULT_COMMAND_LIMITS, CommandLimits
from headwater.cli.output import (
    BAD_USAGE,
    FAILED,
    OK,
    Json,
    console,
    count_noun,
    format_short,
    print_answer,
    print_error,
    print_json,
)
from headwater.data.json_form import JsonForm
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine.directory import SUFFIX, Directory
from headwater.engine.verify.oracle import Report, verify_file
from headwater.errors import AbsentError, CorruptionError, DirectoryInUseError, HeadwaterError, StorageError
from headwater.protocol.command_messages import CommandQuestion
from headwater.server.commands.safe_copy import FOLDER, copy_path

if TYPE_CHECKING:
    from headwater.data.address import DocKey
    from headwater.runtime.resume.preview import PreviewInput
    from headwater.runtime.resume.shadow_run import ShadowReport


def verify(file: str, /, *, resume: str = "", user: User = "", token: Token = "", json: Json = False) -> int:
    """Replay the history of a space and check it against the rules of admission.

    FILE is the file of a space, or a data directory, which means all of its spaces. Exits 0 if everything holds, 1 at
    the first violation of a space, 2 if a file cannot be read as a space.
    If a process serves its directory, that makes a copy first, and the copy is verified. If a process owns it
    and does not serve it, stop that process.

    With --resume, run instead every node that a start of this application would leave alone, on a copy of the
    data, and say which of them would have written something else. Nothing that they write is kept, and no effect is
    run. Exits 1 if there is such a node.

    Example: `headwater verify ./data/shop.space`

    Example: `headwater verify ./data`

    Example: `headwater verify ./data --resume shop.py`

    Parameters
    ----------
    file
        The space's file, or the directory, which means all of its spaces.
    resume
        The file of the application whose clean nodes are run.
    """
    if resume:
        return _verify_resume(file, resume, user=user, token=token, json=json)
    path = Path(file)
    if path.is_dir():
        return _verify_directory(path, user, token, json=json)
    if not path.is_file():
        print_error(f"{file} is neither a file nor a directory.")
        return BAD_USAGE
    code, form = _verify_space(path, user, token, json=json)
    if json and form is not None:
        print_json(form)
    return code


def _verify_directory(directory: Path, user: str, token: str, *, json: bool) -> int:
    """Verify every space of a directory, also those after one that is damaged. Return the worst exit code."""
    spaces = list(space_sizes(directory))
    if not spaces:
        print_error(f"{directory} holds no space")
        return BAD_USAGE
    worst = OK
    forms: dict[str, JsonForm] = {}
    for space in spaces:
        code, forms[space] = _verify_space(directory / f"{space}{SUFFIX}", user, token, json=json)
        worst = max(worst, code)
    if json:
        print_json({"ok": worst == OK, "spaces": forms})
    return worst


def _verify_space(path: Path, user: str, token: str, *, json: bool) -> tuple[int, JsonForm]:
    """Verify one space. Return the exit code and the report as JSON; None if the file could not be read."""
    try:
        with _file_or_copy(path, user, token) as still:
            report = _verify_with_progress(still, path.stem, quiet=json)
    except CorruptionError as damage:
        print_error(str(damage))
        return FAILED, {"ok": False, "violation": {"rule": "damage", "seq": None, "message": str(damage)}}
    except StorageError as error:
        print_error(str(error))
        return BAD_USAGE, None
    if not json:
        _say_report(str(path), report)
    return OK if report.ok else FAILED, _report_form(report)


@contextmanager
def _file_or_copy(path: Path, user: str, token: str) -> Iterator[Path]:
    """Yield the file, or a copy of it if a process serves its directory; that process makes the copy.

    A file of a backup is copied, too: opening it would change its checksum.
    """
    if (path.parent / MANIFEST).is_file():
        with tempfile.TemporaryDirectory() as folder:
            copy_files(path, Path(folder))
            yield Path(folder) / path.name
        return
    if path.suffix != SUFFIX or owner_address(path.parent) is None or not _is_owned(path.parent):
        yield path
        return
    told = ask(str(path.parent), CommandQuestion("verify", path.stem, user=user), token=token)
    copy = copy_path(path, told["copy"])
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


def _verify_with_progress(path: Path, space: str, *, quiet: bool) -> Report:
    shown = console(stderr=True)
    if quiet or not shown.is_terminal:
        return verify_file(path)
    columns = (TextColumn(f"verifying {space}"), BarColumn(), MofNCompleteColumn(), TextColumn("commits"))
    with Progress(*columns, console=shown, transient=True) as bar:
        task = bar.add_task("verifying", total=None)
        return verify_file(path, lambda done, total: bar.update(task, completed=done, total=total))


def _say_report(file: str, report: Report) -> None:
    parts = ((report.commits, "commit"), (report.documents, "document"), (report.branches, "branch"))
    checked = ", ".join(count_noun(number, noun) for number, noun in parts)
    if report.violation is None:
        print_answer(f"{file}: every rule holds ({checked})")
    else:
        violation = report.violation
        where = f" at seq {violation.seq}" if violation.seq else ""
        # Only SQLite's check of a file's integrity answers in several lines.
        lines = violation.message.split("\n") if violation.rule == "integrity" else [violation.message]
        print_answer(
            f"{file}: rule {violation.rule} does not hold{where}",
            *(f"  {line}" for line in lines),
            f"Checked before it: {checked}. Nothing after it was looked at.",
            "The engine writes no such history: restore a backup, and keep this file for a report.",
        )
    for note in report.notes:
        print_answer(f"note: {note}")


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


def _verify_resume(where: str, app: str, *, user: str, token: str, json: bool) -> int:
    """Return 0 if no node would write another value, 1 if one would, 2 if nothing could be run."""
    from headwater.cli.loading import load_application  # noqa: PLC0415 (help is quick)

    path = Path(where)
    if not path.is_dir() and not (path.is_file() and path.suffix == SUFFIX):
        print_error(f"{where} is neither a data directory nor the file of a space in one, like ./data/shop{SUFFIX}")
        return BAD_USAGE
    directory = path if path.is_dir() else path.parent
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Output of the application is no part of the answer.
            load_application(app)
        with _Copies(directory, user, token) as copies:
            report = _run_shadow(copies, list(space_sizes(directory)) if path.is_dir() else [path.stem], quiet=json)
    except (AbsentError, StorageError) as error:
        print_error(str(error))
        return BAD_USAGE
    if json:
        print_json(_shadow_form(report))
    else:
        _say_shadow_report(where, report)
    return OK if report.ok else FAILED


# ---- copies --------------------------------------------------------------------------------------------


class _Copies:
    """Copies of spaces in a temporary folder beside the data. A space is copied when it is needed."""

    def __init__(self, directory: Path, user: str, token: str) -> None:
        self._directory = directory
        self._user = user
        self._token = token
        self._missing: dict[str, HeadwaterError] = {}
        self._there: set[str] = set()
        self.folder = directory

    def __enter__(self) -> _Copies:
        beside = self._directory / FOLDER
        try:
            beside.mkdir(exist_ok=True)
            self.folder = Path(tempfile.mkdtemp(dir=beside))
        except OSError as error:
            raise StorageError(f"{beside} cannot hold a copy: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def make(self, space: str) -> None:
        """Make a copy of a space, if there is none. Raises the reason if that fails."""
        if space in self._there:
            return
        if space in self._missing:
            raise self._missing[space]
        try:
            self._copy(space)
        except HeadwaterError as error:
            self._missing[space] = error
            raise
        except OSError as error:
            self._missing[space] = StorageError(f"{space} cannot be copied: {error}")
            raise self._missing[space] from error
        self._there.add(space)

    def try_make(self, space: str) -> bool:
        """Make a copy of a space, and return False if that fails."""
        try:
            self.make(space)
        except HeadwaterError:
            return False
        return True

    def _copy(self, space: str) -> None:
        copy_space(self._directory, space, self.folder, user=self._user, token=self._token)


# ---- running -------------------------------------------------------------------------------------------


def _run_shadow(copies: _Copies, spaces: Sequence[str], *, quiet: bool) -> ShadowReport:
    from headwater.cli.data.stored_nodes import load_stored_nodes  # noqa: PLC0415 (help is quick)
    from headwater.runtime.api.entry_points import open_dry  # noqa: PLC0415
    from headwater.runtime.resume.shadow_run import shadowed  # noqa: PLC0415
    from headwater.server.commands.nodes_json import current_form, nodes_form  # noqa: PLC0415

    with Directory(copies.folder) as directory:

        def asked(question: CommandQuestion) -> Any:
            copies.make(question.space)
            form = nodes_form if question.what == "nodes" else current_form
            return form(directory.space(question.space), question)

        def read(space: str, doc: DocKey) -> MaybeValue:
            return directory.space(space).read(doc).value if copies.try_make(space) else ABSENT

        known: list[PreviewInput] = load_stored_nodes(asked, spaces)
        shown = console(stderr=True)
        with contextlib.redirect_stdout(sys.stderr):
            if quiet or not shown.is_terminal:
                return asyncio.run(shadowed(known, read, open_dry=open_dry))
            columns = (TextColumn("running"), BarColumn(), MofNCompleteColumn(), TextColumn("nodes"))
            with Progress(*columns, console=shown, transient=True) as bar:
                task = bar.add_task("running", total=None)
                return asyncio.run(
                    shadowed(
                        known,
                        read,
                        lambda done, total: bar.update(task, completed=done, total=total),
                        open_dry=open_dry,
                    )
                )


# ---- saying --------------------------------------------------------------------------------------------


def _say_shadow_report(where: str, report: ShadowReport, limits: CommandLimits = DEFAULT_COMMAND_LIMITS) -> None:
    most = limits.listed_findings
    for each in report.findings[:most]:
        at = f"{each.space}/{each.node} ({each.kind})"
        if each.error:
            print_answer(f"{at} claims to be clean, and raises now: {each.error}")
        else:
            change = f"{each.address} from {_format_value(each.stored)} to {_format_value(each.new)}"
            print_answer(f"{at} claims to be clean, and would change {change}")
    if len(report.findings) > most:
        print_answer(f"and {len(report.findings) - most} more: --json lists all")
    ran = f"{count_noun(report.checked, 'clean node')} ran again on a copy"
    if report.ok:
        print_answer(f"{where}: {ran}, and every result equals its stored value")
    else:
        nodes = len({(each.space, each.node) for each in report.findings})
        print_answer(
            f"{where}: {ran}, and {nodes} would have written other values.",
            "Such a node depends on something besides its code and the values that it reads: the time, chance, a file,",
            "a global that changes. Read it through ctx, pass it in as a cell, or fetch it in a @resource.",
        )
    others = f"{count_noun(report.not_clean, 'node')} that would run at a start anyway"
    print_answer(f"left out: {count_noun(report.effects, 'effect')}, and {others}")
    for node, why in list(report.undecided.items())[:most]:
        print_answer(f"note: {node} was not compared: {why}")


def _format_value(value: MaybeValue) -> str:
    return "nothing" if value is ABSENT else format_short(value)


def _shadow_form(report: ShadowReport) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "checked": report.checked,
        "effects": report.effects,
        "not_clean": report.not_clean,
        "undecided": [{"node": node, "why": why} for node, why in report.undecided.items()],
        "findings": [each.as_json() for each in report.findings],
    }
