"""All shapes with their sizes, and all entrants.

Sizes are those of the public benchmark, except that there are fewer updates, fewer nodes in the creation set and
fewer layers in cellx: as many as the slowest contender finishes in a fraction of a second. The same for all.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.reactive import headwater_contender, kairo, peers, sets
from bench.reactive.cellx import cellx
from bench.reactive.contender import PLAIN_RECURSION_LIMIT, Entrant, Shape
from bench.reactive.exact import Exact
from bench.reactive.grids import Grid

HEADWATER: Final = "headwater"
EXACT: Final = Entrant("exact", Exact)

ENTRANTS: Final = (
    Entrant(HEADWATER, headwater_contender.detached, PLAIN_RECURSION_LIMIT, exact=True),
    Entrant("headwater normal", headwater_contender.attached_normal, PLAIN_RECURSION_LIMIT, exact=True, waits=True),
    Entrant("headwater full", headwater_contender.attached_full, PLAIN_RECURSION_LIMIT, exact=True, waits=True),
    Entrant("reaktiv", peers.reaktiv),
    Entrant("observ", peers.observ),
    Entrant("observ sync", peers.observ_sync),
    Entrant("shiny", peers.shiny),
    Entrant("signified", peers.signified),
)

KAIRO: Final = (
    Shape("avoidable", "kairo", kairo.avoidable, 300),
    Shape("broad", "kairo", kairo.broad, 6),
    Shape("deep", "kairo", partial(kairo.deep, depth=50), 20),
    Shape("diamond", "kairo", kairo.diamond, 120),
    Shape("mux", "kairo", kairo.mux, 20),
    Shape("repeated", "kairo", kairo.repeated, 250),
    Shape("triangle", "kairo", kairo.triangle, 60),
    Shape("unstable", "kairo", kairo.unstable, 100, rewires=True),
)

# Per layer four computeds and four effects.
CELLX: Final = tuple(
    Shape(f"cellx {layers}", "cellx", partial(cellx, layers=layers), steps)
    for layers, steps in ((10, 10), (20, 5), (40, 3))
)

GRIDS: Final = (
    Shape("simple component", "grids", Grid(10, 5, 2, read_fraction=0.2).build, 150),
    Shape("dynamic component", "grids", Grid(10, 10, 6, 0.75, 0.2).build, 15, rewires=True),
    Shape("large web app", "grids", Grid(1000, 12, 4, 0.95).build, 5, rewires=True),
    Shape("wide dense", "grids", Grid(1000, 5, 25).build, 4),
    Shape("deep grid", "grids", Grid(5, 500, 3).build, 1),
    Shape("very dynamic", "grids", Grid(100, 15, 6, 0.5).build, 3, rewires=True),
)

NODES: Final = 1_000


def creation(name: str, sources_each: int, effects_each: int, count: int = NODES) -> Shape:
    build = partial(sets.create, count=count, sources_each=sources_each, effects_each=effects_each)
    return Shape(f"create {name}", "create", build, 1, creates=count)


CREATE: Final = (
    Shape("create signals", "create", partial(sets.create_signals, count=NODES), 1, creates=NODES),
    creation("0 to 1", 0, 1),
    creation("1 to 1", 1, 1),
    creation("2 to 1", 2, 1),
    creation("4 to 1", 4, 1),
    creation("1000 to 1", 1000, 1, count=10),
    creation("1 to 2", 1, 2),
    creation("1 to 4", 1, 4),
    creation("1 to 8", 1, 8),
    creation("1 to 1000", 1, 1000),
)

UPDATE: Final = tuple(
    Shape(
        f"update {sources} to {effects}", "update", partial(sets.update, sources_each=sources, effects_each=effects), n
    )
    for sources, effects, n in (
        (1, 1, 600),
        (2, 1, 600),
        (4, 1, 600),
        (1000, 1, 4),
        (1, 2, 300),
        (1, 4, 150),
        (1, 1000, 1),
    )
)

# For growth only: time per run at one, two and four times the depth.
GROWTH: Final = {
    "deep": ("deep", "deep 100", "deep 200"),
    "cellx": ("cellx 10", "cellx 20", "cellx 40"),
}
DEEPER: Final = (
    Shape("deep 100", "kairo", partial(kairo.deep, depth=100), 10, in_mean=False),
    Shape("deep 200", "kairo", partial(kairo.deep, depth=200), 5, in_mean=False),
)

SHAPES: Final = (*KAIRO, *DEEPER, *CELLX, *GRIDS, *CREATE, *UPDATE)
