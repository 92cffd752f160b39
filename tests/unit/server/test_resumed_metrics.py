"""Metrics say of how many nodes a start was spared, how many ran again, and of how many nobody knew, with reasons."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from headwater.clock import RealClock
from headwater.server.operation.metrics import CHANGED, Metrics
from tests.unit.cli.kit_app import SHOP, write_app
from tests.unit.cli.test_run import LIMIT_S, running

pytestmark = pytest.mark.thorough

NAME = "headwater_resumed_nodes_total"
ASLEEP = "headwater_asleep_pieces_total"


def _counted(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=LIMIT_S) as response:
        lines = response.read().decode().splitlines()
    named = [*_named(lines), *(line for line in lines if line.startswith(ASLEEP))]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in named}


def _named(lines: list[str]) -> list[str]:
    return [line.removeprefix(NAME) for line in lines if line.startswith(NAME)]


def test_a_second_start_is_counted_as_spared(tmp_path: Path) -> None:
    app = write_app(tmp_path / "app")
    words = (str(app), "--json", "--data", str(tmp_path / "data"))
    with running(tmp_path, *words) as served:
        counted = _counted(served.url())
        assert counted.pop(ASLEEP) == 0
        assert not any("skipped" in name for name in counted)
        assert served.stop()[0] == 0
    with running(tmp_path, *words) as served:
        assert _counted(served.url()) == {ASLEEP: 1.0}, "the effect is clean, too, and demands nothing"
        assert served.stop()[0] == 0
    write_app(tmp_path / "app", SHOP.replace("RATE = 2", "RATE = 3"))
    with running(tmp_path, *words) as served:
        counted = _counted(served.url())
        assert counted.pop(ASLEEP) == 0
        assert sum(counted.values()) >= 1
        assert any("rerun" in name or "unknown" in name for name in counted), counted
        assert served.stop()[0] == 0


def test_reasons_are_told_without_what_they_say_of_one_node() -> None:
    metrics = Metrics(dict, RealClock(), 1.0)
    counts = {
        "clean": 5,
        "asleep": 4,
        "woken": 3,
        "its code has no fingerprint: Cart.total -> secret['x']": 1,
        "its code has no fingerprint: Cart.other -> FILE": 2,
        **dict.fromkeys(CHANGED, 1),
    }
    metrics.count_resumed(lambda: counts)
    lines = _named(metrics.page().decode().splitlines())
    assert '{outcome="skipped",reason="clean"} 5.0' in lines
    assert '{outcome="unknown",reason="its code has no fingerprint"} 3.0' in lines
    assert sum('outcome="rerun"' in line for line in lines) == len(CHANGED)
    assert not any("secret" in line or "woken" in line or "asleep" in line for line in lines)
    assert {f"{ASLEEP} 4.0", "headwater_woken_pieces_total 3.0"} <= set(metrics.page().decode().splitlines())
    assert isinstance(metrics.registry, CollectorRegistry)
