"""A transaction outside any run of a node: what handles read and write while a function of the author's is called.

It sees what is visible now; nothing suspends. A document that is not here ends the attempt, and whoever called it loads
it and calls again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from headwater.cells.run import Current, Run
from headwater.data.patch import Patch
from headwater.data.spots import Spot
from headwater.errors import AuthoringError
from headwater.replica.confirmed import NotHere
from headwater.replica.document import Document
from headwater.replica.replica import Replica
from headwater.replica.transaction import Transaction

T = TypeVar("T")


class Authored:
    """The tracker of one transaction."""

    __slots__ = ("_home", "_transaction")

    def __init__(self, home: Replica, transaction: Transaction) -> None:
        self._home = home
        self._transaction = transaction

    def missed(self, run: Run, spot: Spot) -> Spot:
        document = cast(Document, spot.document)
        if document.home is self._home:
            self._transaction.saw(document.key, spot.path, spot.depth)
        return spot

    def absent(self, run: Run, document: Document) -> None:
        raise NotHere(document.key)

    def write(self, run: Run, document: Document, patch: Patch) -> None:
        if document.home is not self._home:
            raise AuthoringError(f"{document!r} is of another space: a transaction writes one space only")
        self._transaction.write(document.key, patch)
        cast("dict[Document, None]", run.overlay)[document] = None


def call_in(current: Current, home: Replica, transaction: Transaction, fn: Callable[[], T]) -> T:
    """Call a function whose handles read and write through a transaction."""
    if current.run is not None:
        raise AuthoringError("a transaction cannot begin inside a run: it is one already")
    run = Run(Authored(home, transaction))
    run.number = -(id(run) & 0xFFFFFFFF) - 1  # No spot was looked at in it.
    run.transaction = transaction
    run.overlay = {}
    current.run = run
    try:
        return fn()
    finally:
        current.run = None
