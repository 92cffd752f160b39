"""The check of seams finds each kind of breach, and the breaches of kits wherever they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.seams import ROOT, Seams, Source, with_kits

SEAMS = Seams(
    ["# a comment", "headwater", "headwater.engine", "headwater.data.*", "headwater.engine:Hub tests/scenario/one.py"]
)


def breaches(folder: Path, text: str) -> list[str]:
    path = folder / "test_something.py"
    path.write_text(text)
    source = Source(path)
    found = (
        *source.inner_imports(SEAMS),
        *source.inner_attributes(),
        *source.private_uses(),
        *source.replaced_attributes(),
        *source.uses_by_text(),
    )
    return [breach.text for breach in found]


@pytest.mark.parametrize(
    "text",
    [
        "import headwater",
        "from headwater.engine import Engine",
        "from headwater.data.patch import add",
        "PROGRAM = 'from headwater.engine import Engine'",
        "class A:\n    def f(self):\n        return self._own",
        "def _mine(): ...\n\nother._mine()",
        "from unittest.mock import patch\nimport time\npatch.object(time, 'sleep')",
        "def patch(value): ...\n\npatch(value)",
        "class Program:\n    pieces: list[int]\n\nworld.pieces.append(1)",
        "rt.graph().nodes",
        "json.loads(text).get('a')",
        "class Client:\n    branch: str\n\nclient.branch = 'draft'",
        "from tests.scenario.wire_kit import Wire\nwire.sent = []",
        "replica.on_error = print",
        "class A:\n    def f(self):\n        object.__setattr__(self, 'basis', 1)",
        "class A:\n    __slots__ = ('_clock', '_core')",
        "getattr(piece, member)",
        "for name in ('Cell', 'Piece'):\n    getattr(headwater, name)",
        "import headwater\nheadwater.open()",
        "import headwater.engine as e\ne.Engine",
        "pytest.importorskip('hypothesis')",
        "client.patch('/orders/1')",
        "import time\nfrom unittest import mock\nmock.patch.object(time, 'sleep')",
        "NAME = 'headwater.engine'\nimportlib.import_module(NAME)",
        "vars(page)['title']",
        "'Only `rt._core` is private.'",
        "sys.modules[__name__]",
    ],
)
def test_uses_of_seams_are_no_breach(tmp_path: Path, text: str) -> None:
    assert breaches(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from headwater.engine.commit_group import Group", "imports the inner module headwater.engine.commit_group"),
        (
            "def f():\n    import headwater.engine.commit_group",
            "imports the inner module headwater.engine.commit_group",
        ),
        (
            'PROGRAM = "import asyncio\\nfrom headwater.engine.commit_group import Group"',
            "imports the inner module headwater.engine.commit_group",
        ),
        ("from headwater.engine import Hub", "imports Hub, which is for other files"),
        ("engine._group", "uses the private attribute engine._group"),
        ("getattr(engine, '_group')", "uses the private attribute '_group' by its name"),
        ("from headwater.engine import Engine\nEngine.submit = None", "assigns Engine.submit"),
        ("runtime.core.scheduler", "reaches an inner component by runtime.core.scheduler"),
        ("len(rt.scheduler.registry)", "reaches an inner component by rt.scheduler.registry"),
        ("driver.session.queries.look(question)", "reaches an inner component by driver.session.queries"),
        ("server.service.log", "reaches an inner component by server.service.log"),
        (
            "class Client:\n    pending: int\n\nlen(client.replica.pending)",
            "reaches an inner component by client.replica.pending",
        ),
        ("object.__setattr__(transaction, 'basis', 1)", "replaces an attribute of transaction"),
        ("channel.replica.branch = 'draft'", "assigns channel.replica.branch"),
        ("first, [*channel.replica.branch] = values", "assigns channel.replica.branch"),
        ("del channel.replica.branch", "assigns channel.replica.branch"),
        ("for channel.replica.branch in ('a', 'b'): ...", "assigns channel.replica.branch"),
        ("with branch() as channel.replica.branch: ...", "assigns channel.replica.branch"),
        ("class Client:\n    branch: str\n\nclient.replica.branch = 'draft'", "assigns client.replica.branch"),
        (
            "from unittest.mock import patch\nfrom headwater.engine import Engine\npatch.object(Engine, 'submit')",
            "replaces an attribute of Engine",
        ),
    ],
)
def test_each_kind_of_breach_is_found(tmp_path: Path, text: str, found: str) -> None:
    assert breaches(tmp_path, text) == [found]


INNER = "headwater.engine.commit_group"


@pytest.mark.parametrize(
    "text",
    [
        f"NAME = '{INNER}'\nimportlib.import_module(NAME)",
        f"__import__('{INNER}')",
        f"pytest.importorskip('{INNER}')",
        f"sys.modules['{INNER}'].Group",
        f"pkgutil.resolve_name('{INNER}:Group')",
        f"importlib.util.find_spec('{INNER}')",
        f"pytest_plugins = ['{INNER}']",
        "import headwater\nheadwater.engine.commit_group.Group",
        "from headwater import engine\nengine.commit_group.Group",
        "import headwater.engine as e\ne.commit_group.Group",
        f"mock.patch('{INNER}.Group')",
        f"from unittest.mock import patch as p\np('{INNER}.Group')",
        f"mocker.patch('{INNER}.Group')",
        f"swap('{INNER}.Group.add', None)",
        f"PROGRAM = 'import sys; from {INNER} import Group'",
        f"PROGRAM = f'from {INNER} import {{name}}'",
    ],
)
def test_an_inner_module_is_found_however_it_is_named(tmp_path: Path, text: str) -> None:
    assert f"imports the inner module {INNER}" in breaches(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("importlib.import_module(f'headwater.engine.{name}')", "imports a module by f'headwater.engine.{name}'"),
        ("importlib.import_module(name)", "imports a module by name"),
        ("from importlib import import_module as load\nload(name)", "imports a module by name"),
        ("sys.modules[name]", "names a module by name"),
        ("from ..src.headwater.engine import hub", "imports src.headwater.engine relatively"),
        ("getattr(vault, f'_{name}')", "uses an attribute by f'_{name}'"),
        ("getattr(vault, '_' + name)", "uses an attribute by '_' + name"),
        ("getattr(rt, name)", "uses an attribute by name"),
        ("NAME = '_core'\ngetattr(vault, NAME)", "names the private attribute '_core'"),
        ("vars(vault)['_core']", "names the private attribute '_core'"),
        ("vault.__dict__['_core']", "names the private attribute '_core'"),
        ("rt.__dict__[name]", "reaches past names by rt.__dict__"),
        ("vars(session)[name]", "reaches past names by vars(session)"),
        ("operator.attrgetter('_core.scheduler')", "uses the private attribute it._core"),
        ("operator.attrgetter('core.registry')", "reaches an inner component by it.core.registry"),
        ("operator.attrgetter(name)", "uses an attribute by name"),
        ("operator.methodcaller('_flush')", "uses the private attribute it._flush"),
        ("object.__getattribute__(vault, name)", "reaches past names by object.__getattribute__"),
        ("inspect.getattr_static(vault, name)", "reaches past names by inspect.getattr_static"),
        ("rt.close.__globals__", "reaches past names by rt.close.__globals__"),
        ("rt.send.__closure__", "reaches past names by rt.send.__closure__"),
        ("getattr(rt, 'core').scheduler", "reaches an inner component by rt.core"),
        ("match rt:\n    case Runtime(_core=found): ...", "uses the private attribute '_core' in a pattern"),
        ("from headwater.engine import Engine\nsetattr(Engine, 'submit', None)", "assigns Engine.submit"),
        ("setattr(channel.replica, name, None)", "uses an attribute by name"),
        (
            "from headwater.engine import Engine\ndef test(mp):\n    mp.setattr(Engine, 'submit', None)",
            "replaces an attribute of Engine",
        ),
        ("def swap(monkeypatch):\n    return monkeypatch.setattr", "passes on monkeypatch.setattr"),
        ("PROGRAM = 'rt._core.scheduler'", "uses the private attribute rt._core"),
        ("PROGRAM = '\\n    from headwater import Cell\\n    rt._core'", "uses the private attribute rt._core"),
    ],
)
def test_names_in_texts_and_computed_names_are_found(tmp_path: Path, text: str, found: str) -> None:
    assert found in breaches(tmp_path, text)


def test_kits_of_a_suite_are_checked_with_it() -> None:
    kit = ROOT / "tests" / "unit" / "replica" / "kit.py"
    suite = ROOT / "tests" / "simulation" / "replica_world.py"
    checked = [source.path for source in with_kits([suite])]
    assert checked.count(kit.relative_to(ROOT)) == 1
    assert checked.count(suite.relative_to(ROOT)) == 1
