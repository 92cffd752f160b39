"""The dynamic grids: rows of nodes that each read some nodes of the row above, some of them by what they find.

A grid has the sizes, the fraction of nodes that always read the same, and the reads per node of the public
benchmark. Only the updates are fewer. Where leaves are lazy, a part of the last row has no reader, so that
whatever serves only that part must not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from bench.reactive.contender import Contender, Readable, Turns

# Sums of sums of sums outgrow a machine word within a dozen rows; this bounds them.
MODULUS: Final = 1_000_003
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Grid:
    width: int
    # With the row of sources.
    layers: int
    reads: int
    static_fraction: float = 1.0
    read_fraction: float = 1.0

    def build(self, root: Contender) -> Turns:
        random = Random(SEED)
        sources = [root.signal(index) for index in range(self.width)]
        row: list[Readable] = list(sources)
        for _ in range(self.layers - 1):
            row = self.next_row(root, row, random)
        leaves = random.sample(row, round(self.width * self.read_fraction))
        seen: list[Any] = [-1]

        def look() -> None:
            seen[0] = sum([leaf.get() for leaf in leaves])

        root.effect(look)
        root.settle()
        settle = root.settle
        width = self.width

        def drive(begin: int, end: int) -> None:
            for number in range(begin, end):
                index = number % width
                sources[index].set(number + index)
                settle()

        return Turns(drive, lambda: list(seen))

    def next_row(self, root: Contender, row: Sequence[Readable], random: Random) -> list[Readable]:
        made = []
        for index in range(self.width):
            above = [row[(index + offset) % self.width] for offset in range(self.reads)]
            make = static_node if random.random() < self.static_fraction else dynamic_node
            made.append(make(root, above))
        return made


def static_node(root: Contender, above: Sequence[Readable]) -> Readable:
    def compute() -> int:
        total = 0
        for node in above:
            total += node.get()
        return total % MODULUS

    return root.computed(compute)


def dynamic_node(root: Contender, above: Sequence[Readable]) -> Readable:
    """If the first value is odd, leaves out one of the others, which one it says."""
    first, others = above[0], above[1:]

    def compute() -> int:
        total: int = first.get()
        left_out = total % len(others) if total & 1 else -1
        for index, node in enumerate(others):
            if index != left_out:
                total += node.get()
        return total % MODULUS

    return root.computed(compute)
