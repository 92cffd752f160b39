"""What the tests of previews and shadow runs share: the two commands, on a directory that nobody has open."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.cli.app import run as run_command
from headwater.data.codec import from_json_form
from headwater.data.value import ABSENT
from headwater.engine import Directory
from headwater.protocol.observations import Observations, Observed, QueryObservations

APP = "tests.scenario.resume_kit"
"""An application for the commands. They know every class that this process has imported, the newest of each name."""


@dataclass(frozen=True)
class Judged:
    """A node, and what a start would make of it."""

    space: str
    piece: str
    node: str
    kind: str
    fate: str
    reason: str
    details: tuple[str, ...]
    took_us: int


class Preview:
    """What `headwater preview` says."""

    def __init__(self, form: Any) -> None:
        self._totals: dict[str, Any] = form["totals"]
        self.nodes = [Judged(**{**each, "details": tuple(each["details"])}) for each in form["nodes"]]
        self.fresh = [(each["space"], each["piece"], each["member"]) for each in form["new"]]

    def of(self, fate: str) -> list[Judged]:
        return [each for each in self.nodes if each.fate == fate]

    def totals(self) -> dict[str, Any]:
        return self._totals


@dataclass(frozen=True)
class Finding:
    """A node that claims to be clean and would write something else."""

    node: str
    address: str
    stored: Any
    new: Any
    error: str


class Report:
    """What `headwater verify --resume` says."""

    def __init__(self, form: Any) -> None:
        self.ok: bool = form["ok"]
        self.checked: int = form["checked"]
        self.effects: int = form["effects"]
        self.not_clean: int = form["not_clean"]
        self.undecided = {each["node"]: each["why"] for each in form["undecided"]}
        self.findings = [
            Finding(each["node"], each["address"], _value(each, "stored"), _value(each, "new"), each.get("error", ""))
            for each in form["findings"]
        ]


def _value(form: Any, name: str) -> Any:
    return from_json_form(form[name]) if name in form else ABSENT


def _said(*words: str) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run_command([*words, "--json"])
    assert code in (0, 1), f"{words} exits {code}"
    return json.loads(out.getvalue())


async def answer(*words: str) -> Any:
    """What a command prints as JSON."""
    return await asyncio.to_thread(_said, *words)


async def previewed(folder: Path, space: str | None = None) -> Preview:
    spaces = () if space is None else ("--space", space)
    return Preview(await answer("preview", APP, "--data", str(folder), "--all", *spaces))


async def shadow_of(folder: Path) -> Report:
    return Report(await answer("verify", str(folder), "--resume", APP))


def content(folder: Path) -> object:
    """Everything that is stored in a directory: the commits, and what is known of nodes."""
    with Directory(folder) as directory:
        spaces = {name: directory.space(name) for name in directory.spaces()}
        return {
            name: (engine.changes(since=0, limit=10_000).items, _observed(engine)) for name, engine in spaces.items()
        }


def _observed(engine: Any) -> list[Observed]:
    found: list[Observed] = []
    after = None
    while True:
        page = engine.query_observations(QueryObservations(0, "", None, "", None, after, 1_000))
        assert isinstance(page, Observations)
        found += page.observed
        after = page.next
        if after is None:
            return found


def named(found: Preview, fate: str) -> set[str]:
    """The nodes of one fate, as the tests of restarts call them."""
    return {each.node.partition(" of ")[0].partition(", ")[0] for each in found.of(fate)}
