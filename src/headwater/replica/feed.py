"""The feed: the one stream of changes of what a replica shows, and the only door into scheduling (P1).

A notification is a difference of visible state, with before and after (C9). They come in causal order, also when
a listener causes another one: that waits until everybody has heard the first. A hidden layer makes none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from headwater.data.address import DocKey
from headwater.data.value import MaybeValue


class Kind(Enum):
    """Why visible state changed."""

    COMMIT = "commit"  # a local commit was applied
    INTEGRATE = "integrate"  # the engine's log moved on
    REVERT = "revert"  # a local commit was rejected
    PULL = "pull"  # documents arrived that were not here
    RESET = "reset"  # everything was read again after a gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One document, as it was shown and as it is shown now."""

    doc: DocKey
    before: MaybeValue
    after: MaybeValue
    known_before: bool = True  # False: the document was not here, so `before` says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What one step changed. `source` is the node whose run it was, by identity; `group` is for user's sinks only."""

    kind: Kind
    changes: tuple[Changed, ...]
    seq: int
    source: object | None = None
    group: object | None = None


class Feed:
    """Delivers notifications to its listeners, one at a time."""

    __slots__ = ("_delivering", "_listeners", "_waiting", "errors")

    def __init__(self) -> None:
        self._listeners: list[Callable[[Notification], object]] = []
        self._waiting: deque[Notification] = deque()
        self._delivering = False
        self.errors: list[Exception] = []  # raised by listeners and not reported yet

    def subscribe(self, listener: Callable[[Notification], object]) -> Callable[[], None]:
        """Hear every notification from now on, until the returned function is called."""
        self._listeners.append(listener)

        def cancel() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return cancel

    def emit(self, notification: Notification) -> None:
        self._waiting.append(notification)
        if self._delivering:
            return  # C9: what a listener causes is heard after what caused it
        self._delivering = True
        while self._waiting:
            current = self._waiting.popleft()
            for listener in tuple(self._listeners):
                try:
                    listener(current)
                except Exception as error:  # the others hear it all the same, and so does whoever answers for errors
                    self.errors.append(error)
        self._delivering = False
