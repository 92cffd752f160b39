"""Where the process is that owns a data directory: the address it serves on, written beside the data.

Owns that file. It says something only while its writer lives: whoever reads it has found the directory locked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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
