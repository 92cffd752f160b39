"""Suspension: how an attempt stops because something it reads is not fresh, and what it then waits for.

The signal is no `Exception`, and the runner goes by what was asked for, not by whether the signal came through: an
author who catches everything does not swallow it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from headwater.cells.open_run import Run
from headwater.data.address import doc_text
from headwater.replica.document import Document
from headwater.scheduler.graph.edges import writers_above, writers_of
from headwater.scheduler.node import CLEAN, Node


class Suspend(BaseException):
    """Internal: the attempt is over. It is started again when what was missing is there."""


class Frame:
    """An attempt that waits for others to run. The frames are one chain: each waits for the one on top of it."""

    __slots__ = ("node", "targets")

    def __init__(self, node: Node, targets: list[Node]) -> None:
        self.node = node
        self.targets = targets


@dataclass(slots=True)
class Suspension:
    """What an attempt waits for: nodes to run, or a document to arrive, for it or for a node that it stands on."""

    targets: list[Node] = field(default_factory=list)
    document: Document | None = None
    behind: Node | None = None  # who needs that document, if it is not the attempt itself
    is_late: bool = False  # something changed since: nothing of what it looked at is known to be fresh

    def waits_for(self) -> tuple[str, ...]:
        """The same for people."""
        documents = () if self.document is None else (doc_text(self.document.key),)
        return (*[target.id for target in self.targets], *documents)


def taken_off(frames: list[Frame], node: Node) -> list[Node]:
    """A node waits no more, and whoever only its attempt waited for is not demanded by it: which are these?"""
    place = next((at for at, frame in enumerate(frames) if frame.node is node), len(frames))
    dropped, frames[place:] = [frame.node for frame in frames[place:]], []
    for each in dropped:
        each.suspended = False
    return [each for each in dropped if each is not node]


def look_again(frames: Iterable[Frame]) -> None:
    """What these found to be fresh may not be so any more: their next attempts expect nothing of what they read."""
    for frame in frames:
        frame.node.expect = (None,)


class Attempts(Protocol):
    """What the runner asks about the pass it is part of."""

    def lowest(self) -> int:
        """The height of the lowest node that waits for its turn."""

    def may_wait_for(self, node: Node | None, target: Node) -> bool:
        """Whether waiting for another node to run is of use to this one, or to somebody who is none."""

    def run_between(self, run: Run, target: Node, stops: int) -> bool:
        """Run another node while an attempt waits where it is. False: the attempt is to be stopped."""


def named_above(node: Node) -> list[Node]:
    """Whoever is to run anyway and writes what a node names: its first attempt need not find that out."""
    writers = [writer for document in node.declared for writer in writers_of(document)]
    return [writer for writer in writers if writer.live and writer.status != CLEAN]


def invalid_above(node: Node, marks: int, lowest: int) -> list[Node]:
    """The nearest nodes above one that are not clean, highest first. Walks up through clean ones only.

    What is live and not above the lowest turn has nothing invalid above it, and what was seen to be fresh is so until
    somebody is marked.
    """
    if node.verified == marks:
        return []
    found: dict[Node, None] = {}
    seen = {node}
    waiting = [node]
    while waiting:
        for writer in writers_above(waiting.pop()):
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
