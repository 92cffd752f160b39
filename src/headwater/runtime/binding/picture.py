"""A runtime that looks at spaces as somebody shows them to it: every document is there as soon as it is asked for.

Nothing that happens in it leaves it: there is no engine behind, no session, and nobody to send anything to. For
commands that compare a program with what is stored. Owns the channel of such a space, not what is done with it.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.data.address import DocKey
from headwater.data.value import MaybeValue
from headwater.replica.detached import Detached
from headwater.replica.feed import Kind, Notification
from headwater.replica.replica import Replica
from headwater.runtime.binding.standing import Standing
from headwater.runtime.runtime import Runtime
from headwater.runtime.space import LocalSpace

Read = Callable[[str, DocKey], MaybeValue]
"""What is in a document of a space."""


class Pictured(Detached):
    """Shows a space as it was when somebody looked at it."""

    __slots__ = ("_read",)

    def __init__(self, replica: Replica, read: Callable[[DocKey], MaybeValue]) -> None:
        super().__init__(replica)
        self._read = read

    def _appear(self, docs: list[DocKey]) -> None:
        replica = self.replica
        replica.shown_anew()
        for doc in docs:
            value = self._read(doc)
            document = replica.confirmed.put(doc, value, 0)
            document.value = value
            replica.feed.emit(Notification(Kind.PULL, document, value, value, None, False, replica.confirmed.seq))
        replica.report()


def stand_in(rt: Runtime, read: Read) -> Standing:
    """Have a runtime that has no spaces yet look at pictures of them, and run nothing."""

    def open_space(name: str) -> LocalSpace:
        replica = Replica()
        return rt.core.add_space(name, replica, Pictured(replica, lambda doc: read(name, doc)))

    rt.core.open_space = open_space
    standing = Standing(rt.pieces)
    rt.pieces.resuming = standing
    return standing
