"""Loading an application: its module, its classes of pieces, its file and its page.

A file is imported under its stem, as Python names it for every importer, so that classes have the same names whether
the file is run as a script or by a command. Loading starts nothing.

Modules of the application are compiled from their source each time. Python's bytecode cache compares the size of a file
and its modification time in whole seconds, so that an edit may run the code from before; `preview`, `verify --resume`
and `--reload` would then judge a program that is not on the disk.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import headwater
from headwater.errors import AbsentError, AuthoringError, HeadwaterError
from headwater.pieces.piece import Piece

PAGE: Final = "page"
"""The folder beside an application with the files for browsers."""
MAIN: Final = "app.py"
"""The file of an application that is given as a folder."""
INSTALLED: Final = ("stdlib", "platstdlib", "purelib", "platlib")
"""Paths of `sysconfig` that contain no modules of applications."""


class ApplicationError(HeadwaterError):
    """The code of an application failed while it was imported. The message has the traceback of that code alone."""

    def __init__(self, name: str, error: Exception) -> None:
        ours = (os.path.dirname(headwater.__file__), "<frozen ", os.path.dirname(importlib.__file__))
        steps = [step for step in traceback.extract_tb(error.__traceback__) if not step.filename.startswith(ours)]
        lines = [*traceback.format_list(steps), *traceback.format_exception_only(error)]
        super().__init__(f"{name} cannot be imported:\n{''.join(lines).rstrip()}")


class SourceLoader(SourceFileLoader):
    """Compiles a module from its source and neither reads nor writes cached bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class SourceFolder:
    """A path hook that finds the modules below one folder, installed packages excepted, with `SourceLoader`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, path: str) -> FileFinder:
        inside = Path(path).resolve()
        if _is_installed(inside) or not inside.is_relative_to(self.folder) or not inside.is_dir():
            raise ImportError(f"{path} is not a folder of the application", path=path)
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceLoader, SOURCE_SUFFIXES))


def _is_installed(folder: Path) -> bool:
    """Return whether modules of a folder belong to Python or were installed. An application may be elsewhere below the
    prefix.
    """
    if "site-packages" in folder.parts or "dist-packages" in folder.parts:
        return True
    paths = sysconfig.get_paths()
    return any(folder.is_relative_to(Path(paths[name]).resolve()) for name in INSTALLED)


def load_application(app: str) -> tuple[ModuleType, list[type[Piece]], Path]:
    """Load an application by its file, its folder or its import path, with `:Class` for one class of it."""
    name, _, wanted = app.partition(":")
    module, file = _import_application(name)
    classes = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Piece)]
    found = list(dict.fromkeys(each for each in classes if each is not Piece))
    if not found:
        raise AuthoringError(f"{name} has no class of pieces: write class Cart(headwater.Piece)")
    if not wanted:
        return module, found, file
    named = [each for each in found if each.__name__ == wanted]
    if not named:
        has = ", ".join(sorted({each.__name__ for each in found}))
        raise AuthoringError(f"{name} has no class {wanted}. Its classes of pieces: {has}.")
    return module, named, file


def _import_application(name: str) -> tuple[ModuleType, Path]:
    """Import an application. An error of its code becomes an `ApplicationError`."""
    try:
        return _import(name)
    except HeadwaterError:
        raise
    except Exception as error:
        raise ApplicationError(name, error) from error


def _import(name: str) -> tuple[ModuleType, Path]:
    file = Path(name).resolve()
    if file.is_dir() and (file / MAIN).is_file():
        file /= MAIN
    if file.suffix == ".py" and file.is_file():
        return _import_file(file), file
    if file.suffix == ".py":
        raise AbsentError(
            f"{name} is not a Python file: no file has this name. Write the file of the application, like shop.py"
        )
    if all(part.isidentifier() for part in name.split(".")):
        return _import_path(name)
    raise AbsentError(f"{name} is not a Python file: write the file of the application, like shop.py")


def _import_file(file: Path) -> ModuleType:
    _make_importable(file.parent)
    spec = importlib.util.spec_from_file_location(file.stem, file, loader=SourceLoader(file.stem, str(file)))
    if spec is None or spec.loader is None:
        raise AbsentError(f"{file} cannot be imported: write the file of the application, like shop.py")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(file.stem)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[file.stem]
        if before is not None:
            sys.modules[file.stem] = before
        raise
    return module


def _import_path(name: str) -> tuple[ModuleType, Path]:
    _make_importable(Path.cwd())
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # The module exists, and one of its imports does not.
        raise AbsentError(f"there is no module {name}: write the file of the application, like shop.py") from None
    if module.__file__ is None:
        raise AbsentError(f"{name} has no file: name the module of the application, like {name}.app")
    return module, Path(module.__file__).resolve()


def _make_importable(folder: Path) -> None:
    """Make modules of a folder importable, each from its source."""
    folder = folder.resolve()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if not any(isinstance(hook, SourceFolder) and hook.folder == folder for hook in sys.path_hooks):
        sys.path_hooks.insert(0, SourceFolder(folder))
        sys.path_importer_cache.clear()  # Finders that were made without the hook.
    importlib.invalidate_caches()


def page_folder(file: Path) -> Path | None:
    """Return the folder with files for browsers beside an application, or None."""
    folder = file.parent / PAGE
    return folder if folder.is_dir() else None
