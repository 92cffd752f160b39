"""A snapshot as a picture: text in the language of Graphviz.

Owns shapes, colours and escaping. Nodes of the picture are called by numbers, never by ids: an id may hold anything,
and inside quotes DOT cannot say that a backslash comes last. Ids and addresses are labels, and a label that can be
printed is shown as it is.
"""

from __future__ import annotations

import re
from typing import Final

from headwater.scheduler.introspection.snapshot import GraphSnapshot, NodeRecord

__all__ = ["dot_text", "quoted"]

_SHAPES: Final = {"computation": "ellipse", "effect": "box", "materializer": "hexagon"}
_FILLS: Final = {"never-ran": "white", "clean": "palegreen", "invalid": "khaki"}
_FAILED: Final = "lightcoral"
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def dot_text(snapshot: GraphSnapshot) -> str:
    """The graph from left to right: what is written, who reads it. Dormant nodes are dashed."""
    names = {record.id: f"n{record.number}" for record in snapshot.nodes}
    lines = ["digraph headwater {", '  charset="UTF-8";', "  rankdir=LR;", "  node [style=filled];"]
    sources: dict[str, str] = {}  # addresses that no node of the picture writes
    edges: dict[tuple[str, str, str], None] = {}
    for record in snapshot.nodes:
        lines.append(_node_line(names[record.id], record))
        for read in record.reads:
            label = read.address if read.depth == "deep" else f"{read.address} ({read.depth})"
            inside = [names[writer] for writer in read.writers if writer in names]
            if not inside:
                inside = [sources.setdefault(read.address, f"d{len(sources)}")]
                label = "" if read.depth == "deep" else f"({read.depth})"
            for writer in inside:
                edges[writer, names[record.id], label] = None
    for address, name in sources.items():
        lines.append(f"  {name} [shape=note, fillcolor=white, label={quoted(address)}];")
    for writer, reader, label in edges:
        lines.append(f"  {writer} -> {reader} [label={quoted(label)}];")
    for record in snapshot.nodes:
        if record.parent is not None and record.parent in names:
            lines.append(f"  {names[record.parent]} -> {names[record.id]} [style=dotted, arrowhead=none];")
    return "\n".join([*lines, "}", ""])


def _node_line(name: str, record: NodeRecord) -> str:
    label = f"{record.id}\nheight {record.height}, {record.runs} runs"
    if record.error is not None:
        label += f"\n{record.error}"
    style = "filled" if record.live else "filled,dashed"
    fill = _FILLS[record.status] if record.error is None else _FAILED
    shape = _SHAPES[record.kind]
    return f'  {name} [shape={shape}, style="{style}", fillcolor={fill}, label={quoted(label)}];'


def quoted(text: str) -> str:
    """A label: between quotes, with nothing in it that DOT or its labels would take for something else."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;").replace("\n", "\\n")
    return f'"{_UNPRINTABLE.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    """A character that no picture shows, by its number."""
    return f"\\\\u{ord(found[0]):04x}"
