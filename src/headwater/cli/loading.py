"""Loading an application: its module, its classes of pieces, its file and what a browser is given of it.

A file is named by its stem, as Python names it for everybody who imports it, so that the classes have the same names
whether the file is run as a script or by a command. Never starts anything.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from headwater.errors import AbsentError, AuthoringError
from headwater.pieces.piece import Piece

PAGE: Final = "page"
"""The folder beside an application that a browser is given."""
MAIN: Final = "app.py"
"""The file of an application that is named by its folder."""


def load(app: str) -> tuple[ModuleType, list[type[Piece]], Path]:
    """An application by its file, its folder or its import path, with `:Class` for one class of it."""
    name, _, wanted = app.partition(":")
    module, file = _loaded(name)
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


def _loaded(name: str) -> tuple[ModuleType, Path]:
    file = Path(name).resolve()
    if file.is_dir() and (file / MAIN).is_file():
        file /= MAIN
    if file.suffix == ".py" and file.is_file():
        return _import(file), file
    if file.suffix == ".py":
        raise AbsentError(
            f"{name} is no Python file: nothing is there. Write the file of the application, like shop.py"
        )
    if all(part.isidentifier() for part in name.split(".")):
        return _import_path(name)
    raise AbsentError(f"{name} is no Python file: write the file of the application, like shop.py")


def _import(file: Path) -> ModuleType:
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(file.stem, file)
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
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # It was found, and misses something itself.
        raise AbsentError(f"there is no module {name}: write the file of the application, like shop.py") from None
    if module.__file__ is None:
        raise AbsentError(f"{name} has no file: name the module of the application, like {name}.app")
    return module, Path(module.__file__).resolve()


def page_of(file: Path) -> Path | None:
    """What a browser is given, if there is something."""
    folder = file.parent / PAGE
    return folder if folder.is_dir() else None
