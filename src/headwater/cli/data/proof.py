"""`headwater verify --resume APP.py`: runs what claims to be clean in the shadow, and says what comes out differently.

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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headwater.cli.data.target import ask
from headwater.cli.directory import open_directory, sizes_in
from headwater.cli.output import BAD_USAGE, FAILED, OK, complain, console, counted, print_json, say, short
from headwater.cli.owner import address_of
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine.directory import SUFFIX, Directory
from headwater.errors import AbsentError, DirectoryInUseError, HeadwaterError, StorageError
from headwater.protocol.desk import Question
from headwater.runtime.binding.previewing import Known
from headwater.server.commands.safe_copy import FOLDER, place_of_copy

if TYPE_CHECKING:
    from headwater.data.address import DocKey
    from headwater.runtime.binding.shadow import Report

SHOWN: Final = 50
"""Findings that are listed for people."""


def prove(where: str, app: str, *, user: str, token: str, json: bool) -> int:
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
        print_json(_form(report))
    else:
        _say(where, report)
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
        told = ask(str(self._directory), Question("verify", space, user=self._user), token=self._token)
        copy = place_of_copy(file, told["copy"])
        for each in copy.parent.iterdir():
            shutil.move(each, self.folder / each.name)
        shutil.rmtree(copy.parent, ignore_errors=True)


# ---- running -------------------------------------------------------------------------------------------


def _shadowed(copies: _Copies, spaces: Sequence[str], *, quiet: bool) -> Report:
    from headwater.cli.data.stored_nodes import known_of  # noqa: PLC0415 (help is quick)
    from headwater.runtime.binding.shadow import shadowed  # noqa: PLC0415
    from headwater.server.commands.nodes_json import current_form, nodes_form  # noqa: PLC0415

    with Directory(copies.folder) as directory:

        def asked(question: Question) -> Any:
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


def _say(where: str, report: Report) -> None:
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


def _form(report: Report) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "checked": report.checked,
        "effects": report.effects,
        "not_clean": report.not_clean,
        "undecided": [{"node": node, "why": why} for node, why in report.undecided.items()],
        "findings": [each.as_json() for each in report.findings],
    }
