"""Data directories for commands: open a space without creating it, and find the process that serves a directory.

A command about a directory or space that does not exist fails instead of creating it, and files beside the spaces are
left alone. No directory stays open after its command.

A process that serves a directory writes its address to a file there. The file counts only while the directory is
locked: a reader has found the directory in use.
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
        raise AbsentError(f"{path} is not a directory. Name the data directory that your program opened.")
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


def space_sizes(path: Path) -> dict[str, int]:
    """Return the size in bytes of each space's file. The directory may be open in another process."""
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
            why = f" {file.name} is not a file." if file.exists() else ""
            listed = ", ".join(there) or "none"
            raise AbsentError(f"there is no space {name!r} in {path}.{why} Spaces there: {listed}.")
        yield directory.space(name)


ADDRESS_FILE: Final = "owner.url"


def format_url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def announce_address(directory: Path, url: str) -> Iterator[None]:
    """Write the address of this process to the directory while it serves it."""
    file = directory / ADDRESS_FILE
    file.write_text(f"{url}\n", encoding="utf-8")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def owner_address(directory: Path) -> str | None:
    """Return the address that the owner of a directory serves it on, or None."""
    try:
        return (directory / ADDRESS_FILE).read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None
