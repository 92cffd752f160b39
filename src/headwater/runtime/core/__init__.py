"""The core of a runtime: spaces, handles and nodes on one thread.

`core.py` has no event loop; `observers.py` and `waiting.py` use asyncio's.

Start with `core.py`, which composes the package. `local_space.py` is one space with its replica and its channel,
`nodes.py` registers nodes that are no members of pieces, `observers.py` has pulls, sinks and watches,
`time_documents.py` turns time into documents,
`waiting.py` has the tasks and timed waits of a runtime, `conditions.py` waits until a condition holds,
`error_channel.py` reports failures that no caller awaits.
`tracker.py` records the reads and writes of one transaction, `own_view.py` computes derived values on its own writes,
`demand.py` has the stale values computed that it reads,
`plain_writes.py` makes each write of an application a transaction of its own and keeps the writes to one document in
order. `policy.py` has every bound that an application can set, `limits.py` those that are fixed.

Imported by `runtime.channel`, `runtime.writing`, `runtime.pieces`, `runtime.events`, `runtime.resume`,
`runtime.reactions` and `runtime.api`. Imports no other room of the runtime.
"""
