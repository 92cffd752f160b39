"""The replica: documents of one space as one process shows them, and the session that sends its commits to an engine.

Start with `document.py` (one document: confirmed value, pending layers, shown value), then `replica.py` (all changes of
shown values). `confirmed.py` holds the values of the engine's log, `pending.py` the local commits without confirmation,
`tier.py` the results of nodes, `transaction.py` one consistent view with its reads and writes, `feed.py` the
notifications. `session.py` is the replica's side of the protocol, with `watches.py`, `queries.py` and
`observation_queue.py`; `detached.py` replaces it where there is no engine. `weak_refs.py` has the references to
documents; `minimal_patches.py` and `number_ranges.py` are computations without state of a replica; `limits.py` has the
bounds.

Imported by `cells`, `scheduler`, `runtime` and `server`, and by tests that drive a replica without a runtime. Imports
`data`, `protocol`, `errors` and `lazy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.replica.confirmed import NotHere
    from headwater.replica.detached import Detached
    from headwater.replica.document import NOT_HERE, Document, EntryState, NotLoaded, TierEntry
    from headwater.replica.feed import Changed, Kind, Notification
    from headwater.replica.pending import Fate, Layer, Settled
    from headwater.replica.queries import Reply
    from headwater.replica.replica import Replica
    from headwater.replica.session import LinkState, Session
    from headwater.replica.tier import SentWave
    from headwater.replica.transaction import Transaction

__all__ = [
    "NOT_HERE",
    "Changed",
    "Detached",
    "Document",
    "EntryState",
    "Fate",
    "Kind",
    "Layer",
    "LinkState",
    "NotHere",
    "NotLoaded",
    "Notification",
    "Replica",
    "Reply",
    "SentWave",
    "Session",
    "Settled",
    "TierEntry",
    "Transaction",
]

__getattr__ = load_on_use(
    __name__,
    {
        "Detached": "headwater.replica.detached",
        "NOT_HERE": "headwater.replica.document",
        "Document": "headwater.replica.document",
        "NotLoaded": "headwater.replica.document",
        "EntryState": "headwater.replica.document",
        "TierEntry": "headwater.replica.document",
        "Changed": "headwater.replica.feed",
        "Kind": "headwater.replica.feed",
        "Notification": "headwater.replica.feed",
        "Fate": "headwater.replica.pending",
        "Layer": "headwater.replica.pending",
        "Settled": "headwater.replica.pending",
        "Reply": "headwater.replica.queries",
        "Replica": "headwater.replica.replica",
        "LinkState": "headwater.replica.session",
        "Session": "headwater.replica.session",
        "SentWave": "headwater.replica.tier",
        "Transaction": "headwater.replica.transaction",
        "NotHere": "headwater.replica.confirmed",
    },
)
