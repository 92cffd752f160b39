"""Transactions outside any run of a node, until they are accepted or reported as failed.

Start with `states.py` (the table of the states of a write), `attempt.py` (one write over all its attempts) and
`retry.py` (the writer, and the one policy for rejected writes). `space_channel.py` adds a writer to the channel of a
space, `transactions.py` runs transactions in spaces with and without an engine. Writes of an application that are no
transactions are in `core.plain_writes`.

Imported by `runtime.pieces`, `runtime.events`, `runtime.resume`, `runtime.reactions` and `runtime.api`. Imports
`channel` and `core`.
"""
