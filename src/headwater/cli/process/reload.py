"""`headwater run --reload`: looks at an application's files, and has what changed in them run.

Owns which files those are and what is done about a change: what can be patched is, and only the members that do
something else run again; what cannot asks for a new start on the same data; what is broken is said, and the old code
goes on. It looks at the files themselves, a few times a second: nothing has to be installed for that.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from headwater.cli.output import complain, counted, remark
from headwater.cli.process.patching import Reshaped, Version, classes_of, patch
from headwater.pieces.fingerprint import fingerprint_of
from headwater.pieces.piece import Piece
from headwater.runtime.binding.renewal import changed, fingerprints, renew

if TYPE_CHECKING:
    from headwater.runtime.runtime import Runtime

LOOK_S: Final = 0.3
CHECK_S: Final = 30.0
"""How long a program may take to be imported, when it is tried before a new start."""
BEGINNINGS: Final = ("start", "work", "main")

_TRY: Final = "import sys; from headwater.cli.loading import load; load(sys.argv[1])"


class Reload:
    """The files of one application, and the version of each that runs."""

    def __init__(self, app: str, file: Path, main: ModuleType) -> None:
        self._app = app
        self._main = main
        self._folder = file.parent
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._versions: dict[Path, tuple[ModuleType, Version]] = {}
        self._seen: set[str] = set()  # names of modules that were looked at
        self._note()

    # ---- looking -----------------------------------------------------------------------------------

    async def until_reshaped(
        self, runtimes: Callable[[], Iterable[Runtime]], is_broken: Callable[[], bool] = lambda: False
    ) -> None:
        """Take in what changes, until something does that needs a new start: anything, once it does not run well."""
        while True:
            await asyncio.sleep(LOOK_S)
            is_needed = bool(self._changes()) if is_broken() else self.look(runtimes())
            if is_needed and await asyncio.to_thread(self.can_be_imported):
                return

    def _changes(self) -> list[Path]:
        """The files that changed since the last time."""
        self._note()
        return [file for file in self._versions if self._has_changed(file)]

    def look(self, runtimes: Iterable[Runtime]) -> bool:
        """Take in what changed since the last time. True: that needs a new start."""
        files = self._changes()
        if not files:
            return False
        before = self._fingerprints()
        begins = self._beginnings()
        fates = [self._taken_in(file) for file in files]
        if True in fates:
            self._run_again(changed(before, self._fingerprints()), runtimes)
        return False in fates or begins != self._beginnings()

    def _note(self) -> None:
        """Know of every module of the application's folder that was imported meanwhile."""
        for name in sys.modules.keys() - self._seen:
            module = sys.modules[name]
            where = getattr(module, "__file__", None)
            file = Path(where) if isinstance(where, str) and where.endswith(".py") else None
            if file is not None and file not in self._versions and self._is_own(file):
                try:
                    version = Version.read(file)
                    self._stamps[file] = _stamp(file)
                except (OSError, SyntaxError, UnicodeDecodeError):
                    continue  # It was changed right after it was imported: it is looked at next time.
                self._versions[file] = (module, version)
            self._seen.add(name)

    def _is_own(self, file: Path) -> bool:
        inside = file.is_relative_to(self._folder)
        return inside and "site-packages" not in file.parts and not file.is_relative_to(Path(sys.prefix))

    def _has_changed(self, file: Path) -> bool:
        try:
            stamp = _stamp(file)
        except OSError:
            return False  # An editor replaces it right now, or it is gone: what was loaded goes on.
        was, self._stamps[file] = self._stamps[file], stamp
        return stamp != was

    # ---- taking in ---------------------------------------------------------------------------------

    def _taken_in(self, file: Path) -> bool | None:
        """Patch a module. False: a new start is needed instead. None: there is nothing that could run."""
        module, old = self._versions[file]
        try:
            new = Version.read(file)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            complain(f"{file.name} is no program now ({error}). The code from before goes on.")
            return None
        if new.text == old.text:
            return None
        try:
            patch(module, file, old, new)
        except Reshaped as reshaped:
            remark(f"{file.name}: {reshaped}")
            return False
        except Exception as error:  # Whatever its new statements raise is the author's to mend.
            complain(f"{file.name} raises {type(error).__name__}: {error}. The code from before goes on.")
            return None
        self._versions[file] = (module, new)
        return True

    def _run_again(self, members: frozenset[tuple[str, str]], runtimes: Iterable[Runtime]) -> None:
        named = sorted(f"{cls.rpartition('.')[2]}.{member}" for cls, member in members)
        remark(f"taken in: {', '.join(named)}" if named else "taken in: nothing that a piece does changed")
        for runtime in runtimes:
            renew(runtime, members)

    def _fingerprints(self) -> dict[tuple[str, str], str | None]:
        modules = [module for module, _ in self._versions.values()]
        found = {each for module in modules for each in classes_of(module) if issubclass(each, Piece)}
        return dict(fingerprints(found - {Piece}))

    def _beginnings(self) -> list[str | None]:
        found = [getattr(self._main, name, None) for name in BEGINNINGS]
        return [None if each is None else fingerprint_of(each).digest for each in found]

    def can_be_imported(self) -> bool:
        """Try it in a process of its own: a program that cannot start does not replace one that runs."""
        command: Sequence[str] = (sys.executable, "-c", _TRY, self._app)
        try:
            tried = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CHECK_S)
        except subprocess.TimeoutExpired:
            complain(f"{self._app} takes more than {counted(round(CHECK_S), 'second')} to import. The code goes on.")
            return False
        if tried.returncode:
            complain(*(tried.stderr.strip().splitlines()[-3:] or ["it cannot be imported"]))
            remark("The code from before goes on.")
        return tried.returncode == 0


def _stamp(file: Path) -> tuple[int, int]:
    state = file.stat()
    return state.st_mtime_ns, state.st_size
