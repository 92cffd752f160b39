"""Makes classes from the source of a program: Headwater's, and those of the naive model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import headwater
from tests.simulation.programs import naive
from tests.simulation.programs.description import Piece, PieceClass, Program, source_of
from tests.simulation.programs.values import NAMES, NOTE, SHOW, shows_for

__all__ = ["NaiveProgram", "real_classes"]

_API = (
    "Backoff",
    "Cell",
    "Delivery",
    "Handler",
    "Input",
    "Link",
    "Piece",
    "Refused",
    "Topic",
    "cell",
    "child",
    "computed",
    "each",
    "effect",
    "fold",
    "given",
    "handler",
    "link",
    "materializer",
    "reaction",
    "topic",
)


def _names(module: str) -> dict[str, Any]:
    return {
        "__name__": module,
        "Mapping": Mapping,
        **NAMES,
        "NOTE": NOTE,
        "SHOW": SHOW,
        **{public: getattr(headwater, public) for public in _API},
    }


def real_classes(classes: Iterable[PieceClass], user: str = "") -> dict[str, Any]:
    """The piece classes of a program, by name. The effects say that they are those of `user`."""
    names = _names("programs")
    if user:
        names["SHOW"] = shows_for(user)
    exec(compile(source_of(classes), "<programs>", "exec"), names)
    return {each.name: names[each.name] for each in classes}


class NaiveProgram:
    """The pieces of a program in the naive model, and one state of them."""

    def __init__(self, program: Program, world: naive.World | None = None) -> None:
        names = {**_names("naive"), **naive.NAMES}
        exec(compile(source_of(program.classes), "<naive>", "exec"), names)
        self.world = world or naive.World()
        self.pieces: dict[str, Any] = {}
        for each in program.pieces:
            self.pieces[each.name] = self._made(cast(Any, names[each.of]), each)

    def _made(self, of: Any, piece: Piece) -> Any:
        given = {name: getattr(self.pieces[where], member) for name, where, member in piece.given}
        return of(**given).placed(self.world, piece.name)

    def whole(self, piece: str, shown: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
        """The values that the effect `whole` of a piece has to show, by the cells and inputs among those it showed."""
        world = naive.World()
        alone = type(self.pieces[piece])(**{name: naive.constant(value) for name, value in shown})
        alone.placed(world, piece)
        for name, value in shown:
            if name[0] == "x":
                getattr(alone, name).set(value)
        return tuple((name, getattr(alone, name).get()) for name, _ in shown)

    def find(self, path: str) -> Any:
        """The piece of a path. A child that is not there any more may still handle events that were posted before."""
        return self._kept(path) or self.world.pieces[path]

    def has(self, path: str) -> bool:
        """Whether the piece of a path is there: a child leaves with its key, or for one of another class."""
        return self._kept(path) is not None

    def _kept(self, path: str) -> Any:
        name, _, below = path.partition("/")
        if not below:
            return self.pieces[name]
        member, key = below.split("/")
        children = getattr(self.pieces[name], member).get()
        if isinstance(children, Mapping):
            return children.get(key)
        return children if key in ("", type(children).__name__) else None

    def execute(self, text: str, path: str) -> None:
        """Execute a write to a piece."""
        exec(text, {**NAMES, "link": naive.NAMES["link"], **self.pieces, "child": self.find(path)})
