"""Snapshots, pictures and counts: what they say is what the graph is, and taking them moves nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.scheduler.introspection.introspection import quoted
from headwater.testing.scheduler.kit import World
from tests.unit.scheduler.introspection_kit import Inspected

TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\\n]|\\.)*")|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>->|[{}\[\];,=]))""", re.DOTALL
)


def tokens(text: str) -> list[str]:
    """DOT as its own lexer cuts it; fails at the first character that belongs to nothing."""
    found, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = TOKEN.match(text, place)
        assert match is not None, f"no token at {text[place : place + 40]!r}"
        found.append(match[0].strip())
        place = match.end()
    return found


def shown_by_dot(label: str) -> str:
    """What a picture shows of a quoted label."""
    inner = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), label[1:-1])
    return inner.replace("&amp;", "&")


def diamond() -> Inspected:
    world = World(traced=False)
    source = world.cell({"x": 1, "y": 2}, id="source")
    left = world.computed(lambda: source.at("x").get() + 1, id="left")
    right = world.computed(lambda: len(source.shape()), id="right")
    total = world.computed(lambda: left.get() + right.get(), id="total")
    world.computed(lambda: total.get(), id="dormant")
    world.look(total, id="effect")
    world.settle()
    return Inspected(world)


def test_a_snapshot_says_who_reads_and_writes_what() -> None:
    snapshot = diamond().look.snapshot()
    assert [record.id for record in snapshot.nodes] == ["left", "right", "total", "dormant", "effect"]
    total = snapshot.node("total")
    assert (total.kind, total.status, total.live, total.height) == ("computation", "clean", True, 1)
    assert total.outputs == ("space:total",)
    assert total.writers == ("left", "right")
    assert total.readers == ("effect",)
    assert [(read.address, read.depth, read.writers) for read in total.reads] == [
        ("space:left", "deep", ("left",)),
        ("space:right", "deep", ("right",)),
    ]
    assert (total.runs, total.error, total.gate) == (1, None, None)
    assert [(read.address, read.depth) for read in snapshot.node("right").reads] == [("space:source", "shape")]
    assert [read.address for read in snapshot.node("left").reads] == ["space:source#/x"]
    dormant = snapshot.node("dormant")
    assert (dormant.status, dormant.live, dormant.reads, dormant.runs) == ("never-ran", False, (), 0)
    assert snapshot.edges() == (("left", "total"), ("right", "total"), ("total", "effect"))
    with pytest.raises(KeyError):
        snapshot.node("nobody")


def test_a_snapshot_is_json_and_says_gates_errors_envelopes_and_parents() -> None:
    world = World(traced=False)
    source, big = world.cell(0, id="source"), world.cell({"a": {}}, id="big")
    world.materializer(lambda: big.at("a", "n").set(source.get()), [big.at("a")], id="m")
    parent = world.effect(source.get, id="slow", debounce_ms=20)
    world.effect(lambda: 1 // source.get(), id="failing", parent=parent)
    world.settle()
    look = Inspected(world).look
    data = json.loads(json.dumps(look.snapshot().as_json()))
    by_id = {record["id"]: record for record in data["nodes"]}
    assert by_id["m"]["envelope"] == ["space:big#/a"]
    assert by_id["slow"]["gate"]["debounce_us"] == 20_000
    assert by_id["failing"]["error"].startswith("ZeroDivisionError: ")
    assert (by_id["failing"]["parent"], by_id["failing"]["rank"]) == ("slow", 1)
    assert by_id["slow"]["reads"] == [{"address": "space:source", "depth": "deep", "writers": []}]


def test_a_snapshot_of_some_nodes_has_only_those() -> None:
    look = diamond().look
    assert [record.id for record in look.snapshot(lambda node: node.live).nodes] == ["left", "right", "total", "effect"]
    assert '"dormant' not in look.dot(lambda node: node.live)


def test_a_picture_is_well_formed_and_has_every_node_and_edge() -> None:
    text = diamond().look.dot()
    cut = tokens(text)
    assert cut[:3] == ["digraph", "headwater", "{"]
    assert cut[-1] == "}"
    assert cut.count("{") == cut.count("}") == 1
    assert cut.count("[") == cut.count("]")
    edges = re.findall(r"^  (\w+) -> (\w+) \[label=(.*)\];$", text, re.MULTILINE)
    assert ("n1", "n3", '"space:left"') in edges
    assert ("n3", "n5", '"space:total"') in edges
    assert len(edges) == 5  # Two of them from the source, which no node writes.
    assert 'label="space:source#/x"' in text
    assert re.search(r'n4 \[shape=ellipse, style="filled,dashed"', text)


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]) | st.sampled_from('\\"&<>{}|\n;')))
def test_a_label_comes_back_as_it_was(text: str) -> None:
    label = quoted(text)
    assert tokens(f"digraph x {{ n1 [label={label}]; }}")[7] == label
    assert shown_by_dot(label) == text


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "tab\there", "line\u2028"])
def test_what_cannot_be_printed_is_shown_by_its_number(text: str) -> None:
    label = quoted(text)
    label.encode()
    assert shown_by_dot(label).isprintable()
    assert re.search(r"\\u[0-9a-f]{4}", shown_by_dot(label))


def nasty() -> str:
    world = World(traced=False)
    source = world.cell(0, id='a "quoted" \\ id')
    for id in ('"', "\\", "a\nb", "x -> y; }", "<b>&amp;</b>", "\u00e4\u4e2d", "\\N"):
        world.effect(source.get, id=id)
    world.effect(lambda: 1 // source.get(), id="failing")
    world.settle()
    return Inspected(world).look.dot()


def test_ids_that_look_like_dot_are_only_labels() -> None:
    cut = tokens(nasty())
    assert cut.count("->") == 8
    assert cut.count("}") == 1


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_it() -> None:
    for text in (diamond().look.dot(), nasty()):
        drawn = subprocess.run(["dot", "-Tsvg"], input=text.encode(), capture_output=True, check=True, timeout=60)
        assert b"<svg" in drawn.stdout
        assert not drawn.stderr


def test_counts_add_up() -> None:
    inspected = diamond()
    stats = inspected.look.stats()
    assert stats.nodes == 5
    assert stats.by_kind == {"computation": 4, "effect": 1, "materializer": 0}
    assert stats.by_status == {"never-ran": 1, "clean": 4, "invalid": 0}
    assert (stats.live, stats.dormant) == (4, 1)
    assert (stats.runs, stats.reads) == (4, 5)
    assert stats.attempts >= stats.runs
    assert stats.passes >= 1
    assert (stats.queued, stats.suspended, stats.loading, stats.gated, stats.failing) == (0, 0, 0, 0, 0)


def test_counts_say_what_waits_and_what_fails() -> None:
    world = World(traced=False)
    source, missing = world.cell(0), world.absent_cell()
    world.driver.lazy = True
    world.effect(missing.get, id="loads")
    world.effect(lambda: 1 // source.get(), id="fails")
    world.effect(source.get, id="gated", debounce_ms=50)
    world.settle()
    source.set(0.0)
    world.settle()
    source.set(3)
    stats = Inspected(world).look.stats()
    assert (stats.loading, stats.failing, stats.gated, stats.queued) == (1, 1, 1, 1)
    assert stats.by_status["invalid"] == 2


def test_looking_reads_no_value_and_asks_for_nothing() -> None:
    inspected = diamond()
    driver, look = inspected.world.driver, inspected.look
    before = (driver.ticks, driver.load_count, driver.releases, driver.timers_set, look.snapshot())
    look.dot()
    look.stats()
    look.why("effect")
    look.node_stats("total")
    assert (driver.ticks, driver.load_count, driver.releases, driver.timers_set, look.snapshot()) == before
