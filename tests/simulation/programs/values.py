"""The record type that drawn programs keep in cells, and the two functions that drawn code calls.

Both functions tell the player of a program about a run: `NOTE` that a handler begins an attempt, `SHOW` the values that
an effect reads. The naive model replaces both with functions that do nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater import Model

__all__ = ["NOTE", "SHOW", "Listener", "Rec", "listen"]


class Rec(Model):
    """A record of two fields."""

    n: int = 0
    t: str = ""


class Listener:
    """Receives the calls of drawn code. The default receives nothing."""

    def note(self, piece: str, eid: int) -> None:
        """A handler begins an attempt for the event `eid`."""

    def show(self, piece: str, effect: str, values: tuple[object, ...]) -> None:
        """An effect has read these values."""


_LISTENERS: list[Listener] = [Listener()]


def listen(listener: Listener | None) -> None:
    """Send the calls of drawn code to `listener`."""
    _LISTENERS[0] = listener or Listener()


def _listener() -> Listener:
    return _LISTENERS[0]


def NOTE(piece: str, eid: int, of: Callable[[], Listener] = _listener) -> None:
    of().note(piece, eid)


def SHOW(piece: str, effect: str, values: tuple[object, ...], of: Callable[[], Listener] = _listener) -> None:
    of().show(piece, effect, values)
