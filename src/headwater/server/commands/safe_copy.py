"""A copy of a space's file, made while its engine stands still, for somebody who looks at it elsewhere.

It is a file system's copy of the file and of what is written ahead of it, as after a crash: whoever opens it recovers
it. Copies lie in folders of their own beside the data. Whoever asked is told the name of theirs, because the data may
lie elsewhere for them, and removes it; there are never more than a few.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from headwater.errors import LimitError, StorageError

FOLDER: Final = "copies"
MOST: Final = 4
OLD_US: Final = 3_600_000_000
"""After so long a copy is nobody's any more."""
_COPY: Final = "import shutil, sys; [shutil.copyfile(a, b) for a, b in zip(sys.argv[1::2], sys.argv[2::2])]"


def copied(file: Path, now_us: int) -> Path:
    """Copy a space's file, which nobody writes meanwhile. Where the copy is."""
    folder = file.parent / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        _tidy(folder, now_us)
        own = Path(tempfile.mkdtemp(dir=folder))
    except OSError as error:
        raise StorageError(f"{folder} cannot hold a copy of {file.name}: {error}") from error
    ahead = file.with_name(f"{file.name}-wal")
    there = [each for each in (file, ahead) if each.exists()]
    pairs = [str(path) for each in there for path in (each, own / each.name)]
    # By another process: if this one opened and closed the file, its locks on it would be gone.
    tried = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _COPY, *pairs], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        shutil.rmtree(own, ignore_errors=True)
        raise StorageError(f"{file.name} cannot be copied: {tried.stderr.strip().splitlines()[-1:]}")
    return own / file.name


def place_of_copy(file: Path, name: str) -> Path:
    """Where the copy of a space's file is, by the name of its folder, for somebody who has the file there."""
    if Path(name).name != name or name in ("", ".."):
        raise StorageError(f"{name!r} is no name of a copy")
    return file.parent / FOLDER / name / file.name


def _tidy(folder: Path, now_us: int) -> None:
    """Remove what was left behind, and refuse one more than there may be."""
    left = 0
    for each in folder.iterdir():
        if now_us - each.stat().st_mtime_ns // 1_000 > OLD_US:
            shutil.rmtree(each, ignore_errors=True)
        else:
            left += 1
    if left >= MOST:
        raise LimitError(f"{left} copies are being looked at: wait for these, or delete {FOLDER}/ beside the data")
