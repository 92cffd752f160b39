"""Copies of a space's file for `verify`, made while the engine writes nothing.

A copy has the file and its write-ahead log, as after a crash; opening it recovers it. Each copy has a folder of its own
beside the data. The client gets the name of that folder, because it may see the data under another path, and removes
the folder. The number of copies is bounded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from headwater.errors import LimitError, StorageError
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits

FOLDER: Final = "copies"
_COPY: Final = "import shutil, sys; [shutil.copyfile(a, b) for a, b in zip(sys.argv[1::2], sys.argv[2::2])]"


def copy_space_file(file: Path, now_us: int, limits: ServerLimits = DEFAULT_SERVER_LIMITS) -> Path:
    """Copy a space's file while nothing is written to it, and return the path of the copy."""
    folder = file.parent / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        _remove_old_copies(folder, now_us, limits)
        own = Path(tempfile.mkdtemp(dir=folder))
    except OSError as error:
        raise StorageError(f"{folder} cannot hold a copy of {file.name}: {error}") from error
    ahead = file.with_name(f"{file.name}-wal")
    there = [each for each in (file, ahead) if each.exists()]
    pairs = [str(path) for each in there for path in (each, own / each.name)]
    # In another process: closing the file in this one would release SQLite's locks on it.
    tried = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _COPY, *pairs], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        shutil.rmtree(own, ignore_errors=True)
        raise StorageError(f"{file.name} cannot be copied: {tried.stderr.strip().splitlines()[-1:]}")
    return own / file.name


def copy_path(file: Path, name: str) -> Path:
    """Return the path of a copy by the name of its folder, for a client that has the data directory."""
    if Path(name).name != name or name in ("", ".."):
        raise StorageError(f"{name!r} is not the name of a copy")
    return file.parent / FOLDER / name / file.name


def _remove_old_copies(folder: Path, now_us: int, limits: ServerLimits) -> None:
    """Remove copies that are too old, and raise LimitError if too many are left."""
    left = 0
    for each in folder.iterdir():
        if now_us - each.stat().st_mtime_ns // 1_000 > limits.copy_s * 1e6:
            shutil.rmtree(each, ignore_errors=True)
        else:
            left += 1
    if left >= limits.copies:
        raise LimitError(f"{left} copies are being looked at: wait for these, or delete {FOLDER}/ beside the data")
