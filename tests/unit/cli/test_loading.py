"""An application is loaded from the source that is on the disk, also where cached bytecode looks valid."""

from __future__ import annotations

import os
import py_compile
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli.loading import SourceFolder, load_application

APP = """
from headwater import Cell, Piece, cell
from {helper} import STEP

class Meter(Piece):
    n: Cell[int] = cell(default={default})

DEFAULT = {default}
"""


@pytest.fixture(autouse=True)
def _imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("path", "path_hooks"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    before = set(sys.modules)
    yield
    for name in [name for name in set(sys.modules) - before if name.partition(".")[0] != "headwater"]:
        del sys.modules[name]
    sys.path_importer_cache.clear()


def write_with_stale_bytecode(file: Path, old: str, new: str) -> None:
    """Leave `new` in the file and valid-looking bytecode of `old` in its cache: same size, same modification time."""
    assert len(old) == len(new)
    file.write_text(old)
    py_compile.compile(str(file), doraise=True)
    before = file.stat()
    file.write_text(new)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_application_file_is_compiled_from_its_source(tmp_path: Path) -> None:
    (tmp_path / "loaded_steps.py").write_text("STEP = 1\n")
    app = tmp_path / "loaded_meter.py"
    old, new = (APP.format(helper="loaded_steps", default=value) for value in (1, 2))
    write_with_stale_bytecode(app, old, new)
    module, _, file = load_application(str(app))
    assert file == app
    assert module.DEFAULT == 2


@pytest.mark.parametrize("helper", ["helper_steps.py", "helper_inner/steps.py"], ids=["module", "module of a package"])
def test_module_that_the_application_imports_is_compiled_from_its_source(tmp_path: Path, helper: str) -> None:
    file = tmp_path / helper
    file.parent.mkdir(exist_ok=True)
    write_with_stale_bytecode(file, "STEP = 1\n", "STEP = 2\n")
    app = tmp_path / "loaded_app.py"
    app.write_text(APP.format(helper=helper.removesuffix(".py").replace("/", "."), default=0))
    module, _, _ = load_application(str(app))
    assert module.STEP == 2


def test_application_below_the_prefix_of_python_is_compiled_from_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))  # As of a system's Python: /usr, and an application in /usr/src.
    folder = tmp_path / "src"
    folder.mkdir()
    write_with_stale_bytecode(folder / "below_steps.py", "STEP = 1\n", "STEP = 2\n")
    app = folder / "below_app.py"
    app.write_text(APP.format(helper="below_steps", default=0))
    module, _, _ = load_application(str(app))
    assert module.STEP == 2


@pytest.mark.parametrize("name", ["stdlib", "platstdlib", "purelib", "platlib"])
def test_installed_modules_are_left_to_python(name: str) -> None:
    installed = Path(sysconfig.get_paths()[name]).resolve()
    with pytest.raises(ImportError, match="is not a folder of the application"):
        SourceFolder(Path(installed.anchor))(str(installed))


@pytest.mark.parametrize("name", ["site-packages", "dist-packages"])
def test_packages_installed_beside_the_application_are_left_to_python(tmp_path: Path, name: str) -> None:
    installed = tmp_path / name / "package"
    installed.mkdir(parents=True)
    with pytest.raises(ImportError, match="is not a folder of the application"):
        SourceFolder(tmp_path)(str(installed))


def test_loading_writes_no_bytecode(tmp_path: Path) -> None:
    (tmp_path / "plain_steps.py").write_text("STEP = 1\n")
    app = tmp_path / "plain_app.py"
    app.write_text(APP.format(helper="plain_steps", default=0))
    load_application(str(app))
    assert not list(tmp_path.rglob("*.pyc"))
