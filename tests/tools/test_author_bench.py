"""The author bench at small sizes: every measurement runs and reports the figures that it promises."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench.__main__ import BENCHES
from bench.author import peers, run, shapes
from bench.author.run import Outcome, Sizes, Task
from bench.figures import Figures
from tools import dev

SMALL = Sizes(
    opened=(1, 10),
    dependents=(1, 3),
    alone=3,
    at_once=4,
    rows=(5,),
    written=(3,),
    chain=(4,),
    sinks=(5,),
    stored=(20,),
    restarts=1,
    nodes=3,
    pieces=2,
    sessions=2,
    repeats=2,
)
TASKS = list(run.tasks(SMALL))


def reported(task: Task, folder: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    run.main(task.work, {"folder": str(folder), **task.arguments}, found.__setitem__)
    return found


@pytest.mark.parametrize("task", TASKS, ids=lambda task: " ".join([task.work, *map(str, task.arguments.values())]))
def test_a_measurement_reports_every_figure_that_it_promises(task: Task, tmp_path: Path) -> None:
    found = reported(task, tmp_path)
    assert set(found) == set(task.units)
    assert all(math.isfinite(value) for value in found.values())


@pytest.mark.parametrize("look", run.LOOKS)
def test_a_restart_shows_what_was_stored(look: str, tmp_path: Path) -> None:
    reported(Task("make_stored", {"nodes": 20, "pieces": 2}, {}), tmp_path)
    found = reported(Task("restart", {"nodes": 20, "pieces": 2, "look": look, "name": "r"}, {}), tmp_path)
    assert set(found) == {"r", "r.wall"}


def test_a_process_is_measured_from_outside_and_stopped_at_its_limit() -> None:
    task = Task("event", {"peer": "reaktiv", "count": 3}, {"event.alone.reaktiv": "us", "more": "us"})
    first, second = run.figures_of(task, run.run_process(task))
    assert first[0] == "event.alone.reaktiv"
    assert first[1] is not None
    assert second == ("more", None, "us", "it was not reported")

    endless = Task("event", {"peer": "reaktiv", "count": 10**12}, {"x": "us"})
    ((_, value, _, why),) = run.figures_of(endless, run.run_process(endless, limit_s=0.1))
    assert (value, why) == (None, "did not finish in 0.1 s")


def test_a_failed_process_says_why() -> None:
    failed = run.run_process(Task("event", {"peer": "reaktiv", "count": "many"}, {}))
    assert failed.why.startswith("TypeError: ")


def test_a_median_is_of_all_processes_or_of_none() -> None:
    turns = [Outcome({"a": 1.0, "b": 1.0}), Outcome({"a": 3.0}, "too late"), Outcome({"a": 2.0, "b": 1.0})]
    assert run.medians(turns) == Outcome({"a": 2.0}, "too late")


def test_every_process_has_the_limit_of_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, float]] = []

    def run_process(task: Task, *, stored: Path | None = None, limit_s: float) -> Outcome:
        ran.append((task.work, limit_s))
        return Outcome(why="" if task.work == "make_stored" else f"did not finish in {limit_s:g} s")

    monkeypatch.setattr(run, "run_process", run_process)
    found = list(run.measured(replace(SMALL, restarts=3, limit_s=7.0)))
    assert {limit_s for work, limit_s in ran if work != "make_stored"} == {7.0}
    assert {(value, why) for _, value, _, why in found} == {(None, "did not finish in 7 s")}
    # A restart that did not finish is not repeated.
    of_ours = [work for work, _ in ran if work == "restart"][: -len(peers.PEERS)]
    assert len(of_ours) == 2 * len(run.LOOKS)


def test_a_process_that_is_stopped_leaves_figures_without_a_value_and_with_a_reason() -> None:
    found = list(run.restarts(20, 1, limit_s=0.01))
    assert {value for _, value, _, _ in found} == {None}
    assert {why for _, _, _, why in found} == {
        "it could not be stored: did not finish in 0.02 s",
        "did not finish in 0.01 s",
    }


@pytest.mark.parametrize("kind", ["open.one_piece.10000", "open.pieces_of_ten.10000", "each.10000.make"])
def test_the_baseline_has_the_large_sizes(kind: str) -> None:
    assert f"{kind}.{shapes.OURS}" in {name for task in run.tasks(run.MODEST) for name in task.units}
    assert run.MODEST.stored == (1_000, 10_000)


def test_every_figure_of_a_peer_has_one_of_ours_beside_it() -> None:
    names = {name for task in TASKS for name in task.units}
    theirs = [name for name in names if name.rpartition(".")[2] in peers.PEERS]
    assert theirs
    assert {run.ours_for(name) for name in theirs} <= names
    assert run.ours_for("restart.20.nothing.shiny") == f"restart.20.one_piece.nothing.{shapes.OURS}"


def test_figures_are_printed_without_a_goal_and_missing_ones_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = [
        ("change.3.set", 2.0, "ms", ""),
        ("change.3.reaktiv", 1.0, "ms", ""),
        ("change.9.set", None, "ms", "did not finish in 60 s"),
    ]
    monkeypatch.setattr(run, "measured", lambda _sizes: iter(measured))
    figures = Figures()
    run.run(figures)
    ours, peer, missing = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert figures.missed == []
    assert (ours["name"], ours["value"], ours["goal"]) == ("author.change.3.set", 2.0, None)
    assert (peer["against"], peer["ratio"]) == ("headwater", 0.5)
    assert (missing["value"], missing["met"], missing["why"]) == (None, None, "did not finish in 60 s")


def test_goal_of_many_pieces_is_their_growth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = [
        (f"chain.ring.{size}.{how}.{shapes.OURS}", value, "ms", "")
        for how, values in (("discover", (1_000.0, 4_900.0)), ("close_each", (100.0, 900.0)), ("close", (1.0, 9.0)))
        for size, value in zip((1_000, 4_000), values, strict=True)
    ]
    monkeypatch.setattr(run, "measured", lambda _sizes: iter(measured))
    figures = Figures()
    run.run(figures)
    printed = {line["name"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert figures.missed == ["author.chain.ring.4000.close_each.headwater"]
    found = printed["author.chain.ring.4000.discover.headwater"]
    assert (found["goal"], found["met"], found["ratio"]) == ("<= 5", True, 4.9)
    assert printed["author.chain.ring.1000.discover.headwater"]["goal"] is None
    assert printed["author.chain.ring.4000.close.headwater"]["goal"] is None, "too short to be judged"


def test_goals_are_costs_of_a_further_node_and_peers_that_are_slower(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = [
        ("open.one_piece.1.headwater", 2.0, "ms", ""),
        ("open.one_piece.100.headwater", 10.0, "ms", ""),
        ("open.one_piece.10000.headwater", 505.0, "ms", ""),
        ("open.one_piece.100.shiny", 9.0, "ms", ""),
        ("open.one_piece.100.reaktiv", 1.0, "ms", ""),
        ("change.100.set", 2.0, "ms", ""),
        ("change.1000.set", 20.0, "ms", ""),
        ("change.100.reaktiv", 3.0, "ms", ""),
    ]
    monkeypatch.setattr(run, "measured", lambda _sizes: iter(measured))
    figures = Figures()
    run.run(figures)
    printed = {
        line["name"].removeprefix("author."): line for line in map(json.loads, capsys.readouterr().out.splitlines())
    }
    goals = {name: (line["goal"], line["met"]) for name, line in printed.items() if line["goal"]}
    assert goals == {
        "open.one_piece.1.headwater": ("<= 1", False),
        "open.one_piece.100.shiny": (">= 1", False),
        "change.100.reaktiv": (">= 1", True),
        "open.further_node.headwater": ("<= 60", True),
        "change.further_node.headwater": ("<= 18", False),
    }
    assert (printed["open.further_node.headwater"]["value"], printed["change.further_node.headwater"]["value"]) == (
        50,
        20,
    )


def test_help_lists_every_bench() -> None:
    assert tuple(BENCHES) == dev.BENCHES
