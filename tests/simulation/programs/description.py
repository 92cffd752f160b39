"""A drawn program as data: piece classes, pieces, and the steps that are played with them.

Code stands in a description as source text, so that a program can be printed, executed and changed. Each member names
the members that its code uses: a program without one of its members has none of those that use it either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

__all__ = [
    "ANN",
    "WINDOWS",
    "By",
    "Crash",
    "Member",
    "Offline",
    "Online",
    "Open",
    "Piece",
    "PieceClass",
    "Program",
    "Pull",
    "Remake",
    "Rest",
    "Segment",
    "Send",
    "SetClock",
    "SharedStep",
    "Step",
    "Stop",
    "Transact",
    "Unwatch",
    "Wait",
    "Watch",
    "Write",
    "seen_from",
    "source_of",
    "user_of",
]

INDENT: Final = "    "
ANN: Final = "ann"
WINDOWS: Final = {ANN: (ANN, ""), "ann2": (ANN, "second"), "bob": ("bob", "other")}
"""The windows of a program in one runtime: user, and the name of the session. The pieces are open in the first one."""


def seen_from(window: str, piece: str) -> str:
    """The name of a piece that is open in a window."""
    return piece if window == ANN else f"{piece}@{window}"


def user_of(window: str) -> str:
    """The user of a window. Where several users share a space, each has one window of its own name."""
    return WINDOWS.get(window, (window, ""))[0]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a class. `kind` says what it is, `source` how it is written."""

    name: str
    kind: str
    source: tuple[str, ...]
    uses: frozenset[str] = frozenset()  # members of the same class, and classes
    scope: str = "space"


@dataclass(frozen=True, slots=True)
class PieceClass:
    name: str
    members: tuple[Member, ...]

    def of_kind(self, *kinds: str) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.kind in kinds)

    def without(self, name: str) -> PieceClass:
        """This class without a member, and without the members that use it."""
        gone = {name}
        while more := {each.name for each in self.members if each.uses & gone} - gone:
            gone |= more
        return replace(self, members=tuple(each for each in self.members if each.name not in gone))


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece by its name, with the handles that it is given: the name of its input, and piece and member."""

    name: str
    of: str
    given: tuple[tuple[str, str, str], ...] = ()
    space: str = "one"


@dataclass(frozen=True, slots=True)
class Send:
    """Send an event. `is_awaited`: the next step waits for the answer.

    A child is named by its path: piece, member and key; without a key for that of a `child`.
    """

    eid: int
    piece: str
    handler: str
    n: int
    w: str
    is_awaited: bool


@dataclass(frozen=True, slots=True)
class Write:
    """A write outside of a run, as a statement over the names of pieces; in that of a child it is called `child`."""

    eid: int
    piece: str
    member: str
    text: str


@dataclass(frozen=True, slots=True)
class Transact:
    """Several writes in one transaction, which may fail at its end."""

    eid: int
    writes: tuple[Write, ...]
    fails: bool


@dataclass(frozen=True, slots=True)
class Pull:
    piece: str
    member: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Open a sink under a number."""

    number: int
    piece: str
    member: str


@dataclass(frozen=True, slots=True)
class Unwatch:
    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    piece: str


@dataclass(frozen=True, slots=True)
class Open:
    """Open a piece that was stopped."""

    piece: str


@dataclass(frozen=True, slots=True)
class Remake:
    """Delete a piece and make it again."""

    piece: str
    is_busy: bool = False  # events may be under way meanwhile


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait until nothing is left to do, and compare everything."""


@dataclass(frozen=True, slots=True)
class By:
    """A step of one user, where several users share a space; in one runtime that of a window."""

    user: str
    step: Send | Write | Transact | Pull | Watch | Unwatch | Stop | Open | Remake


@dataclass(frozen=True, slots=True)
class Offline:
    user: str


@dataclass(frozen=True, slots=True)
class Online:
    user: str


@dataclass(frozen=True, slots=True)
class Crash:
    """Kill the process of a user, or the server. Another one takes its place."""

    who: str


@dataclass(frozen=True, slots=True)
class Wait:
    ms: int


@dataclass(frozen=True, slots=True)
class SetClock:
    """Set the wall clock of all machines ahead, or back by negative seconds."""

    seconds: int


SharedStep: TypeAlias = By | Offline | Online | Crash | Wait | SetClock | Rest
Step: TypeAlias = Send | Write | Transact | Pull | Watch | Unwatch | Stop | Open | Remake | Rest | By


@dataclass(frozen=True, slots=True)
class Segment:
    """The steps of one process, its code, and how it ends."""

    classes: tuple[PieceClass, ...]
    steps: tuple[Step, ...]
    is_visitor: bool = False  # it has only handles of the pieces
    kill_after: int | None = None  # messages after which it is killed; None: it is closed
    kill_at: int | None = None  # attempts to handle follow-ups; at the beginning of the last one it is killed
    looks_first: bool = False  # it pulls every value before its first step
    looks_last: bool = False  # and after its last one


@dataclass(frozen=True, slots=True)
class Program:
    seed: int
    classes: tuple[PieceClass, ...]
    pieces: tuple[Piece, ...]
    steps: tuple[Step, ...] = ()
    users: tuple[str, ...] = ()
    handles: frozenset[tuple[str, str]] = frozenset()  # users that have only a handle, and of which piece
    shared: tuple[SharedStep, ...] = ()
    segments: tuple[Segment, ...] = ()  # processes, one after the other
    in_threads: frozenset[int] = frozenset()  # ids of actions that a thread beside that of the runtime takes

    def class_named(self, name: str) -> PieceClass:
        return next(each for each in self.classes if each.name == name)

    def class_of(self, piece: str) -> PieceClass:
        return self.class_named(self.piece_named(piece).of)

    def piece_named(self, name: str) -> Piece:
        return next(each for each in self.pieces if each.name == name)


def source_of(classes: Iterable[PieceClass]) -> str:
    """The classes as Python source. It needs the names of Headwater, and of values.py."""
    lines: list[str] = []
    for each in classes:
        lines += ["", "", f'class {each.name}(Piece, name="programs.{each.name}"):']
        for member in each.members:
            lines += ["", *(INDENT + line for line in member.source)]
        if not each.members:
            lines.append(INDENT + "pass")
    return "\n".join(lines).strip() + "\n"
