"""Suspension: how an attempt stops when a value that it reads is not fresh, and the conditions it then waits for.

The signal `Suspend` is not an `Exception`. The runner checks whether a stop was requested, not whether the signal
arrived, so that an author function that catches every error does not swallow the stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.data.address import doc_text
from headwater.replica.document import Document
from headwater.scheduler.graph.edges import nodes_above, writers_of
from headwater.scheduler.node import AFRESH, CLEAN, Node


class Suspend(BaseException):
    """Internal signal: the attempt is over. The node is attempted again when the missing input is available."""


class StoppedAttempt:
    """An attempt that waits for other nodes to run. Stopped attempts form one stack: each waits for the one on top."""

    __slots__ = ("node", "targets")

    def __init__(self, node: Node, targets: list[Node]) -> None:
        self.node = node
        self.targets = targets


@dataclass(slots=True)
class Suspension:
    """The reason an attempt stopped.

    Either nodes must run, or a document must arrive, for the attempted node or for a node that it stands on.
    """

    targets: list[Node] = field(default_factory=list)
    document: Document | None = None
    behind: Node | None = None  # the node that needs `document`, if it is not the attempted node
    is_late: bool = False  # data changed during the attempt: no value that it read is known to be fresh

    def waits_for(self) -> tuple[str, ...]:
        """Return the ids and addresses that the attempt waits for, for people."""
        documents = () if self.document is None else (doc_text(self.document.key),)
        return (*[target.id for target in self.targets], *documents)


def taken_off(stack: list[StoppedAttempt], node: Node) -> list[Node]:
    """Remove the stopped attempt of a node and all those on top of it.

    Return the other nodes removed, which only that attempt demanded.
    """
    place = next((at for at, stopped in enumerate(stack) if stopped.node is node), len(stack))
    dropped, stack[place:] = [stopped.node for stopped in stack[place:]], []
    for each in dropped:
        each.suspended = False
    return [each for each in dropped if each is not node]


def look_again(stack: Iterable[StoppedAttempt]) -> None:
    """Make the next attempts of these nodes check each read: values found fresh before may be stale by now."""
    for stopped in stack:
        stopped.node.expect = AFRESH


def named_above(node: Node) -> list[Node]:
    """Return the live nodes that are not clean and write a declared document of `node`.

    They run anyway, so that the first attempt of `node` need not be stopped to find them.
    """
    writers = [writer for document in node.declared for writer in writers_of(document)]
    return [writer for writer in writers if writer.live and writer.status != CLEAN]


def invalid_above(node: Node, marks: int, lowest: int) -> list[Node]:
    """Return the nearest nodes above a node that are not clean, highest first. Walks up through clean nodes only.

    Two kinds of nodes are not walked: a live node whose height is not above the lowest turn has nothing invalid above
    it, and a node that was verified at the current count of marks stays fresh until another node is marked.
    """
    if node.verified == marks:
        return []
    found: dict[Node, None] = {}
    seen = {node}
    waiting = [node]
    while waiting:
        for writer in nodes_above(waiting.pop()):
            if writer in seen:
                continue
            seen.add(writer)
            if writer.status != CLEAN:
                found[writer] = None
            elif writer.verified != marks and not (writer.live and writer.height <= lowest):
                waiting.append(writer)
    if not found:
        for fresh in seen:
            fresh.verified = marks
    return sorted(found, key=lambda each: (-each.height, -each.order))
