"""The phase of a piece that resumes, and the queries for observations of single nodes of a sleeping piece.

`Phase`, `Batch` and `Entered` hold the observations of a piece's nodes, the nodes that wait for them, and the queries
without an answer.

`Asking` queries the observations of nodes of a sleeping piece. Nodes that are registered at the same time share one
query, and wait until it is answered. A node whose observation cannot be had, or not in time, is unknown and runs. This
module decides nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, LoadError
from headwater.protocol.messages import Looks, Seen
from headwater.protocol.observations import NodeKey, Observations, Observed, QueryNodes
from headwater.replica.document import Document
from headwater.runtime.pieces.identity import Key, NodeIdentity
from headwater.runtime.resume.foreign_reads import Known
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.runtime.channel.channel import EngineChannel
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.resume.resume import Resuming


@dataclass(slots=True, eq=False)
class Phase:
    """Resuming one piece: what is known of its nodes, and who waits for that to be known."""

    document: Document  # stands for the end of the phase: it is waited for like a document
    table: dict[Key, tuple[Observed, int]] = field(default_factory=dict)  # each as of a seq; taken out when it is used
    held: list[Entered] = field(default_factory=list)
    elsewhere: Known = field(default_factory=Known)  # what other spaces say of what they read there
    generation: int = 0  # the newest that anything is known of
    is_over: bool = False
    as_of: int = 0  # the piece sleeps, and was clean then; what is wanted of it is asked for by itself
    batch: Batch | None = None  # what is about to be asked for
    asked: int = 0  # how many such questions have no answer yet


@dataclass(slots=True, eq=False)
class Batch:
    """Nodes of a sleeping piece that are asked for together."""

    document: Document
    held: list[Entered] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Entered:
    """A node of a piece that was registered here."""

    home: PieceInstance
    node: Node
    part: NodeIdentity
    tries: int = 0  # how often it was asked again what it did


def key_of(node: NodeKey) -> Key:
    return (node.member, node.child, node.scope, node.principal)


async def answered(channel: EngineChannel, question: Looks) -> Seen | None:
    """One answer. None: it cannot be had."""
    told: asyncio.Future[Seen | LoadError] = asyncio.get_running_loop().create_future()
    channel.driver.session.queries.look(question, lambda answer: None if told.done() else told.set_result(answer))
    channel.driver.flush()
    answer = await told
    if isinstance(answer, LoadError):
        return None
    try:
        # An answer may overtake what it speaks of: nobody reads a result that is older than what is said of it.
        await channel.reached(answer.seq)
    except HeadwaterError:
        return None
    return answer


class Asking:
    """The questions of one runtime about nodes."""

    __slots__ = ("_resuming",)

    def __init__(self, resuming: Resuming) -> None:
        self._resuming = resuming

    def asleep(self, root: PieceInstance, as_of: int) -> Phase:
        """The phase of a piece all of which was clean at a seq: it is over, and nothing was asked for."""
        return Phase(self._resuming.waits_for(root), generation=root.generation, is_over=True, as_of=as_of)

    def ask_for(self, root: PieceInstance, phase: Phase, channel: EngineChannel, entered: Entered) -> None:
        """It waits until it is known what it last did. What is registered at the same time is asked for together."""
        batch = phase.batch
        if batch is None:
            batch = phase.batch = Batch(self._resuming.waits_for(root))
            phase.asked += 1
            self._resuming.under_way[batch] = channel
            self._resuming.pieces.runtime.tasks.begin(self._ask_batch(root, phase, batch), f"what is known of {root!r}")
        batch.held.append(entered)
        self._resuming.pieces.core.scheduler.hold(entered.node, batch.document)

    async def _ask_batch(self, root: PieceInstance, phase: Phase, batch: Batch) -> None:
        core = self._resuming.pieces.core
        try:
            phase.batch = None
            await self.known(root, phase, [each.part.key(each.home) for each in batch.held])
        finally:
            del self._resuming.under_way[batch]
            phase.asked -= 1
        now = root.phase
        if now is phase or now is None or now.is_over:
            self._resuming.bring_back(batch.held)
            self._resuming.elsewhere.over(phase)
        else:  # Meanwhile all of the piece is asked for.
            now.held += batch.held
            for each in batch.held:
                if not each.node.removed:
                    core.scheduler.hold(each.node, now.document)
        core.scheduler.let_on(batch.document)
        core.request_tick()

    async def known(self, root: PieceInstance, phase: Phase, keys: list[Key]) -> bool:
        """Have what is known of some nodes at hand. False: it could not be asked."""
        channel = self._resuming.pieces.runtime.channel(root.space.name)
        wanted = [key for key in dict.fromkeys(keys) if key not in phase.table]
        most = self._resuming.limits.page
        for first in range(0, len(wanted), most):
            nodes = tuple([NodeKey(root.id, phase.generation, *key) for key in wanted[first : first + most]])
            page = None if channel is None else await self.answered(channel, QueryNodes(0, nodes))
            if not isinstance(page, Observations):
                self._resuming.counts["nothing could be asked"] += 1
                return False
            await self._resuming.have_classes(root, page.observed)
            for each in page.observed:
                phase.table[key_of(each.node)] = (each, page.seq)
            await self.compare_elsewhere(root, phase, page.observed)
        return True

    async def compare_elsewhere(self, root: PieceInstance, phase: Phase, observed: Iterable[Observed]) -> None:
        """Ask other spaces whether the reads that these nodes made there still hold."""
        channel = self._resuming.pieces.runtime.channel(root.space.name)
        readers = [each for each in observed if each.foreign]
        if readers and channel is not None:
            phase.elsewhere.add(await self._resuming.elsewhere.ask(root, channel, readers))

    async def answered(self, channel: EngineChannel, question: Looks) -> Seen | None:
        """One answer, once the replica has reached what it speaks of. None: it cannot be had, or not in time."""
        try:
            runtime = self._resuming.pieces.runtime
            return await runtime.tasks.within(answered(channel, question), runtime.policy.answer_ms)
        except TimeoutError:
            return None
