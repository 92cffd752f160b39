"""The transactions that are open. Each goes on with what it saw (C8), however long it lasts.

Before a document is shown differently, every open transaction keeps what was. One that nobody refers to any more is
forgotten.
"""

from __future__ import annotations

from weakref import ref

from headwater.replica.document import Document
from headwater.replica.transaction import Transaction


class Opened:
    """Transactions between their beginning and their end."""

    __slots__ = ("_open", "count")

    def __init__(self) -> None:
        self._open: dict[int, ref[Transaction]] = {}
        self.count = 0

    def add(self, transaction: Transaction) -> None:
        number = id(transaction)
        self._open[number] = ref(transaction, lambda _: self._forget(number))
        self.count = len(self._open)

    def end(self, transaction: Transaction) -> None:
        transaction.finished = True
        self._forget(id(transaction))

    def _forget(self, number: int) -> None:
        self._open.pop(number, None)
        self.count = len(self._open)

    def changing(self, document: Document) -> bool:
        """C8: whoever looked already goes on with what was shown until now. Whether there is anybody."""
        if not self._open:
            return False
        for opened in tuple(self._open.values()):
            transaction = opened()
            if transaction is not None:
                transaction.keep(document)
        return True

    def oldest(self, default: int) -> int:
        """The first layer that one of them may name."""
        opened = [transaction() for transaction in self._open.values()]
        return min((each.oldest for each in opened if each is not None), default=default)
