"""Questions that were asked once and wait for their answer. A connection that ends answers them all with a failure."""

from __future__ import annotations

from collections.abc import Callable

from headwater.errors import LoadError
from headwater.protocol.messages import Answer, Query

Reply = Callable[[Answer | LoadError], object]


class Queries:
    """The queries of one session that have no answer yet."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Query, Reply]] = {}

    def add(self, query: Query, reply: Reply) -> None:
        self._waiting[query.id] = (query, reply)

    def answered(self, number: int, answer: Answer | LoadError) -> bool:
        """Hand over an answer. False: nobody waits for it."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting[1](answer)
        return waiting is not None

    def fail(self, why: str) -> None:
        """Nobody will answer these any more."""
        waiting, self._waiting = self._waiting, {}
        for query, reply in waiting.values():
            reply(LoadError(unread(query, why)))


def unread(query: Query, why: str) -> str:
    return f"{query.scope}:{query.doc or '*'} cannot be read: {why}"
