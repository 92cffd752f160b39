"""The local side: confirmed state, pending commits on top of it, and the session that settles the difference.

The names below are for the packages above and for tests that drive a replica without a runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.replica.confirmed import NotHere
    from headwater.replica.detached import Detached
    from headwater.replica.document import NOT_HERE, Document, NotLoaded
    from headwater.replica.feed import Changed, Kind, Notification
    from headwater.replica.pending import Fate, Layer, Settled
    from headwater.replica.queries import Reply
    from headwater.replica.replica import Replica
    from headwater.replica.session import Link, Session
    from headwater.replica.transaction import Transaction

__all__ = [
    "NOT_HERE",
    "Changed",
    "Detached",
    "Document",
    "Fate",
    "Kind",
    "Layer",
    "Link",
    "NotHere",
    "NotLoaded",
    "Notification",
    "Replica",
    "Reply",
    "Session",
    "Settled",
    "Transaction",
]

__getattr__ = load_on_use(
    __name__,
    {
        "Detached": "headwater.replica.detached",
        "NOT_HERE": "headwater.replica.document",
        "Document": "headwater.replica.document",
        "NotLoaded": "headwater.replica.document",
        "Changed": "headwater.replica.feed",
        "Kind": "headwater.replica.feed",
        "Notification": "headwater.replica.feed",
        "Fate": "headwater.replica.pending",
        "Layer": "headwater.replica.pending",
        "Settled": "headwater.replica.pending",
        "Reply": "headwater.replica.queries",
        "Replica": "headwater.replica.replica",
        "Link": "headwater.replica.session",
        "Session": "headwater.replica.session",
        "Transaction": "headwater.replica.transaction",
        "NotHere": "headwater.replica.confirmed",
    },
)
