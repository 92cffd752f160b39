"""What the replicas of one check do: each has a program, the reads and writes of its commits in order.

A check explores every interleaving of one workload with every fault. A scope is all workloads of a shape, up
to renaming: paths may be swapped, and so may replicas with programs of the same length. Both are symmetries
of the protocol, so one workload of each class suffices.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product
from typing import Final, NamedTuple

PATHS: Final = "xy"
"""Two places that do not overlap: two documents, or two keys of one. A read of both is a read of their container."""


class Kind(NamedTuple):
    """One commit of a program: what it reads, and the one path it writes. Without reads it is a blind write."""

    reads: str
    writes: str

    def __str__(self) -> str:
        return f"r({self.reads})w({self.writes})" if self.reads else f"w({self.writes})"


Program = tuple[Kind, ...]
Workload = tuple[Program, ...]

BLIND: Final = tuple(Kind("", path) for path in PATHS)
READING: Final = tuple(Kind(read, path) for read in PATHS for path in PATHS)
OF_BOTH: Final = tuple(Kind(PATHS, path) for path in PATHS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What may happen beside the commits, a lost connection and a crash, which always may.

    The last three say what takes two steps instead of one: to judge a commit and make it durable, to lose a
    connection and make it again, to send a frame of changes and hear it. README.md says why one step loses no
    behaviour; the tests compare both ways.
    """

    refusals: bool = True  # the engine may refuse any commit by a rule that has nothing to do with its reads
    acknowledgements: bool = True  # replicas acknowledge verdicts, and the engine forgets what was acknowledged
    copies: int = 0  # messages that the network may repeat within their connection, for each replica
    groups: bool = False
    offline: bool = False
    frames: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """All workloads in which replica i makes up to `commits[i]` commits of these kinds."""

    name: str
    commits: tuple[int, ...]
    kinds: tuple[Kind, ...] = BLIND + READING
    conditions: Conditions = Conditions()

    def workloads(self) -> list[Workload]:
        """One workload of each class."""
        programs = [list(product(self.kinds, repeat=count)) for count in self.commits]
        return sorted({min(renamings(workload)) for workload in product(*programs)})


def renamings(workload: Workload) -> list[Workload]:
    """The workload under every symmetry."""
    lengths = [len(program) for program in workload]
    orders = [order for order in permutations(range(len(workload))) if [lengths[i] for i in order] == lengths]
    swapped = tuple(tuple(_swapped(kind) for kind in program) for program in workload)
    return [tuple(form[i] for i in order) for form in (workload, swapped) for order in orders]


def _swapped(kind: Kind) -> Kind:
    other = str.maketrans(PATHS, PATHS[::-1])
    return Kind("".join(sorted(kind.reads.translate(other))), kind.writes.translate(other))


def parsed(text: str) -> Workload:
    """The workload written as `r(x)w(x) w(y); w(x)`: programs apart by semicolons, commits by spaces."""
    return tuple(tuple(_kind(word) for word in program.split()) for program in text.split(";"))


def _kind(word: str) -> Kind:
    for kind in BLIND + READING + OF_BOTH:
        if str(kind) == word:
            return kind
    raise ValueError(f"{word!r} is no commit of a program: write w(x), r(x)w(y) or r(xy)w(x)")


def text_of(workload: Workload) -> str:
    return "; ".join(" ".join(map(str, program)) for program in workload)
