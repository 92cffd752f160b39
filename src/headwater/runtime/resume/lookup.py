"""The queries for observations of single nodes of a sleeping piece.

Nodes of a sleeping piece that are registered at the same time share one query, and wait until it is answered. A node
without an answer in time is unknown and runs. This module decides nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, LoadError
from headwater.protocol.messages import ObservationAnswer, ObservationQuestion
from headwater.protocol.observations import NodeKey, Observations, Observed, QueryNodes
from headwater.runtime.pieces.identity import Key
from headwater.runtime.pieces.resume_state import LookupBatch, RegisteredNode, ResumeState

if TYPE_CHECKING:
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.resume.resume import Resume
    from headwater.runtime.writing.space_channel import SpaceChannel


def key_of(node: NodeKey) -> Key:
    return (node.member, node.child, node.scope, node.principal)


async def answered(channel: SpaceChannel, question: ObservationQuestion) -> ObservationAnswer | None:
    """Return the answer to one question. None: the engine refused it, or the connection was lost."""
    told: asyncio.Future[ObservationAnswer | LoadError] = asyncio.get_running_loop().create_future()
    channel.driver.session.queries.look(question, lambda answer: None if told.done() else told.set_result(answer))
    channel.driver.flush()
    answer = await told
    if isinstance(answer, LoadError):
        return None
    try:
        # The answer may overtake the commits that it describes: no node may read older results than it describes.
        await channel.reached(answer.seq)
    except HeadwaterError:
        return None
    return answer


class ObservationLookup:
    """Queries the observations of single nodes for one runtime."""

    __slots__ = ("_resuming",)

    def __init__(self, resuming: Resume) -> None:
        self._resuming = resuming

    def asleep(self, root: PieceInstance, as_of: int) -> ResumeState:
        """Return the state of a piece that was clean at a seq. Nothing is queried until a node is registered."""
        return ResumeState(self._resuming.waits_for(root), generation=root.generation, is_over=True, as_of=as_of)

    def ask_for(
        self, root: PieceInstance, state: ResumeState, channel: SpaceChannel, registered: RegisteredNode
    ) -> None:
        """Hold a node until its observation is known. Nodes that are registered at the same time share a query."""
        batch = state.batch
        if batch is None:
            batch = state.batch = LookupBatch(self._resuming.waits_for(root))
            state.asked += 1
            self._resuming.under_way[batch] = channel
            self._resuming.pieces.tasks.begin(self._ask_batch(root, state, batch), f"looking up nodes of {root!r}")
        batch.held.append(registered)
        self._resuming.pieces.core.scheduler.hold(registered.node, batch.document)

    async def _ask_batch(self, root: PieceInstance, state: ResumeState, batch: LookupBatch) -> None:
        core = self._resuming.pieces.core
        try:
            state.batch = None
            await self.known(root, state, [each.identity.key(each.instance) for each in batch.held])
        finally:
            del self._resuming.under_way[batch]
            state.asked -= 1
        now = root.resume_state
        if now is state or now is None or now.is_over:
            self._resuming.bring_back(batch.held)
            self._resuming.foreign_reads.over(state)
        else:  # Meanwhile the whole piece is queried.
            now.held += batch.held
            for each in batch.held:
                if not each.node.removed:
                    core.scheduler.hold(each.node, now.document)
        core.scheduler.release_held(batch.document)
        core.request_tick()

    async def known(self, root: PieceInstance, state: ResumeState, keys: list[Key]) -> bool:
        """Load the observations of some nodes into `state.table`. Return False if there was no answer."""
        channel = self._resuming.pieces.channel(root.space.name)
        wanted = [key for key in dict.fromkeys(keys) if key not in state.table]
        most = self._resuming.limits.page
        for first in range(0, len(wanted), most):
            nodes = tuple([NodeKey(root.id, state.generation, *key) for key in wanted[first : first + most]])
            page = None if channel is None else await self.answered(channel, QueryNodes(0, nodes))
            if not isinstance(page, Observations):
                self._resuming.counts["nothing could be asked"] += 1
                return False
            await self._resuming.load_classes(root, page.observed)
            for each in page.observed:
                state.table[key_of(each.node)] = (each, page.seq)
            await self.compare_foreign_reads(root, state, page.observed)
        return True

    async def compare_foreign_reads(
        self, root: PieceInstance, state: ResumeState, observed: Iterable[Observed]
    ) -> None:
        """Query other spaces whether the reads of these nodes still hold there."""
        readers = [each for each in observed if each.foreign]
        if readers:
            state.foreign_answers.add(await self._resuming.foreign_reads.ask(readers))

    async def answered(self, channel: SpaceChannel, question: ObservationQuestion) -> ObservationAnswer | None:
        """Return the answer to a question once the replica has reached its seq. None: there is none in time."""
        try:
            pieces = self._resuming.pieces
            return await pieces.tasks.within(answered(channel, question), pieces.policy.answer_ms)
        except TimeoutError:
            return None
