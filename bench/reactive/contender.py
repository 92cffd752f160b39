"""What a shape may use of a contender, and what a shape is.

A contender offers signals, computeds and effects under one root. Shapes never look further, so that each is
written once. They read inside computeds and effects only: some contenders charge for a read from outside, and
how an application looks at its graph is not what is measured here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

# The limit that Python starts with. Who settles without recursion needs no more.
PLAIN_RECURSION_LIMIT: Final = 1_000
# Enough for every shape here. Peers that recurse per layer get it, with a stack to match: running out of a
# default that an application can raise would say nothing about them.
RAISED_RECURSION_LIMIT: Final = 200_000


class Readable(Protocol):
    def get(self) -> Any:
        """The value; inside a computed or an effect the read is recorded."""


class Writable(Readable, Protocol):
    def set(self, value: Any, /) -> object:
        """Write. What follows from it may wait for `settle`, and does inside `batch`."""


class Contender(Protocol):
    """A root: everything made through it is gone after `dispose`."""

    def signal(self, value: Any, /) -> Writable: ...

    def computed(self, fn: Callable[[], Any], /) -> Readable: ...

    def effect(self, fn: Callable[[], None], /) -> Callable[[], object]:
        """Run `fn` by the next `settle` and again after each change of what it read; the answer ends it."""

    def batch(self, write: Callable[[], None], /) -> None:
        """Call `write`; its writes are one change, and effects see them together."""

    def settle(self) -> None:
        """Afterwards every effect has seen every write."""

    def dispose(self) -> None: ...

    def runs(self) -> int | None:
        """How often functions ran, by the contender's own account; None to have their calls counted.

        Who stops a run that came too early and starts it again has called the function more often than it ran.
        """


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender by name: how it is made, in a process of its own, and what it is promised there."""

    name: str
    open: Callable[[], Contender]
    recursion_limit: int = RAISED_RECURSION_LIMIT
    # Whether a run more than the exact count is a fault and not a trait.
    exact: bool = False
    # Waits for a disk, so that its time is that of the clock. Everybody else only computes: there the time of the
    # processor is the same on a quiet machine, and on a busy one it does not make long portions look slow.
    waits: bool = False


class NotAvailable(Exception):
    """This contender cannot run here; the text says why. Printed, never passed over."""


@dataclass(frozen=True, slots=True)
class Turns:
    """A shape that has been built under some contender."""

    # Make the updates numbered `begin` to `end - 1`, settling after each. Every number is used once, in order.
    drive: Callable[[int, int], None]
    # What the effects have seen. Equal for all contenders after the same updates.
    seen: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    group: str
    build: Callable[[Contender], Turns]
    # Updates in one timed portion.
    steps: int
    # For shapes whose work is the building: how many nodes a portion makes. Each portion starts anew.
    creates: int = 0
    # Shapes that only show growth would count the same thing several times in a mean.
    in_mean: bool = True
    # Readers choose what they read by what they read.
    rewires: bool = False
