"""Mirroring: other spaces know which pieces read documents of theirs, so that those are found by what is written there.

What a mirror says follows from what is stored of the piece's nodes, whoever ran them: any of several runtimes may write
it, and saying it again repairs it. It is said when a piece reads other documents than before, once everything is
confirmed, and each time before its nodes come back. Never decides whether a node is clean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from headwater.data.address import DocKey
from headwater.protocol.mirrors import Mirror, Mirrored, QueryElsewhere, ReadElsewhere
from headwater.runtime.binding import questions

if TYPE_CHECKING:
    from headwater.runtime.attached import Attached
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.pieces import Pieces

MOST_PAGES: Final = 1_000
"""Of what one piece reads elsewhere. With more of them its mirrors are not known to be whole."""

Docs = dict[DocKey, int]
"""Documents of one space, each with the earliest seq that was seen."""


class Mirroring:
    """Says in other spaces what the pieces of one runtime read there."""

    __slots__ = ("_is_sure", "_pieces", "_to_tell", "_under_way")

    def __init__(self, pieces: Pieces, is_sure: Callable[[], bool]) -> None:
        self._pieces = pieces
        self._is_sure = is_sure  # nothing waits to be told again of what nodes read elsewhere
        self._to_tell: dict[Home, None] = {}  # pieces that read other documents elsewhere than their mirrors say
        self._under_way: list[Attached] = []  # of those that are telling it, each once

    def is_done(self) -> bool:
        """No mirror is due, unless the network holds it up."""
        return not any(channel.is_up() for channel in self._under_way)

    def changed(self, root: Home) -> None:
        """A node of a piece reads other documents of other spaces than before."""
        if root in self._to_tell or self._pieces.runtime.tasks.is_closed:
            return
        channel = self._pieces.runtime.channel(root.space.name)
        if channel is None:
            return
        self._to_tell[root] = None
        self._under_way.append(channel)
        self._pieces.runtime.tasks.begin(self._tell(root, channel), f"mirrors of {root!r}")

    async def _tell(self, root: Home, channel: Attached) -> None:
        try:
            runtime = self._pieces.runtime
            await runtime.tasks.until(self._is_due, round(runtime.policy.answer_ms * 1_000))
            del self._to_tell[root]  # What comes from here on is told anew.
            channel.tell_runs()
            # Who is not there now is told when the piece is next here.
            here = [each.driver.session.space for each in self.channels() if each.is_up() and each is not channel]
            await self.say(root, channel, here)
        finally:
            self._under_way.remove(channel)

    def _is_due(self) -> bool:
        """Nothing is about to change what is to be told."""
        return (
            self._is_sure()
            and self._pieces.core.is_quiet()
            and all(channel.is_durable() or not channel.is_up() for channel in self.channels())
        )

    def channels(self) -> list[Attached]:
        """Those of all spaces that are open here."""
        found = [self._pieces.runtime.channel(space.name) for space in self._pieces.core.spaces()]
        return [channel for channel in found if channel is not None]

    async def say(self, root: Home, channel: Attached, spaces: Iterable[str]) -> set[str]:
        """Say in these spaces what the nodes of a piece read there. Answers where that is noted."""
        found = await self._read_elsewhere(root.id, channel)
        if found is None:
            return set()
        docs, at = found

        async def noted(name: str) -> bool:
            there = await questions.up(self._pieces, name)
            if there is None:
                return False
            read = docs.get((name, there.replica.branch), {})
            said = Mirror(0, root.space.name, root.id, tuple(read.items()), channel.replica.branch, at)
            # fault mirrors.not_said: return True
            return isinstance(await questions.answered(self._pieces, there, said), Mirrored)

        names = tuple(dict.fromkeys(spaces))
        answers = await asyncio.gather(*[noted(name) for name in names])
        return {name for name, is_noted in zip(names, answers, strict=True) if is_noted}

    async def _read_elsewhere(self, piece: str, channel: Attached) -> tuple[dict[tuple[str, str], Docs], int] | None:
        """What the nodes of a piece read, by space and branch, and as of which seq that is all. None: not known."""
        docs: dict[tuple[str, str], Docs] = {}
        at, after = None, None
        for _ in range(MOST_PAGES):
            page = await questions.answered(self._pieces, channel, QueryElsewhere(0, piece, after))
            if not isinstance(page, ReadElsewhere):
                return None
            at = page.seq if at is None else min(at, page.seq)
            for each in page.docs:
                known = docs.setdefault((each.space, each.branch), {})
                known[each.doc] = min(known.get(each.doc, each.seq), each.seq)
            after = page.next
            if after is None:
                return docs, at
        return None
