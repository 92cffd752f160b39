"""Reads of other spaces by nodes that are resumed, and whether they still hold.

`ForeignReadCheck`: a node that read another space is resumed only if that space answers, by the function that admits
commits, that the reads would be admitted there now; then the node is subscribed to the reads as of the seq of the
answer. If the space does not answer in time or may not be asked, the node is unknown and runs (I7). A read whose value
had no verdict yet is reported once it has one. Reads of the node's own space are not judged here. Nothing is written
into the other space: a write there finds the nodes that are subscribed in some process, and any other node compares
when it is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.data.address import DocKey
from headwater.errors import HeadwaterError
from headwater.protocol.commit import Read
from headwater.protocol.observations import ForeignRead, Observed, OutdatedReads, QueryCurrent
from headwater.replica.document import NOT_HERE
from headwater.replica.replica import Replica
from headwater.runtime.resume import writers
from headwater.runtime.resume.judge import Reason
from headwater.runtime.resume.parts import ResumeParts
from headwater.runtime.resume.resume_state import ForeignAnswers
from headwater.scheduler.node import CLEAN, Node
from headwater.scheduler.persistence import Held

if TYPE_CHECKING:
    from headwater.runtime.core.local_space import LocalSpace
    from headwater.runtime.resume.resume_state import ResumeState
    from headwater.runtime.writing.space_channel import SpaceChannel


class ForeignReadCheck:
    """Compares the reads of other spaces for the nodes of one runtime."""

    __slots__ = ("_core", "_parts", "_unsure")

    def __init__(self, parts: ResumeParts) -> None:
        self._parts = parts
        self._core = parts.core
        self._unsure: dict[Node, None] = {}  # their reads of other spaces had no verdict when they ran

    def is_told(self) -> bool:
        """Return whether every run that read another space is reported, unless the network holds it up."""
        channels = self._channels()
        if not self._unsure or any(not channel.is_up() for channel in channels):
            return True
        # A node may depend on the result of an invalid node that is not demanded. That result is not sent: nothing
        # will decide it until the node runs.
        # fault foreign_reads.unsent_results_awaited: return False
        return not self._is_confirmed() and not any(channel.replica.has_unconfirmed() for channel in channels)

    def _channels(self) -> list[SpaceChannel]:
        """Return the channels of all spaces that are open here."""
        found = [self._parts.channel(space.name) for space in self._core.spaces()]
        return [channel for channel in found if channel is not None]

    # ---- reports of runs ------------------------------------------------------------------------

    def chain_of(self, replica: Replica) -> int | None:
        """Return the checksum chain of a space at the seq of its replica, which identifies the log."""
        channel = self._parts.channel(self._core.name_of(replica) or "")
        return None if channel is None else channel.driver.session.seen.chain_at(replica.confirmed.seq)

    def report_when_confirmed(self, node: Node) -> None:
        """Report the run of a node again when its reads of other spaces have verdicts."""
        if len(self._unsure) >= self._parts.limits.unsure_nodes:
            return
        is_first = not self._unsure
        self._unsure[node] = None
        if is_first:
            self._core.observers.when(self._is_confirmed, self._tell_again)

    def _is_confirmed(self) -> bool:
        """Return True if no read of these nodes in another space can still be rejected."""
        return not any(
            node.status == CLEAN and not node.removed and node.reporter is not None and node.reporter.waits()
            for node in self._unsure
        )

    def _tell_again(self) -> None:
        nodes, self._unsure = self._unsure, {}
        for node in nodes:
            if node.reporter is not None and not node.removed and node.status == CLEAN:
                node.reporter.report_again(node)  # A node that is not clean runs, and its run is reported.

    # ---- resuming ---------------------------------------------------------------------------------

    async def ask(self, observed: Iterable[Observed]) -> ForeignAnswers:
        """Ask the other spaces that some nodes read whether these reads would be admitted there now."""
        known = ForeignAnswers()
        reads: dict[str, dict[ForeignRead, None]] = {}
        for read in [read for each in observed for read in each.foreign]:
            reads.setdefault(read.space, {})[read] = None
        await asyncio.gather(*[self._ask(known, name, tuple(reads[name])) for name in reads])
        return known

    async def _ask(self, known: ForeignAnswers, name: str, reads: tuple[ForeignRead, ...]) -> None:
        there = await self._wait_for_channel(name)
        if there is None:
            return
        # I7: a read of another branch, or of a log without a known chain, is unknown.
        # fault foreign_reads.branch_not_compared: asked = [read for read in reads if read.chain is not None]
        asked = [read for read in reads if read.chain is not None and read.branch == there.replica.branch]
        most = self._parts.limits.foreign_reads
        for some in [asked[at : at + most] for at in range(0, len(asked), most)]:
            chains = {read.seq: read.chain for read in some if read.chain is not None}
            question = QueryCurrent(
                0, tuple([Read(read.doc, read.path, read.depth, read.seq) for read in some]), tuple(chains.items())
            )
            # fault+ foreign_reads.misaddressed: nowhere = DocKey("space", "nowhere")
            # fault+ foreign_reads.misaddressed: others = [Read(nowhere, (), each.depth, each.seq) for each in some]
            # fault+ foreign_reads.misaddressed: question = QueryCurrent(0, tuple(others), ())
            answer = await self._parts.ask_engine(there, question)
            if not isinstance(answer, OutdatedReads):
                return
            stale = {place for place, _ in answer.stale}
            # Two reads at one seq with different chains are of different logs: at most one is of this log.
            stale |= {place for place, read in enumerate(some) if chains[read.seq] != read.chain}
            known.held.update({read: answer.seq for place, read in enumerate(some) if place not in stale})
            known.written.update([read for place, read in enumerate(some) if place in stale])
        await self._have_here(known, self._core.space(name), list(dict.fromkeys([read.doc for read in asked])))

    async def _wait_for_channel(self, name: str) -> SpaceChannel | None:
        """Return the channel of a space once it is connected. None: it is not in time."""
        try:
            space = self._core.space(name)
        except HeadwaterError:
            return None  # The space cannot be opened here.
        channel = self._parts.channel(name)
        if channel is None:
            return None
        patience_us = round(self._parts.policy.connect_ms * 1_000)
        await self._parts.tasks.until(lambda: channel.is_up() or space.ended is not None, patience_us)
        return channel if channel.is_up() else None

    async def _have_here(self, known: ForeignAnswers, space: LocalSpace, docs: list[DocKey]) -> None:
        """Load documents that were read, and open the pieces that have them.

        The class of a piece tells which nodes write its documents. A document that is loaded when its reader is resumed
        needs no further comparison: the reader is notified of later changes.
        """
        core, pieces = self._core, self._parts.pieces
        records = [record for doc in docs if (record := writers.record_of(pieces, space, doc)) is not None]
        # fault foreign_reads.own_seq_compared: awaited = records
        awaited = [*records, *[space.replica.documents.of(doc) for doc in docs[: self._parts.limits.foreign_documents]]]
        for document in awaited:
            core.load(document)
        await self._parts.tasks.until(
            lambda: all(each.value is not NOT_HERE or core.why_not(each) is not None for each in awaited),
            round(self._parts.policy.answer_ms * 1_000),
        )
        known.documents += awaited
        instances = [writers.named(pieces, space, doc) for doc in docs]
        known.instances += dict.fromkeys([instance for instance in instances if instance is not None])

    def release_when_answered(self, state: ResumeState) -> None:
        """Forget the answers about a sleeping piece if no query for it is under way."""
        if not state.asked:
            known, state.foreign_answers = state.foreign_answers, ForeignAnswers()
            self.release_if_unread(known)

    def release_if_unread(self, known: ForeignAnswers) -> None:
        """Release the documents that were loaded for a comparison. Their readers hold them by now."""
        documents, known.documents = known.documents, []
        for document in documents:
            self._core.space_of(document).release_if_unread(document)

    def why_not(self, known: ForeignAnswers, observed: Observed) -> Reason | None:
        """Return why a node is to run because of its reads in other spaces, if it is."""
        # fault+ foreign_reads.not_compared: [known.held.setdefault(read, 1 << 52) for read in observed.foreign]
        # fault+ foreign_reads.not_compared: known.written.clear()
        if any(read in known.written for read in observed.foreign):
            return Reason.WRITTEN_THERE
        if not all(read in known.held for read in observed.foreign):
            return Reason.NO_ANSWER
        return None

    def register_writers(self, observed: Observed) -> None:
        """Register the nodes that write the inputs of a node in other spaces."""
        # fault foreign_reads.makers_not_opened: for read in ():
        for read in observed.foreign:
            writers.register_writers(self._parts.pieces, self._core.space(read.space), read.doc)

    def has_writers(self, observed: Observed) -> bool:
        """Return True if a node is notified of changes of its inputs in other spaces."""
        # fault foreign_reads.makers_not_opened: return True
        return all(
            writers.notifies_readers(self._parts.pieces, self._core.space(read.space), read.doc)
            for read in observed.foreign
        )

    def held(self, known: ForeignAnswers, observed: Observed) -> list[Held]:
        """Return the reads of other spaces that are installed with a node."""
        core = self._core
        return [
            Held(core.space(read.space).replica.documents.of(read.doc), read.path, read.depth, known.held[read])
            for read in observed.foreign
        ]
