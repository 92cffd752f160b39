"""Sleeping: pieces that are open and clean, of which nothing is here until something of them is wanted or was written.

A piece sleeps if the runtime that ran it last said that all of it was clean, and nothing that decides what runs differs
since then. What is demanded of it comes back by itself, with whoever makes what it reads. One question for each space
follows the log: which of the documents that sleeping pieces read were written. Then the nodes that were met come back,
and those that stand on them, as far as that shows whether anybody wants them; rows by themselves, without the others.
What cannot be brought in like this wakes all of the piece: then it resumes node by node. Upholds I7 with `resuming`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, cast

import msgspec

from headwater.data.address import DocKey
from headwater.errors import HeadwaterError
from headwater.pieces.declarations import EffectMember
from headwater.pieces.piece import Piece
from headwater.protocol.messages import Seen
from headwater.protocol.observations import (
    Marks,
    Met,
    Observed,
    QueryMarks,
    QueryMet,
    QueryReaders,
    QueryWholes,
    Readers,
    WholePiece,
    Wholes,
    whose_record,
)
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.binding import whole
from headwater.runtime.binding.at_once import AtOnce
from headwater.runtime.binding.bringing import brought, have_awake
from headwater.runtime.binding.followed import Followed
from headwater.runtime.binding.generations import with_children
from headwater.runtime.binding.onward import homes_of, nodes_of
from headwater.runtime.binding.parts import Key
from headwater.scheduler.node import CLEAN, Node

if TYPE_CHECKING:
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.resuming import Resuming

PAGE: Final = 1_000
MOST_PAGES: Final = 100
MOST_BROUGHT: Final = 300
"""Nodes of one piece that come back because of one change. With more of them, all of it does."""


class Sleeping:
    """The pieces of one runtime that are open and not here."""

    __slots__ = ("_resuming", "_showing", "_spaces", "at_once")

    def __init__(self, resuming: Resuming) -> None:
        self._resuming = resuming
        self._spaces: dict[str, Followed] = {}
        self._showing: dict[type[Piece], bool] = {}  # whether pieces of a class, or their children, have effects
        self.at_once = AtOnce(self)

    @property
    def resuming(self) -> Resuming:
        return self._resuming

    def of(self, home: Home) -> Followed | None:
        """What is followed for a piece."""
        return self._spaces.get(home.space.name)

    def is_quiet(self) -> bool:
        return all(followed.is_quiet() for followed in self._spaces.values())

    # ---- falling asleep ------------------------------------------------------------------------------

    async def opening(self, home: Home, user: str) -> None:
        """A piece is about to be opened. If all of it is known to be clean, it is opened asleep."""
        resuming = self._resuming
        if home.phase is not None or home.is_new or home.is_open or not home.generation:
            return
        followed = await self.known(home)
        if followed is None or home.phase is not None or home.is_open:
            return
        known = (followed.wholes or {}).pop(home.id, None)
        fingerprint = "" if known is None else whole.decides(resuming.looked_at, home, (user,), resuming.identity)
        if known is None or not fingerprint or known.fingerprint != fingerprint:
            return
        # I7: if its record was written since, it may be another piece of that name.
        if resuming.pieces.records.cell(home.space, home.id).document.written <= known.as_of:
            self.falls_asleep(followed, home, known)

    async def known(self, home: Home) -> Followed | None:
        """Have it known which pieces of its space were clean. None: that cannot be, or is nothing to this one."""
        resuming = self._resuming
        channel = resuming.pieces.runtime.channel(home.space.name)
        if channel is None or not channel.driver.session.runs.is_on:
            return None
        followed = self._spaces.get(home.space.name)
        if followed is None:
            followed = self._spaces[home.space.name] = Followed(home.space, channel)
        if not channel.is_up():
            await resuming.pieces.core.observing.until(lambda: channel.is_up() or home.space.ended is not None)
        if not followed.is_looking and followed.wholes is None:
            followed.is_looking = True
            resuming.pieces.runtime.tasks.begin(self._look(followed), f"which pieces of {home.space.name} are clean")
        if followed.is_looking:
            await resuming.pieces.core.observing.until(lambda: not followed.is_looking)
        return followed if channel.is_up() else None

    def falls_asleep(self, followed: Followed, home: Home, known: WholePiece) -> None:
        """A piece that is about to be opened was clean, and nothing that decides what runs of it differs since."""
        resuming = self._resuming
        if followed.wholes is not None:
            followed.wholes.pop(home.id, None)
        home.phase = resuming.asking.asleep(home, known.as_of)
        followed.homes[home.id] = home
        resuming.counts["asleep"] += 1
        if followed.task is None:
            followed.channel.driver.session.queries.watch_marks(lambda newest: self._marked(followed, newest))
            followed.task = resuming.pieces.runtime.tasks.keep(self._follow(followed), f"following {home.space.name}")
        if known.met or known.awake:
            followed.waking += 1
            resuming.pieces.runtime.tasks.begin(self._woken(followed, home, known), f"waking {home!r}")

    async def _look(self, followed: Followed) -> None:
        """Which pieces were clean as a whole. What cannot be known is not."""
        try:
            await self._ask(followed)
        finally:
            followed.is_looking = False
            self._resuming.pieces.core.observing.look()

    async def _ask(self, followed: Followed) -> None:
        found: dict[str, WholePiece] = {}
        after, seq = "", 0
        for _ in range(MOST_PAGES):
            page = await self._resuming.asking.answered(followed.channel, QueryWholes(0, after, PAGE))
            if not isinstance(page, Wholes):
                break
            seq = seq or page.seq
            found.update({each.piece: each for each in page.pieces})
            if page.next is None:
                break
            after = page.next
        followed.wholes, followed.through = found, max(seq, followed.through)
        followed.places = [*found]
        followed.order = {id: place for place, id in enumerate(found)}

    def _marked(self, followed: Followed, newest: int | HeadwaterError) -> None:
        if isinstance(newest, int):
            followed.newest = max(followed.newest, newest)
            self._resuming.pieces.core.observing.look()
        else:
            self._all(followed)

    # ---- what is written -----------------------------------------------------------------------------

    async def _follow(self, followed: Followed) -> None:
        """Look through the log for what sleeping pieces read, as far as it is known here."""
        core, local = self._resuming.pieces.core, followed.local
        while True:
            await core.observing.until(
                lambda: (followed.through < followed.last and followed.channel.is_up()) or local.ended is not None
            )
            if local.ended is not None:
                return
            followed.waking += 1
            try:
                await self._catch_up(followed)
            finally:
                followed.waking -= 1
                core.observing.look()  # Somebody may wait for that.

    async def _catch_up(self, followed: Followed) -> None:
        # fault+ resume.catch_up_skipped: followed.through = followed.last
        # fault+ resume.catch_up_skipped: return
        since = followed.through
        page = await self._resuming.asking.answered(followed.channel, QueryMarks(0, since, PAGE))
        if not isinstance(page, Marks) or page.through is None:
            if followed.channel.is_up() or page is not None:
                self._all(followed)
                followed.through = followed.last
            return
        met: dict[str, list[DocKey]] = {}
        for mark in page.marks:
            for id in mark.pieces:
                met.setdefault(id, []).append(mark.doc)
            after = mark.pieces[-1]
            while mark.more:
                more = await self._resuming.asking.answered(followed.channel, QueryReaders(0, mark.doc, after, PAGE))
                if not isinstance(more, Readers):
                    self._all(followed)
                    break
                for id in more.pieces:
                    met.setdefault(id, []).append(mark.doc)
                if more.next is None:
                    break
                after = more.next
        # I7: from here on whoever is opened is known to be met; whoever was opened before is among those that sleep.
        for id, docs in met.items():
            is_same = not any(whose_record(doc) == id for doc in docs)
            home, known = followed.homes.get(id), (followed.wholes or {}).get(id)
            if home is not None and not is_same:
                # I7: it may be another piece of that name: what was known of its nodes is gone, so that none is found.
                home.is_made = False
                self.fully(home)
            if known is not None and followed.wholes is not None:
                generation = known.generation if is_same else 0
                followed.wholes[id] = msgspec.structs.replace(known, met=True, generation=generation)
        await self._met(followed, {id: docs for id, docs in met.items() if id in followed.homes}, since)
        followed.through = max(followed.through, page.through)

    async def _met(self, followed: Followed, pieces: dict[str, list[DocKey]], since: int) -> None:
        """Wake those of sleeping pieces of which nodes were met by what was written: one question for all of them."""
        ids = [*pieces]
        for first in range(0, len(ids), PAGE):
            some = {id: home for id in ids[first : first + PAGE] if (home := followed.homes.get(id)) is not None}
            made = {id: self._made(home, pieces[id]) for id, home in some.items()}
            if not some:
                continue
            one, *also = some
            every = tuple(dict.fromkeys([doc for docs in made.values() for doc in docs]))
            question = QueryMet(0, one, since, (), every, PAGE, tuple(also))
            met = await self._resuming.asking.answered(followed.channel, question)
            for id, home in some.items():
                if followed.homes.get(id) is not home:
                    continue
                if isinstance(met, Met) and met.all:
                    found = tuple([each for each in met.observed if each.node.piece == id])
                    if found:
                        await self._wake(followed, home, since, made[id], Met(0, met.seq, found))
                else:  # All of them were too many: each is asked for by itself.
                    await self._wake(followed, home, since, made[id])

    async def _woken(self, followed: Followed, home: Home, known: WholePiece) -> None:
        try:
            if known.awake:
                await self._bring(followed, home, await have_awake(self._resuming, home, known.awake))
            if known.met and followed.homes.get(home.id) is home:
                await self._wake(followed, home, known.as_of)
        finally:
            followed.waking -= 1
            self._resuming.pieces.core.observing.look()

    def _made(self, home: Home, docs: list[DocKey]) -> tuple[DocKey, ...]:
        """Those of some documents that are made by nodes which are here."""
        found = [home.space.replica.documents.get(doc) for doc in docs]
        return tuple([each.key for each in found if each is not None and any(map(_is_result_of(each), each.writers))])

    async def _wake(
        self, followed: Followed, home: Home, since: int, made: tuple[DocKey, ...] = (), met: Seen | None = None
    ) -> None:
        """Bring back the nodes of a piece that were met, and whoever stands on them."""
        # fault+ resume.closed_piece_not_opened: return
        if met is None:
            met = await self._resuming.asking.answered(followed.channel, QueryMet(0, home.id, since, (), made, PAGE))
        seen: set[Key] = set()
        await self._bring(followed, home, await self._found(home, met, seen), seen)

    async def _found(self, home: Home, met: Seen | None, seen: set[Key]) -> list[Node] | None:
        """The nodes that an answer speaks of, as far as they were not seen. None: they cannot be had by themselves."""
        if not isinstance(met, Met) or not met.all:
            return None
        found = {_key(each): each for each in met.observed if _key(each) not in seen}
        seen.update(found)
        if not found:
            return []
        return await brought(self._resuming, home, found, met.seq) if len(seen) <= MOST_BROUGHT else None

    async def _bring(
        self, followed: Followed, home: Home, nodes: list[Node] | None, seen: set[Key] | None = None
    ) -> None:
        """Nodes of a sleeping piece are here: so is whoever stands on them, and wants them, before any of them runs."""
        scheduler, until = self._resuming.pieces.core.scheduler, self._resuming.waits_for(home)
        seen = set() if seen is None else seen
        try:
            while followed.homes.get(home.id) is home:
                if nodes is None:
                    self.fully(home)
                    return
                for node in nodes:
                    # I7: whoever stands on it is here before it runs, and runs if the value is another.
                    if node.status != CLEAN and not node.runs and node.loading is None:
                        scheduler.hold(node, until)
                docs = [*dict.fromkeys([each.key for node in nodes for each in _written_by(node)])]
                if not docs:
                    return
                question = QueryMet(0, home.id, 0, tuple(docs), self._made(home, docs), PAGE)
                met = await self._resuming.asking.answered(followed.channel, question)
                nodes = await self._found(home, met, seen)
        finally:
            scheduler.let_on(until)
            self._resuming.pieces.core.request_tick()

    # ---- waking up -----------------------------------------------------------------------------------

    async def roused(self, home: Home) -> None:
        """Something is sent to a piece: its effects are here before it is handled, to show what comes of it."""
        root = home.root
        followed = self._spaces.get(root.space.name)
        if followed is None or followed.homes.get(root.id) is not root or not self._shows(root.cls):
            return
        if followed.roused.get(root.id):
            return
        if root.id not in followed.roused:
            followed.roused[root.id] = False
            root.rouse()
        observing = self._resuming.pieces.core.observing
        await observing.until(lambda: _is_here(root) or not followed.channel.is_up())
        for document in _needed(root):
            self._resuming.pieces.core.load(document)
        await observing.until(lambda: not any(_needed(root)) or not followed.channel.is_up())
        if root.id in followed.roused:
            followed.roused[root.id] = followed.channel.is_up()

    def _shows(self, cls: type[Piece]) -> bool:
        found = self._showing.get(cls)
        if found is None:
            found = self._showing[cls] = any(each.__outline__.of(EffectMember) for each in with_children(cls))
        return found

    def fully(self, home: Home) -> None:
        """Have all of a piece here: it resumes node by node."""
        followed = self._spaces.get(home.space.name)
        if followed is None or followed.homes.pop(home.id, None) is None:
            return
        followed.roused.pop(home.id, None)
        resuming = self._resuming
        resuming.counts["woken"] += 1
        phase = home.phase = resuming.begin(home, followed.channel)
        # Not in the middle of what asked for it, which may be a part of it that is being made.
        resuming.pieces.core.afterwards(lambda: home.wake() if home.phase is phase else None)

    def _all(self, followed: Followed) -> None:
        for home in [*followed.homes.values()]:
            self.fully(home)
        followed.wholes = {}

    def patched(self) -> None:
        """Code was taken in while it runs: what members do differs from what was compared."""
        self._showing.clear()
        self.at_once.patched()
        for followed in self._spaces.values():
            self._all(followed)

    def forget(self, home: Home) -> None:
        """It is not open here any more."""
        followed = self._spaces.get(home.space.name)
        if followed is not None and followed.homes.get(home.id) is home:
            del followed.homes[home.id]
            followed.roused.pop(home.id, None)

    def has(self, home: Home) -> bool:
        followed = self._spaces.get(home.space.name)
        return followed is not None and followed.homes.get(home.id) is home


def _is_here(root: Home) -> bool:
    """Whether nothing that is shown of a piece, or of its children, waits for anything."""
    is_known = root.phase is None or not (root.phase.asked or root.phase in root.pieces.resuming.under_way)
    return is_known and not any(each.waits() for each in homes_of(root))


def _needed(root: Home) -> Iterator[Document]:
    """What live nodes that came back would be held up for if they had to run, and what may still arrive of it."""
    why_not = root.pieces.core.why_not
    for node in nodes_of(root):
        if node.live and node.as_of:
            read = [cast(Document, spot.document) for spot in node.reads if spot is not None]
            for document in (*read, *node.outputs):
                if document.value is NOT_HERE and why_not(document) is None:
                    yield document


def _written_by(node: Node) -> Iterator[Document]:
    """Where what a node does can be seen."""
    yield from node.outputs
    for inside, _ in node.envelope:
        yield inside


def _is_result_of(document: Document) -> Callable[[object], bool]:
    """Whether somebody is a node whose result is the document, which it then is known to look at, too."""
    return lambda each: (
        isinstance(each, Node) and each.returns and each.outputs[0] is document and each.account is not None
    )


def _key(observed: Observed) -> Key:
    node = observed.node
    return (node.member, node.child, node.scope, node.principal)
