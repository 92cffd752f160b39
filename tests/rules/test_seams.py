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


def test_kits_of_a_suite_are_checked_with_it() -> None:
    kit = ROOT / "tests" / "unit" / "replica" / "kit.py"
    suite = ROOT / "tests" / "simulation" / "replica_world.py"
    checked = [source.path for source in with_kits([suite])]
    assert checked.count(kit.relative_to(ROOT)) == 1
    assert checked.count(suite.relative_to(ROOT)) == 1
