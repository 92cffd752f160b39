"""Opening a space for one command, without making anything that is not there.

Owns the checks that come before the engine's own: a command that looks at a directory or a space that does
not exist says so instead of creating it, and what lies beside the spaces without being one is left alone. Never
keeps a directory open past its command.

Where the process is that owns a data directory: the address it serves on, written beside the data.

Owns that file. It says something only while its writer lives: whoever reads it has found the directory locked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.data.address import check_space, is_space_name
from headwater.errors import AbsentError, DirectoryInUseError

if TYPE_CHECKING:
    from headwater.engine.directory import Directory
    from headwater.engine.engine import Engine


@contextmanager
def open_directory(path: Path) -> Iterator[Directory]:
    from headwater.engine.directory import Directory  # noqa: PLC0415 (help is quick)

    if not path.is_dir():
        raise AbsentError(f"{path} is no directory. Name the data directory that a program of yours opened.")
    try:
        directory = Directory(path)
    except DirectoryInUseError as error:
        said = str(error).partition(". ")[0]
        raise DirectoryInUseError(
            f"{said}. Stop that process first, or use a command that asks it, if it serves the directory: get, set, "
            "send, log, why, graph, nodes, backlog, spaces, branch, compact, verify."
        ) from None
    with directory:
        yield directory


def sizes_in(path: Path) -> dict[str, int]:
    """The spaces of a directory that is open here, whoever opened it, and how many bytes the file of each has."""
    from headwater.engine.directory import SUFFIX  # noqa: PLC0415 (help is quick)

    files = sorted(file for file in path.glob(f"*{SUFFIX}") if file.is_file() and is_space_name(file.stem))
    return {file.stem: file.stat().st_size for file in files}


@contextmanager
def open_space(path: Path, name: str) -> Iterator[Engine]:
    check_space(name)
    with open_directory(path) as directory:
        there = directory.spaces()
        if name not in there:
            file = directory.file_of(name)
            why = f" {file.name} is no file." if file.exists() else ""
            listed = ", ".join(there) or "none"
            raise AbsentError(f"there is no space {name!r} in {path}.{why} Spaces there: {listed}.")
        yield directory.space(name)


ADDRESS_FILE: Final = "owner.url"


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def announced(directory: Path, url: str) -> Iterator[None]:
    """While this process serves a directory, other commands find it there."""
    file = directory / ADDRESS_FILE
    file.write_text(f"{url}\n", encoding="utf-8")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def address_of(directory: Path) -> str | None:
    """Where its owner serves it, if it does."""
    try:
        return (directory / ADDRESS_FILE).read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None
