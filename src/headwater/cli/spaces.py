"""Opening a space for one command, without making anything that is not there.

Owns the checks that come before the engine's own: a command that looks at a directory or a space that does
not exist says so instead of creating it, and what lies beside the spaces without being one is left alone. Never
keeps a directory open past its command.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.data.address import check_space
from headwater.engine.directory import SUFFIX, Directory
from headwater.engine.engine import Engine
from headwater.errors import AbsentError, InvalidValueError


@contextmanager
def open_directory(path: Path) -> Iterator[Directory]:
    if not path.is_dir():
        raise AbsentError(f"{path} is no directory. Name the data directory that a program of yours opened.")
    with Directory(path) as directory:
        yield directory


def spaces_in(directory: Directory) -> list[str]:
    """The files that are spaces: with a name that a space can have, and no directory or pipe."""
    return [name for name in directory.spaces() if _can_be_a_space(directory, name)]


def strays_in(directory: Directory) -> list[str]:
    """What is named like a space and is none, as it is called in the directory."""
    return [f"{name}{SUFFIX}" for name in directory.spaces() if not _can_be_a_space(directory, name)]


@contextmanager
def open_space(path: Path, name: str) -> Iterator[Engine]:
    check_space(name)
    with open_directory(path) as directory:
        there = spaces_in(directory)
        if name not in there:
            file = directory.file_of(name)
            why = f" {file.name} is no file." if file.exists() else ""
            listed = ", ".join(there) or "none"
            raise AbsentError(f"there is no space {name!r} in {path}.{why} Spaces there: {listed}.")
        yield directory.space(name)


def _can_be_a_space(directory: Directory, name: str) -> bool:
    try:
        return directory.file_of(name).is_file()
    except InvalidValueError:
        return False
