"""The types that drawn programs keep in cells, and the two functions that drawn code calls.

Both functions tell the player of a program about a run: `NOTE` that a handler begins an attempt, `SHOW` the values that
an effect reads. They write to a log of Python, for which the version of Python stands in a fingerprint: an effect that
reached an object of a test would be known by nothing, and would run at each start. The naive model replaces both.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from headwater import Model

__all__ = ["NAMES", "NOTE", "SHOW", "Listener", "Mood", "Nest", "Rec", "listen", "shows_for"]


class Rec(Model):
    """A record of two fields."""

    n: int = 0
    t: str = ""


class Nest(Model):
    """A record with a record in it."""

    rec: Rec = Rec()
    k: int = 0
    tags: frozenset[str] = frozenset()


class Mood(enum.Enum):
    CALM = "calm"
    BUSY = "busy"


NAMES: Final[dict[str, Any]] = {"Mood": Mood, "Nest": Nest, "Rec": Rec, "UTC": UTC, "datetime": datetime}
"""The names of values that drawn code and drawn writes use."""


class Listener:
    """Receives the calls of drawn code. The default receives nothing."""

    def note(self, piece: str, eid: int) -> None:
        """A handler begins an attempt for the event `eid`."""

    def show(self, user: str, piece: str, effect: str, values: tuple[object, ...]) -> None:
        """An effect has read these values."""


_LOG: Final = logging.getLogger("programs")


class _Forwards(logging.Handler):
    """Passes log records of drawn code to a listener."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    def emit(self, record: logging.LogRecord) -> None:
        given: Any = record.args
        (self._listener.note if len(given) == 2 else self._listener.show)(*given)


def listen(listener: Listener | None) -> None:
    """Send the calls of drawn code to `listener`."""
    for each in tuple(_LOG.handlers):
        _LOG.removeHandler(each)
    _LOG.propagate = False
    _LOG.setLevel(logging.INFO)
    if listener is not None:
        _LOG.addHandler(_Forwards(listener))


def NOTE(piece: str, eid: int) -> None:
    logging.getLogger("programs").info("%s %s", piece, eid)


def SHOW(piece: str, effect: str, values: tuple[object, ...]) -> None:
    logging.getLogger("programs").info("%s %s %s %s", "", piece, effect, values)


def shows_for(user: str) -> Callable[[str, str, tuple[object, ...]], None]:
    """A function like `SHOW` that says whose effect it is."""

    def show(piece: str, effect: str, values: tuple[object, ...]) -> None:
        logging.getLogger("programs").info("%s %s %s %s", user, piece, effect, values)

    return show
