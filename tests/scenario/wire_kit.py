"""A backend whose messages a test counts, changes, loses, refuses and holds back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from headwater.data.address import DocKey
from headwater.protocol.messages import FromEngine, FromReplica, ObservationQuestion, Problem, Transact, Unwatch, Watch
from headwater.protocol.observations import WHOLE, decode_about
from headwater.runtime import Backend, Heard, Lost, Transport

Change = Callable[[str, FromReplica], FromReplica | Problem | None]
"""Takes a message to a space, and returns the one that is sent. None: it is lost. A problem: that is the answer."""


class Wire:
    """Stands between a runtime and the backend that it uses, which its owner closes."""

    def __init__(self, backend: Backend, change: Change | None = None) -> None:
        self.token = backend.token
        self.life = ""
        self.is_only = False
        self._backend = backend
        self._change = change
        self._holds: Callable[[FromEngine], bool] | None = None
        self._alone = False
        self._held: list[tuple[Heard, FromEngine]] = []
        self.holding = asyncio.Event()  # a message is held back
        self.absent: set[str] = set()  # spaces that cannot be reached
        self.sent: list[tuple[str, FromReplica]] = []  # what went to which space
        self._sent_more = asyncio.Event()

    def transport(self, space: str) -> Transport | None:
        inner = self._backend.transport(space)
        assert inner is not None
        return _Tapped(self, inner, space)

    async def close(self) -> None:
        """The backend is its owner's."""

    def hold(self, message: Callable[[FromEngine], bool], *, alone: bool = False) -> None:
        """Hold back the first message from an engine of which this is true, and all that follow in that space.

        `alone`: only that one, which has to be an answer. What follows overtakes it.
        """
        self._holds = message
        self._alone = alone

    def let_go(self) -> None:
        """Deliver what is held back, and hold back nothing more."""
        self._holds = None
        held, self._held = self._held, []
        for heard, message in held:
            heard(message)

    async def has_sent(self, message: Callable[[FromReplica], bool]) -> None:
        """Wait until a message to an engine was sent of which this is true."""
        while not any(message(each) for _, each in self.sent):
            self._sent_more.clear()
            await self._sent_more.wait()

    def watched(self, space: str) -> set[DocKey]:
        """The documents of a space that are watched."""
        watches: dict[int, set[DocKey]] = {}
        for at, message in self.sent:
            if at == space and isinstance(message, Watch):
                watches[message.id] = {each.doc for each in message.selectors}
            elif at == space and isinstance(message, Unwatch):
                watches.pop(message.id, None)
        return set().union(*watches.values())

    def said(self, space: str, message: FromReplica, heard: Heard) -> FromReplica | None:
        changed = message if self._change is None else self._change(space, message)
        if isinstance(changed, Problem):
            heard(changed)
            return None
        if changed is not None:
            self.sent.append((space, changed))
            self._sent_more.set()
        return changed

    def arrived(self, heard: Heard, message: FromEngine) -> None:
        is_behind = not self._alone and any(each is heard for each, _ in self._held)
        if is_behind or (self._holds is not None and not self._held and self._holds(message)):
            self._held.append((heard, message))
            self.holding.set()
        else:
            heard(message)


class _Tapped:
    """Connects to one space, through a wire."""

    def __init__(self, wire: Wire, inner: Transport, space: str) -> None:
        self._wire = wire
        self._inner = inner
        self._space = space

    async def connect(self, heard: Heard, lost: Lost) -> _Connection:
        if self._space in self._wire.absent:
            raise ConnectionError(f"space {self._space!r} cannot be reached")
        inner = await self._inner.connect(lambda message: self._wire.arrived(heard, message), lost)
        return _Connection(self._wire, inner, self._space, heard)


class _Connection:
    def __init__(self, wire: Wire, inner: Any, space: str, heard: Heard) -> None:
        self._wire = wire
        self._inner = inner
        self._space = space
        self._heard = heard

    def send(self, messages: Iterable[FromReplica]) -> None:
        changed = [self._wire.said(self._space, each, self._heard) for each in messages]
        self._inner.send([each for each in changed if each is not None])

    def close(self) -> None:
        self._inner.close()


# ---- changes -----------------------------------------------------------------------------------------------


def without_clean_pieces(space: str, message: FromReplica) -> FromReplica:
    """Lose what a runtime that closes says of whole pieces, as one that crashes does: each node is asked for then."""
    if not isinstance(message, Transact) or not message.observations:
        return message
    kept = tuple([each for each in message.observations if decode_about(each.about).node.member != WHOLE])
    return msgspec.structs.replace(message, observations=kept)


def refusing(*kinds: type[Any]) -> Change:
    """Answer questions of these kinds as an engine does whose user may not ask them."""

    def change(space: str, message: FromReplica) -> FromReplica | Problem:
        if isinstance(message, kinds) and isinstance(message, ObservationQuestion):
            return Problem("access", "not for you", fatal=False, id=message.id)
        return message

    return change


def losing(*kinds: type[Any]) -> Change:
    """Lose questions of these kinds."""
    return lambda space, message: None if isinstance(message, kinds) else message
