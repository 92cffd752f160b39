"""The eight shapes of kairo: small graphs under one source, each with one way to waste work."""

from __future__ import annotations

from typing import Any, Final

from bench.reactive.contender import Contender, Readable, Turns

BROAD: Final = 50
DIAMOND: Final = 5
MUX: Final = 100
# As there: only the first ten of a hundred heads are written.
MUX_WRITTEN: Final = 10
REPEATED: Final = 30
TRIANGLE: Final = 10
UNSTABLE: Final = 20
BUSY: Final = 100


def busy() -> None:
    """Work that nobody needs, in a node that must not run again."""
    total = 0
    for number in range(BUSY):
        total += number


def one_source(root: Contender, head: Any, seen: list[Any]) -> Turns:
    """A shape that is driven by writing the number of the update to its only source."""
    root.settle()
    settle = root.settle

    def drive(begin: int, end: int) -> None:
        for number in range(begin, end):
            head.set(number)
            settle()

    return Turns(drive, lambda: list(seen))


def avoidable(root: Contender) -> Turns:
    """The second node answers the same for every input, so that nothing behind it has to run."""
    seen = [-1]
    head = root.signal(0)
    first = root.computed(lambda: head.get())

    def constant() -> int:
        first.get()
        return 0

    second = root.computed(constant)

    def heavy() -> Any:
        busy()
        return second.get() + 1

    third = root.computed(heavy)
    fourth = root.computed(lambda: third.get() + 2)
    fifth = root.computed(lambda: fourth.get() + 3)

    def look() -> None:
        seen[0] = fifth.get()
        busy()

    root.effect(look)
    return one_source(root, head, seen)


def broad(root: Contender) -> Turns:
    """Fifty chains of two, each with an effect, under one source."""
    seen = [-1] * BROAD
    head = root.signal(0)
    for index in range(BROAD):
        arm(root, head, index, seen)
    return one_source(root, head, seen)


def arm(root: Contender, head: Readable, index: int, seen: list[Any]) -> None:
    upper = root.computed(lambda: head.get() + index)
    lower = root.computed(lambda: upper.get() + 1)

    def look() -> None:
        seen[index] = lower.get()

    root.effect(look)


def deep(root: Contender, depth: int) -> Turns:
    """A chain with one effect at its end."""
    head = root.signal(0)
    last: Readable = head
    for _ in range(depth):
        last = successor(root, last)
    return one_source(root, head, watched(root, last))


def successor(root: Contender, above: Readable) -> Readable:
    return root.computed(lambda: above.get() + 1)


def watched(root: Contender, node: Readable) -> list[Any]:
    """What one effect sees of one node."""
    seen = [-1]

    def look() -> None:
        seen[0] = node.get()

    root.effect(look)
    return seen


def diamond(root: Contender) -> Turns:
    """Five siblings between a source and a sum."""
    head = root.signal(0)
    middle = [successor(root, head) for _ in range(DIAMOND)]
    total = root.computed(lambda: sum([node.get() for node in middle]))
    return one_source(root, head, watched(root, total))


def mux(root: Contender) -> Turns:
    """A hundred sources gathered into one value and taken apart again: one of a hundred has to go on."""
    seen = [-1] * MUX
    heads = [root.signal(0) for _ in range(MUX)]
    names = [str(index) for index in range(MUX)]
    gathered = root.computed(lambda: {name: head.get() for name, head in zip(names, heads, strict=True)})
    for index, name in enumerate(names):
        part(root, gathered, name, index, seen)
    root.settle()
    settle = root.settle

    def drive(begin: int, end: int) -> None:
        for number in range(begin, end):
            heads[number % MUX_WRITTEN].set(number)
            settle()

    return Turns(drive, lambda: list(seen))


def part(root: Contender, gathered: Readable, name: str, index: int, seen: list[Any]) -> None:
    taken = root.computed(lambda: gathered.get()[name])
    lower = root.computed(lambda: taken.get() + 1)

    def look() -> None:
        seen[index] = lower.get()

    root.effect(look)


def repeated(root: Contender) -> Turns:
    """One node that reads the same source thirty times."""
    head = root.signal(0)

    def compute() -> int:
        total = 0
        for _ in range(REPEATED):
            total += head.get()
        return total

    return one_source(root, head, watched(root, root.computed(compute)))


def triangle(root: Contender) -> Turns:
    """A chain of ten whose every link is also read by one sum."""
    head = root.signal(0)
    links: list[Readable] = []
    last: Readable = head
    for _ in range(TRIANGLE):
        links.append(last)
        last = successor(root, last)
    total = root.computed(lambda: sum([node.get() for node in links]))
    return one_source(root, head, watched(root, total))


def unstable(root: Contender) -> Turns:
    """A node that reads one of two others, the other one each time."""
    head = root.signal(0)
    double = root.computed(lambda: head.get() * 2)
    inverse = root.computed(lambda: -head.get())

    def compute() -> int:
        total = 0
        for _ in range(UNSTABLE):
            total += double.get() if head.get() % 2 else inverse.get()
        return total

    return one_source(root, head, watched(root, root.computed(compute)))
