"""`headwater backup` and `headwater restore`: copies of spaces that are checked before they count.

A backup is a folder with the files of each space and `backup.json`, which names them with their sizes and checksums. It
gets its name when it is complete: a backup that was interrupted leaves a folder that ends in `.partial`. A restore
writes a space only if its files are as they were backed up and every rule of its history holds.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headwater.cli.data.commands import Token, User
from headwater.cli.data.space_copy import MANIFEST, PARTS, copy_files, copy_space
from headwater.cli.directory import open_directory, space_sizes
from headwater.cli.output import (
    OK,
    DirectoryPath,
    Json,
    console,
    count_noun,
    print_answer,
    print_json,
    print_note,
)
from headwater.clock import RealClock
from headwater.engine.directory import SUFFIX, Directory
from headwater.engine.verify.oracle import verify_file
from headwater.errors import AbsentError, StorageError

_BLOCK: Final = 1024 * 1024

Spaces = Annotated[tuple[str, ...], Parameter(negative=())]


class BackedUpSpace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of one space in a backup: their names, sizes and checksums; and the end of its log."""

    files: dict[str, tuple[int, str]]
    last_seq: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a backup."""

    format: int
    made_us: int
    spaces: dict[str, BackedUpSpace]


_MANIFESTS: Final = msgspec.json.Decoder(Manifest)


def backup(
    directory: DirectoryPath,
    target: str,
    /,
    *,
    space: Spaces = (),
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """Copy the spaces of a directory into a new folder, while a server may be using them.

    Each space is copied as of one moment, with every commit that was acknowledged before; different spaces are copied
    one after the other. Every copy is verified before the backup counts. Keys are not copied.

    Exits 0 if everything was copied and every rule holds, 1 otherwise.

    Example: `headwater backup ./data ./backups/monday`

    Parameters
    ----------
    target
        The folder to make. It must not exist.
    space
        Only this space; may be given several times.
    """
    source, final = Path(directory), Path(target)
    if final.exists():
        raise StorageError(f"{final} exists already: a backup is never written over. Name another folder.")
    names = _chosen(source, list(space_sizes(source)), space)
    partial = final.with_name(f"{final.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise StorageError(f"{partial} cannot hold a backup: {error}") from error
    found: dict[str, BackedUpSpace] = {}
    with _progress("copying", len(names), quiet=json) as advance:
        for name in names:
            copy_space(source, name, partial, user=user, token=token)
            files = {each.name: (each.stat().st_size, _checksum(each)) for each in _files(partial, name)}
            found[name] = BackedUpSpace(files, _verified(partial, name))
            advance()
    manifest = Manifest(1, RealClock().now_us(), found)
    (partial / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
    _sync(partial)
    partial.rename(final)
    _sync_folder(final.parent)
    if json:
        print_json({"backup": str(final), "spaces": {name: each.last_seq for name, each in found.items()}})
    else:
        print_answer(f"{final}: {count_noun(len(found), 'space')}, every rule holds")
    return OK


def restore(
    backup: DirectoryPath,
    directory: str,
    /,
    *,
    space: Spaces = (),
    replace: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> int:
    """Put the spaces of a backup into a directory that no process uses.

    Every space is checked first: nothing is written if one of them is not as it was backed up, or exists already and
    `--replace` is not given. Programs that were connected before notice that the history is another one, and load
    their spaces again; what they had written and was not in the backup is lost.

    Exits 0 if everything was restored, 1 otherwise.

    Example: `headwater restore ./backups/monday ./data`

    Parameters
    ----------
    directory
        The data directory. It is made if it does not exist.
    space
        Only this space; may be given several times.
    replace
        Replace spaces that exist. Their files are kept in a folder `replaced` of the directory.
    """
    source, final = Path(backup), Path(directory)
    manifest = _read_manifest(source)
    names = _chosen(source, list(manifest.spaces), space)
    final.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open_directory(final) as opened:
        taken = [name for name in names if opened.file_of(name).exists()]
        if taken and not replace:
            raise StorageError(f"{final} has {', '.join(taken)} already: restore with --replace, or to another folder")
        ready = final / "restored.partial"
        shutil.rmtree(ready, ignore_errors=True)
        ready.mkdir(mode=0o700)
        try:
            with _progress("checking", len(names), quiet=json) as advance:
                for name in names:
                    _check_files(source, name, manifest.spaces[name])
                    copy_files(source / f"{name}{SUFFIX}", ready)
                    _verified(ready, name)
                    _check_files(ready, name, manifest.spaces[name])
                    advance()
            _sync(ready)
            for name in names:
                _move_in(opened, ready, name)
        finally:
            shutil.rmtree(ready, ignore_errors=True)
        _sync_folder(final)
    if json:
        print_json({"restored": [*names], "replaced": [*taken]})
    else:
        print_answer(f"{final}: {count_noun(len(names), 'space')} restored, every rule holds")
        if taken:
            print_note(f"the files that were replaced are in {final / 'replaced'}")
    return OK


def _chosen(where: Path, there: list[str], wanted: Iterable[str]) -> list[str]:
    """Return the spaces to copy: those that are named, or all."""
    names = list(dict.fromkeys(wanted)) or there
    missing = [name for name in names if name not in there]
    if missing:
        raise AbsentError(f"{where} has no space {missing[0]!r}. It has: {', '.join(there) or 'none'}.")
    if not names:
        raise AbsentError(f"{where} holds no space")
    return names


def _files(folder: Path, space: str) -> list[Path]:
    found = [folder / f"{space}{SUFFIX}{ending}" for ending in PARTS]
    return [each for each in found if each.is_file()]


def _checksum(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _verified(folder: Path, space: str) -> int:
    """Verify a copy of a space, and return the end of its log. The files of the copy itself are not opened."""
    trial = folder / "trial"
    trial.mkdir(mode=0o700)
    try:
        copy_files(folder / f"{space}{SUFFIX}", trial)
        report = verify_file(trial / f"{space}{SUFFIX}")
    finally:
        shutil.rmtree(trial)
    if report.violation is not None:
        raise StorageError(
            f"{space}: rule {report.violation.rule} does not hold: {report.violation.message}. Nothing was kept of "
            "this copy. See `headwater verify`."
        )
    return report.commits


def _read_manifest(source: Path) -> Manifest:
    try:
        return _MANIFESTS.decode((source / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise AbsentError(f"{source} is not a backup: it has no {MANIFEST}") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StorageError(f"{source / MANIFEST} cannot be read: {error}") from error


def _check_files(source: Path, space: str, expected: BackedUpSpace) -> None:
    found: dict[str, tuple[int, str]] = {
        each.name: (each.stat().st_size, _checksum(each)) for each in _files(source, space)
    }
    # fault backup.changed_files_restored: if False:
    if found != expected.files:
        raise StorageError(f"the files of {space} in {source} are not those that were backed up. Nothing was restored.")


def _move_in(directory: Directory, ready: Path, space: str) -> None:
    """Move a checked space to its place, and the files that are there into a folder of their own."""
    file = directory.file_of(space)
    there = [each for each in (file.with_name(file.name + ending) for ending in ("-wal", "")) if each.exists()]
    if there:
        kept = file.parent / "replaced" / str(RealClock().now_us())
        kept.mkdir(parents=True, mode=0o700)
        for each in there[::-1]:  # The space first: a log without its file is never taken for a space.
            each.rename(kept / each.name)
    for each in _files(ready, space)[::-1]:  # The log first: the space is whole from the moment it is there.
        each.rename(file.parent / each.name)


def _sync(folder: Path) -> None:
    """Wait until every file of a folder is on the disk."""
    for each in folder.iterdir():
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _progress(what: str, total: int, *, quiet: bool) -> Iterator[Any]:
    """Show progress on a terminal. Yields a function to call after each space."""
    shown = console(stderr=True)
    if quiet or not shown.is_terminal:
        yield lambda: None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("spaces"))
    with Progress(*columns, console=shown, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
