"""What nodes read of other spaces: whether it still holds there, and who is to be found when it is written.

A node that read another space comes back only if that space says, by the function that admits commits, that the reads
would be admitted there now, and if the mirror of its piece is there; then it is subscribed to them as of the seq that
was spoken of. Who does not answer, answers late or may not be asked leaves the node unknown, and it runs (I7). Mirrors
follow from what is stored of the piece's nodes, so that any of several runtimes may write them: what could not be
written is written when the piece is next here. Decides nothing about the nodes' own space.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from headwater.data.address import DocKey
from headwater.errors import HeadwaterError
from headwater.protocol.commit import Read
from headwater.protocol.messages import Looks
from headwater.protocol.observations import (
    Abroad,
    Current,
    ForeignRead,
    Mirror,
    Mirrored,
    Observed,
    QueryCurrent,
    QueryElsewhere,
    QueryMirrors,
    ReadElsewhere,
)
from headwater.replica.document import NOT_HERE
from headwater.replica.replica import Replica
from headwater.runtime.binding import makers
from headwater.scheduler.node import CLEAN, Node
from headwater.scheduler.persistence import Held

if TYPE_CHECKING:
    from headwater.runtime.attached import Attached
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.pieces import Pieces
    from headwater.runtime.space import LocalSpace

T = TypeVar("T")
LATE_MS: Final = 10_000
"""How long another space is waited for. What comes later is unknown."""
TOGETHER: Final = 5_000
"""Reads in one question."""
MOST_PAGES: Final = 1_000
"""Of what one piece reads elsewhere. With more of them its mirrors are not known to be whole."""
MOST_UNSURE: Final = 100_000
"""Nodes that are told again once what they read elsewhere is confirmed. Others are unknown until they run."""


@dataclass(slots=True, eq=False)
class Known:
    """What other spaces said of the reads of one piece's nodes."""

    held: dict[ForeignRead, int] = field(default_factory=dict)  # those that hold, each as of a seq of its space
    written: set[ForeignRead] = field(default_factory=set)  # those that do not
    homes: list[Home] = field(default_factory=list)  # who has the documents; kept until the nodes that read them are


class Elsewhere:
    """Speaks with other spaces for the nodes of one runtime."""

    __slots__ = ("_pieces", "_to_tell", "_under_way", "_unsure")

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._unsure: dict[Node, None] = {}  # what they read elsewhere had no verdict yet when they ran
        self._to_tell: dict[Home, None] = {}  # pieces that read other documents elsewhere than their mirrors say
        self._under_way: list[Attached] = []  # of those that are telling it, each once

    def is_told(self) -> bool:
        """Everything about other spaces is told that can be told now: nothing waits for a verdict, no mirror is due."""
        if any(channel.is_up() for channel in self._under_way):
            return False
        return not self._unsure or any(not channel.is_up() for channel in self._channels())

    # ---- what is told of runs ------------------------------------------------------------------------

    def chain_of(self, replica: Replica) -> int | None:
        """What names the log of a space where its replica is."""
        channel = self._channel(self._pieces.core.name_of(replica) or "")
        return None if channel is None else channel.driver.session.seen.chain_at(replica.confirmed.seq)

    def unsure(self, node: Node) -> None:
        """It read something of another space that has no verdict yet: it is told again when that has one."""
        if len(self._unsure) >= MOST_UNSURE:
            return
        is_first = not self._unsure
        self._unsure[node] = None
        if is_first:
            self._pieces.core.observing.when(self._is_confirmed, self._tell_again)

    def _is_confirmed(self) -> bool:
        """Whether those nodes stand on nothing elsewhere that could still be taken back."""
        return not any(
            node.status == CLEAN and not node.removed and node.account is not None and node.account.waits()
            for node in self._unsure
        )

    def _tell_again(self) -> None:
        nodes, self._unsure = self._unsure, {}
        for node in nodes:
            if node.account is not None and not node.removed and node.status == CLEAN:
                node.account.again(node)  # Any other one runs, and says what it read then.

    # ---- mirrors -------------------------------------------------------------------------------------

    def changed(self, root: Home) -> None:
        """A node of a piece reads other documents of other spaces than before."""
        if root in self._to_tell or self._pieces.runtime.tasks.is_closed:
            return
        channel = self._channel(root.space.name)
        if channel is None:
            return
        self._to_tell[root] = None
        self._under_way.append(channel)
        self._pieces.runtime.tasks.begin(self._tell(root, channel), f"mirrors of {root!r}")

    async def _tell(self, root: Home, channel: Attached) -> None:
        try:
            await self._pieces.runtime.tasks.until(self._is_due, LATE_MS * 1_000)
            del self._to_tell[root]  # What comes from here on is told anew.
            channel.tell_runs()
            await self._mirror(root, channel, [name for name in self._spaces() if name != root.space.name])
        finally:
            self._under_way.remove(channel)

    def _is_due(self) -> bool:
        """Nothing is about to change what is to be told."""
        return (
            not self._unsure
            and self._pieces.core.is_quiet()
            and all(channel.is_durable() or not channel.is_up() for channel in self._channels())
        )

    async def _mirror(self, root: Home, channel: Attached, spaces: Iterable[str]) -> set[str]:
        """Say in other spaces what the nodes of a piece read there. Answers where that is noted."""
        found = await self._read_elsewhere(root.id, channel)
        if found is None:
            return set()
        docs, at = found
        names = dict.fromkeys([*spaces, *[space for space, _ in docs]])

        async def noted(name: str) -> bool:
            there = await self._up(name)
            if there is None:
                return False
            read = docs.get((name, there.replica.branch), {})
            said = Mirror(0, root.space.name, root.id, tuple(read.items()), channel.replica.branch, at)
            return isinstance(await self._answered(there, said), Mirrored)

        answers = await asyncio.gather(*[noted(name) for name in names])
        return {name for name, is_noted in zip(names, answers, strict=True) if is_noted}

    async def _read_elsewhere(
        self, piece: str, channel: Attached
    ) -> tuple[dict[tuple[str, str], dict[DocKey, int]], int] | None:
        """What the nodes of a piece read, by space and branch, and as of which seq that is all. None: not known."""
        docs: dict[tuple[str, str], dict[DocKey, int]] = {}
        at, after = None, None
        for _ in range(MOST_PAGES):
            page = await self._answered(channel, QueryElsewhere(0, piece, after))
            if not isinstance(page, ReadElsewhere):
                return None
            at = page.seq if at is None else min(at, page.seq)
            for each in page.docs:
                _note(docs.setdefault((each.space, each.branch), {}), each)
            after = page.next
            if after is None:
                return docs, at
        return None

    async def marked(self, space: str) -> dict[str, dict[str, list[tuple[DocKey, int]]]]:
        """The pieces of a space whose nodes read what was written since in another one that is open here.

        By piece and space: the documents, each with its write. A mirror of a piece that does not read there any more,
        because nobody could say so when it stopped, is taken away.
        """
        channel = await self._up(space)
        found: dict[str, dict[str, list[tuple[DocKey, int]]]] = {}
        for name in [name for name in self._spaces() if name != space]:
            there = await self._up(name)
            if there is None or channel is None:
                continue
            for piece, docs in (await self._mirrored(there, space, channel.replica.branch)).items():
                known = await self._read_elsewhere(piece, channel)
                if known is None:
                    continue
                read = known[0].get((name, there.replica.branch), {})
                late = [(doc, seq) for doc, seq in docs if seq > read.get(doc, seq)]
                if late:
                    found.setdefault(piece, {})[name] = late
                if not read:
                    await self._answered(there, Mirror(0, space, piece, (), channel.replica.branch, known[1]))
        return found

    async def _mirrored(self, there: Attached, owner: str, branch: str) -> dict[str, list[tuple[DocKey, int]]]:
        found: dict[str, list[tuple[DocKey, int]]] = {}
        after = ""
        for _ in range(MOST_PAGES):
            page = await self._answered(there, QueryMirrors(0, owner, after, 1_000, branch))
            if not isinstance(page, Mirrored):
                return found
            for piece, doc, seq in page.marked:
                found.setdefault(piece, []).append((doc, seq))
            if page.next is None:
                return found
            after = page.next
        return found

    # ---- coming back ---------------------------------------------------------------------------------

    async def ask(self, root: Home, channel: Attached, observed: Iterable[Observed]) -> Known:
        """Whether what nodes of a piece read elsewhere would be admitted there now. The mirrors are seen to first."""
        known = Known()
        reads: dict[str, dict[ForeignRead, None]] = {}
        for read in [read for each in observed for read in each.foreign]:
            reads.setdefault(read.space, {})[read] = None
        if reads:
            # I7: a node whose piece nobody would find when it is written there is unknown, whatever it read.
            mirrored = await self._mirror(root, channel, reads)
            await asyncio.gather(*[self._ask(known, name, tuple(reads[name])) for name in reads if name in mirrored])
        return known

    async def _ask(self, known: Known, name: str, reads: tuple[ForeignRead, ...]) -> None:
        there = await self._up(name)
        if there is None:
            return
        # What was read of another branch, or of a log that nobody can name, is unknown.
        asked = [read for read in reads if read.chain is not None and read.branch == there.replica.branch]
        for some in [asked[at : at + TOGETHER] for at in range(0, len(asked), TOGETHER)]:
            chains = {read.seq: read.chain for read in some if read.chain is not None}
            question = QueryCurrent(
                0, tuple([Read(read.doc, read.path, read.depth, read.seq) for read in some]), tuple(chains.items())
            )
            answer = await self._answered(there, question)
            if not isinstance(answer, Current):
                return
            stale = {place for place, _ in answer.stale}
            # Of two logs that are said to have ended with the same seq at most one was this one.
            stale |= {place for place, read in enumerate(some) if chains[read.seq] != read.chain}
            known.held.update({read: answer.seq for place, read in enumerate(some) if place not in stale})
            known.written.update([read for place, read in enumerate(some) if place in stale])
        await self._find_makers(known, self._pieces.core.space(name), {read.doc for read in asked})

    async def _find_makers(self, known: Known, space: LocalSpace, docs: Iterable[DocKey]) -> None:
        """Have the pieces here whose documents were read: whether a node makes those is for their classes to say."""
        core = self._pieces.core
        records = {makers.record_of(self._pieces, space, doc): None for doc in docs}
        for record in [record for record in records if record is not None]:
            core.load(record)
        await self._pieces.runtime.tasks.until(
            lambda: all(
                record is None or record.value is not NOT_HERE or core.why_not(record) is not None for record in records
            ),
            LATE_MS * 1_000,
        )
        homes = [makers.named(self._pieces, space, doc) for doc in docs]
        known.homes += dict.fromkeys([home for home in homes if home is not None])

    def why_not(self, known: Known, observed: Observed) -> str | None:
        """Why a node is to run because of what it read elsewhere, if it is."""
        if any(read in known.written for read in observed.foreign):
            return "what it read in another space was written"
        if not all(read in known.held for read in observed.foreign):
            return "another space did not say whether it was written"
        return None

    def have_made(self, observed: Observed) -> None:
        """Have those here who make what a node read elsewhere."""
        for read in observed.foreign:
            makers.have_made(self._pieces, self._pieces.core.space(read.space), read.doc)

    def has_makers(self, observed: Observed) -> bool:
        """Whether a change of what it read elsewhere comes to it."""
        return all(
            makers.is_told(self._pieces, self._pieces.core.space(read.space), read.doc) for read in observed.foreign
        )

    def held(self, known: Known, observed: Observed) -> list[Held]:
        """What it read elsewhere, as it is installed with it."""
        core = self._pieces.core
        return [
            Held(core.space(read.space).replica.documents.of(read.doc), read.path, read.depth, known.held[read])
            for read in observed.foreign
        ]

    # ---- asking --------------------------------------------------------------------------------------

    def _spaces(self) -> list[str]:
        return [space.name for space in self._pieces.core.spaces()]

    def _channels(self) -> list[Attached]:
        return [channel for name in self._spaces() if (channel := self._channel(name)) is not None]

    def _channel(self, name: str) -> Attached | None:
        return self._pieces.runtime.channel(name)

    async def _up(self, name: str) -> Attached | None:
        """Who speaks for a space, once there is a connection. None: there is none in time."""
        core = self._pieces.core
        try:
            space = core.space(name)
        except HeadwaterError:
            return None  # It is no space that could be had.
        channel = self._channel(name)
        if channel is None:
            return None
        await self._pieces.runtime.tasks.until(lambda: channel.is_up() or space.ended is not None, LATE_MS * 1_000)
        return channel if channel.is_up() else None

    async def _answered(self, channel: Attached, question: Looks) -> object:
        """What a space says, once what it speaks of is here. None: it does not say it, or not in time."""
        told: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        async def asked() -> object:
            channel.driver.session.queries.look(
                question, lambda answer: None if told.done() else told.set_result(answer)
            )
            channel.driver.flush()
            answer = await told
            try:
                # An answer may overtake what it speaks of.
                if isinstance(answer, Current):
                    await channel.reached(answer.seq)
            except HeadwaterError:
                return None
            return answer

        try:
            return await self._pieces.runtime.tasks.within(asked(), LATE_MS)
        except TimeoutError:
            return None


def _note(docs: dict[DocKey, int], each: Abroad) -> None:
    docs[each.doc] = min(docs.get(each.doc, each.seq), each.seq)
