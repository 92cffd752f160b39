"""The feed: the one stream of changes of shown values, and the only input of the scheduler (P1).

A notification is a difference of visible state, with before and after (C9). Notifications come in causal order: one
that a listener causes is delivered after all listeners have received the current one. A layer that other layers hide
causes no notification.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.value import MaybeValue
from headwater.replica.document import Document


def ignore(*_: object) -> None:
    """Do nothing: the callback of a component that has no listener."""


class Kind(Enum):
    """Why visible state changed."""

    COMMIT = "commit"  # a local commit was applied
    INTEGRATE = "integrate"  # the engine's log moved on
    REVERT = "revert"  # a local commit was rejected
    PULL = "pull"  # documents arrived that were not here
    RESET = "reset"  # documents were read again after a gap


FROM_OTHERS: Final = (Kind.INTEGRATE, Kind.PULL, Kind.RESET)
"""The kinds of notification that come from the engine."""


class Changed:
    """The change of one document: its shown value before and after."""

    __slots__ = ("after", "before", "document", "known_before", "touched")

    def __init__(
        self,
        document: Document,
        before: MaybeValue,
        after: MaybeValue,
        touched: Sequence[Path] | None = None,
        known_before: bool = True,
    ) -> None:
        self.document = document
        self.before = before
        self.after = after
        self.touched = touched  # paths that cover every difference; None: unknown
        self.known_before = known_before  # False: the document was not here, and `before` has no meaning

    @property
    def doc(self) -> DocKey:
        return self.document.key

    def __repr__(self) -> str:
        return f"Changed({self.document!r}, {self.before!r} -> {self.after!r}, known_before={self.known_before})"


class Notification(Changed):
    """The changes of one step. `source` is the node whose run made them, by identity; `group` is for user's sinks only.

    Most steps change one document: then the notification is that change, and `others` is empty. Changes by other
    sessions have no source node: for these, `source` is a `protocol.hop_counts.Ways`, the hops of each change.
    """

    __slots__ = ("group", "kind", "layer", "others", "seq", "source")

    def __init__(
        self,
        kind: Kind,
        document: Document,
        before: MaybeValue,
        after: MaybeValue,
        touched: Sequence[Path] | None,
        known_before: bool,
        seq: int,
        source: object | None = None,
        group: object | None = None,
        layer: int = 0,
    ) -> None:
        self.document = document
        self.before = before
        self.after = after
        self.touched = touched
        self.known_before = known_before
        self.kind = kind
        self.seq = seq
        self.source = source
        self.group = group
        self.layer = layer  # the `local_seq` of the applied local commit; 0: none
        self.others: tuple[Changed, ...] = ()

    @property
    def changes(self) -> tuple[Changed, ...]:
        return (self, *self.others)

    def __repr__(self) -> str:
        first = super().__repr__()
        return f"Notification({self.kind.value}, {first}, others={self.others!r}, seq={self.seq})"


def notification(
    kind: Kind,
    changes: Sequence[Changed],
    seq: int,
    source: object | None = None,
    group: object | None = None,
    layer: int = 0,
) -> Notification:
    """Make the notification of one step that changed at least one document."""
    first = changes[0]
    made = Notification(
        kind, first.document, first.before, first.after, first.touched, first.known_before, seq, source, group, layer
    )
    made.others = tuple(changes[1:])
    return made


class Feed:
    """Delivers notifications to its listeners, one at a time."""

    __slots__ = ("_delivering", "_listeners", "_waiting", "errors")

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[Notification], object], ...] = ()
        self._waiting: deque[Notification] = deque()
        self._delivering = False
        self.errors: list[Exception] = []  # raised by listeners and not reported yet

    def subscribe(self, listener: Callable[[Notification], object]) -> Callable[[], None]:
        """Call `listener` with every notification from now on, until the returned function is called."""
        self._listeners = (*self._listeners, listener)

        def cancel() -> None:
            if listener in self._listeners:
                place = self._listeners.index(listener)
                self._listeners = self._listeners[:place] + self._listeners[place + 1 :]

        return cancel

    def emit(self, notification: Notification) -> None:
        if self._delivering:
            self._waiting.append(notification)  # C9: an effect is delivered after its cause
            return
        self._delivering = True
        try:
            while True:
                for listener in self._listeners:
                    try:
                        listener(notification)
                    except (
                        Exception
                    ) as error:  # the other listeners are called all the same; `Replica.report` reports the error
                        self.errors.append(error)
                if not self._waiting:
                    return
                notification = self._waiting.popleft()
        finally:
            self._delivering = False  # The feed goes on after an interrupt in a listener.
