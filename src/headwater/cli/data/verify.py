"""`headwater verify FILE`: replays the history of a space and says which rule does not hold first.

`headwater verify --resume APP.py`: runs what claims to be clean in the shadow, and says what comes out differently.

Owns the copies that are looked at, and what is printed. Whoever serves a directory makes them; of one that nobody has
they are made here, also of other spaces whose documents are read. What the application's nodes would write is compared
and dropped: neither the data nor its copy is ever written.
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
from typing import TYPE_CHECKING, Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headwater.cli.data.commands import Token, User
from headwater.cli.data.target import ask
from headwater.cli.directory import address_of, open_directory, sizes_in
from headwater.cli.output import BAD_USAGE, FAILED, OK, Json, complain, console, counted, print_json, say, short
from headwater.data.json_form import JsonForm
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine.directory import SUFFIX, Directory
from headwater.engine.verify.oracle import Report, verify_file
from headwater.errors import AbsentError, CorruptionError, DirectoryInUseError, HeadwaterError, StorageError
from headwater.protocol.command_messages import CommandQuestion
from headwater.server.commands.safe_copy import FOLDER, copy_path

if TYPE_CHECKING:
    from headwater.data.address import DocKey
    from headwater.runtime.resume.preview import Known
    from headwater.runtime.resume.shadow_run import Report as ShadowReport


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
        return _verify_resume(file, resume, user=user, token=token, json=json)
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


SHOWN: Final = 50
"""Findings that are listed for people."""


def _verify_resume(where: str, app: str, *, user: str, token: str, json: bool) -> int:
    """Exits 0 if nothing came out differently, 1 if something did, 2 if there is nothing that could be run."""
    from headwater.cli.loading import load  # noqa: PLC0415 (help is quick)

    path = Path(where)
    if not path.is_dir() and not (path.is_file() and path.suffix == SUFFIX):
        complain(f"{where} is no data directory, and no file of a space in one, like ./data/shop{SUFFIX}")
        return BAD_USAGE
    directory = path if path.is_dir() else path.parent
    try:
        with contextlib.redirect_stdout(sys.stderr):  # What an application prints is no part of the answer.
            load(app)
        with _Copies(directory, user, token) as copies:
            report = _shadowed(copies, list(sizes_in(directory)) if path.is_dir() else [path.stem], quiet=json)
    except (AbsentError, StorageError) as error:
        complain(str(error))
        return BAD_USAGE
    if json:
        print_json(_shadow_form(report))
    else:
        _say_shadow_report(where, report)
    return OK if report.ok else FAILED


# ---- copies --------------------------------------------------------------------------------------------


class _Copies:
    """Copies of spaces in a folder beside the data, which is gone afterwards. A space is copied when it is needed."""

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

    def need(self, space: str) -> None:
        """Have a copy of a space here. Raises why there is none."""
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

    def has(self, space: str) -> bool:
        """The same; False: there is none to be had."""
        try:
            self.need(space)
        except HeadwaterError:
            return False
        return True

    def _copy(self, space: str) -> None:
        file = self._directory / f"{space}{SUFFIX}"
        if not file.is_file():
            raise AbsentError(f"there is no space {space!r} in {self._directory}")
        try:
            with open_directory(self._directory):
                for each in (file, file.with_name(f"{file.name}-wal")):
                    if each.is_file():
                        shutil.copyfile(each, self.folder / each.name)
                return
        except DirectoryInUseError:
            if address_of(self._directory) is None:
                raise
        told = ask(str(self._directory), CommandQuestion("verify", space, user=self._user), token=self._token)
        copy = copy_path(file, told["copy"])
        for each in copy.parent.iterdir():
            shutil.move(each, self.folder / each.name)
        shutil.rmtree(copy.parent, ignore_errors=True)


# ---- running -------------------------------------------------------------------------------------------


def _shadowed(copies: _Copies, spaces: Sequence[str], *, quiet: bool) -> ShadowReport:
    from headwater.cli.data.stored_nodes import known_of  # noqa: PLC0415 (help is quick)
    from headwater.runtime.resume.shadow_run import shadowed  # noqa: PLC0415
    from headwater.server.commands.nodes_json import current_form, nodes_form  # noqa: PLC0415

    with Directory(copies.folder) as directory:

        def asked(question: CommandQuestion) -> Any:
            copies.need(question.space)
            form = nodes_form if question.what == "nodes" else current_form
            return form(directory.space(question.space), question)

        def read(space: str, doc: DocKey) -> MaybeValue:
            return directory.space(space).read(doc).value if copies.has(space) else ABSENT

        known: list[Known] = known_of(asked, spaces)
        shown = console(stderr=True)
        with contextlib.redirect_stdout(sys.stderr):
            if quiet or not shown.is_terminal:
                return asyncio.run(shadowed(known, read))
            columns = (TextColumn("running"), BarColumn(), MofNCompleteColumn(), TextColumn("nodes"))
            with Progress(*columns, console=shown, transient=True) as bar:
                task = bar.add_task("running", total=None)
                return asyncio.run(
                    shadowed(known, read, lambda done, total: bar.update(task, completed=done, total=total))
                )


# ---- saying --------------------------------------------------------------------------------------------


def _say_shadow_report(where: str, report: ShadowReport) -> None:
    for each in report.findings[:SHOWN]:
        at = f"{each.space}/{each.node} ({each.kind})"
        if each.error:
            say(f"{at} claims to be clean, and raises now: {each.error}")
        else:
            change = f"{each.address} from {_text(each.stored)} to {_text(each.new)}"
            say(f"{at} claims to be clean, and would change {change}")
    if len(report.findings) > SHOWN:
        say(f"and {len(report.findings) - SHOWN} more: --json lists all")
    ran = f"{counted(report.checked, 'clean node')} ran in the shadow"
    if report.ok:
        say(f"{where}: {ran}, and nothing came out differently")
    else:
        nodes = len({(each.space, each.node) for each in report.findings})
        say(
            f"{where}: {ran}, and {nodes} would have written something else.",
            "Such a node depends on something that is no read and no code: the time, chance, a file, a global that",
            "changes. Read it through ctx, pass it in as a cell, or fetch it in a @resource.",
        )
    others = f"{counted(report.not_clean, 'node')} that would run at a start anyway"
    say(f"left out: {counted(report.effects, 'effect')}, and {others}")
    for node, why in list(report.undecided.items())[:SHOWN]:
        say(f"note: nothing can be said of {node}: {why}")


def _text(value: MaybeValue) -> str:
    return "nothing" if value is ABSENT else short(value)


def _shadow_form(report: ShadowReport) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "checked": report.checked,
        "effects": report.effects,
        "not_clean": report.not_clean,
        "undecided": [{"node": node, "why": why} for node, why in report.undecided.items()],
        "findings": [each.as_json() for each in report.findings],
    }
