"""What a host's thread has to tell the connections of its space, gathered while it processes one batch.

A connection gets all of it at once, in order, when the batch is done: verdicts and the news that cover them travel
together. Whose turn it is after a conflict hears first, since everybody else waits for it. A connection that cannot be
told ends; the others are told all the same. Belongs to the host's thread alone.
"""

from __future__ import annotations

from typing import Protocol

from headwater.protocol.messages import FromEngine, Sync


class Addressee(Protocol):
    """Takes messages on any thread."""

    def tell(self, messages: list[FromEngine]) -> None: ...

    def failed(self, error: Exception) -> None:
        """Telling it something raised this."""


class Outbox:
    """Messages on their way to the connections of one space."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Addressee, list[FromEngine]] = {}

    def post(self, to: Addressee, message: FromEngine) -> None:
        self._waiting.setdefault(to, []).append(message)

    def flush(self) -> None:
        """Tell everybody what was said since the last time."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for to in sorted(waiting, key=lambda to: not _has_turn(waiting[to])) if len(waiting) > 1 else waiting:
            try:
                to.tell(waiting[to])
            except Exception as error:
                to.failed(error)


def _has_turn(messages: list[FromEngine]) -> bool:
    return any(isinstance(message, Sync) and message.turn == 0 for message in messages)
