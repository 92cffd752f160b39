"""The shape of cellx: layers of four nodes that cross over, with an effect on every node.

Each layer stacks a diamond on the one above, so the number of paths from source to end grows exponentially
with the layers, and whoever walks paths instead of nodes does not come back.
"""

from __future__ import annotations

from typing import Any, Final

from bench.reactive.contender import Contender, Readable, Turns

# Update for update the other one of these is written: the values upstream's run begins and ends with.
INPUTS: Final = ((1, 2, 3, 4), (4, 3, 2, 1))
# The values grow with the layers; this bounds them to what fits a machine word.
MODULUS: Final = 1_000_003


def cellx(root: Contender, layers: int) -> Turns:
    sources = [root.signal(value) for value in INPUTS[0]]
    seen: list[Any] = [-1] * (4 * layers)
    row: list[Readable] = list(sources)
    for layer in range(layers):
        row = next_layer(root, row)
        for column, node in enumerate(row):
            watch(root, node, seen, 4 * layer + column)
    root.settle()
    batch, settle = root.batch, root.settle

    def drive(begin: int, end: int) -> None:
        for number in range(begin, end):

            def write(values: tuple[int, ...] = INPUTS[number % 2]) -> None:
                for source, value in zip(sources, values, strict=True):
                    source.set(value)

            batch(write)
            settle()

    return Turns(drive, lambda: list(seen))


def next_layer(root: Contender, row: list[Readable]) -> list[Readable]:
    first, second, third, fourth = row
    return [
        root.computed(lambda: second.get()),
        root.computed(lambda: (first.get() - third.get()) % MODULUS),
        root.computed(lambda: (second.get() + fourth.get()) % MODULUS),
        root.computed(lambda: third.get()),
    ]


def watch(root: Contender, node: Readable, seen: list[Any], place: int) -> None:
    def look() -> None:
        seen[place] = node.get()

    root.effect(look)
