"""The phase of a piece that resumes: what is known of its nodes, who waits for that, and what is asked for.

Owns these records, and how questions about nodes are put to an engine. Decides nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, LoadError
from headwater.protocol.messages import Looks, Seen
from headwater.protocol.observations import NodeKey, Observed
from headwater.replica.document import Document
from headwater.runtime.binding.elsewhere import Known
from headwater.runtime.binding.parts import Key, Part
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.runtime.attached import Attached
    from headwater.runtime.binding.home import Home


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

    home: Home
    node: Node
    part: Part
    tries: int = 0  # how often it was asked again what it did


def key_of(node: NodeKey) -> Key:
    return (node.member, node.child, node.scope, node.principal)


async def answered(channel: Attached, question: Looks) -> Seen | None:
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
