"""The ports through which pieces reach events, resume and their guards. The composition of a runtime connects them.

`EventSender` sends the events of open pieces and knows the event that is being handled. `NodeSource` decides, for each
node of a piece, whether it is installed from its stored observation or runs. A runtime that is only inspected has
another `NodeSource`, which runs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from headwater.pieces.piece import Context
    from headwater.runtime.pieces.identity import NodeIdentity
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.view import ScopedView
    from headwater.scheduler.node import Node
    from headwater.scheduler.registry import NodeSpec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventHeader:
    """The part of an event that is visible in the context of its handler: id, target, sender and time."""

    id: str
    instance: PieceInstance
    user: str
    session: str
    minted_us: int


class HandledEvent(NamedTuple):
    """The event whose handler is being called."""

    event: EventHeader
    context: Context  # the value of `self.ctx` in the handler
    launched: list[tuple[PieceInstance, bool]]  # pieces that this attempt launches, and whether each starts later


class EventSender(Protocol):
    """Sends the events of one runtime."""

    @property
    def current(self) -> HandledEvent | None:
        """The event whose handler is being called. None: no handler is."""

    def context(self, view: ScopedView) -> Context:
        """Return the value of `ctx` for a view: of the event whose handler is being called, or of a node."""

    def start_periods(self, instance: PieceInstance) -> list[asyncio.Task[None]]:
        """Start sending the events of the periodic handlers of an open piece, until the tasks are cancelled."""

    def retry_parked(self, space: str) -> None:
        """Retry stored events of a space that could not be handled here, because a piece of it was opened."""


class NodeSource(Protocol):
    """Installs the nodes of pieces from their stored observations."""

    @property
    def identity(self) -> str | None:
        """The identity of this runtime over restarts, which names the nodes of its effects. None: it has none."""

    def add_node(self, instance: PieceInstance, node: Node, spec: NodeSpec, identity: NodeIdentity | None) -> None:
        """Install a registered node, hold it until its observation is known, or let it run.

        `identity` names the node over restarts; None: the node is never resumed.
        """

    def batch_nodes(self) -> AbstractContextManager[None]:
        """Install the nodes that are added inside this context together, at its end."""

    def readiness(self, root: PieceInstance) -> Callable[[], bool]:
        """Return the check whether one piece is resumed, as of the commits that are known at this call."""

    async def open_asleep(self, instance: PieceInstance, user: str, session: str) -> bool:
        """Put a piece to sleep that is about to be opened, if it is known to be clean without reading its record."""

    async def load_cells(self, instance: PieceInstance) -> None:
        """Wait until the cells that are held for a sleeping piece are loaded, or will not arrive."""

    async def prepare_open(self, instance: PieceInstance, user: str, session: str) -> None:
        """Put a piece to sleep that is about to be opened and whose record was read, if it is known to be clean."""

    def may_sleep(self, root: PieceInstance) -> bool:
        """Return whether `prepare_open` may put a piece to sleep. False: it is known not to be clean."""

    def may_have_more_nodes(self, root: PieceInstance) -> bool:
        """Return whether stored nodes of a piece or its children may exist that are not registered here."""

    def is_asleep(self, root: PieceInstance) -> bool:
        """Return whether a piece is open without nodes."""

    def wake_piece(self, root: PieceInstance) -> None:
        """Register all nodes of a sleeping piece. Each is resumed or runs."""

    async def start_effects(self, instance: PieceInstance) -> None:
        """Register the effects of a sleeping piece before an event is handled by it or by one of its children."""

    def forget_piece(self, instance: PieceInstance) -> None:
        """Release a piece that was stopped."""

    def drop_rows(self, instance: PieceInstance, member: str, here: Container[str]) -> None:
        """Withdraw the observations of elements of an `each` that are not among the keys `here`."""

    def drop_child(self, instance: PieceInstance, child: str) -> None:
        """Withdraw the observations of the nodes of a child that is gone, by the id of the child."""

    def drop_fingerprints(self) -> None:
        """Drop cached fingerprints, and wake all sleeping pieces, after code was replaced in the running process."""
