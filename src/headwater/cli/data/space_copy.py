"""Copies of the files of spaces, for `verify`, `backup` and `restore`.

The process that serves a directory makes a copy on the thread of the space, so that nothing is written to the space
meanwhile, and no commit that was acknowledged before is missing. A directory that no process has open is locked while
its files are copied.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from headwater.cli.data.target import ask
from headwater.cli.directory import open_directory, owner_address
from headwater.engine.directory import SUFFIX
from headwater.errors import AbsentError, DirectoryInUseError
from headwater.protocol.command_messages import CommandQuestion
from headwater.server.commands.safe_copy import copy_path

MANIFEST: Final = "backup.json"
"""The list of the files of a backup, beside them."""
PARTS: Final = ("", "-wal")
"""Endings of the files that belong to one space."""


def copy_space(directory: Path, space: str, into: Path, *, user: str, token: str) -> Path:
    """Copy a space into a folder, and return the path of the copy."""
    file = directory / f"{space}{SUFFIX}"
    if not file.is_file():
        raise AbsentError(f"there is no space {space!r} in {directory}")
    try:
        with open_directory(directory):
            copy_files(file, into)
            return into / file.name
    except DirectoryInUseError:
        if owner_address(directory) is None:
            raise
    told = ask(str(directory), CommandQuestion("verify", space, user=user), token=token)
    copy = copy_path(file, told["copy"])
    for each in copy.parent.iterdir():
        shutil.move(each, into / each.name)
    shutil.rmtree(copy.parent, ignore_errors=True)
    return into / file.name


def copy_files(file: Path, into: Path) -> None:
    """Copy the files of a space that no process has open."""
    for ending in PARTS:
        each = file.with_name(file.name + ending)
        if each.is_file():
            shutil.copyfile(each, into / each.name)
            (into / each.name).chmod(0o600)
