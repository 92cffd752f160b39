"""Transactions outside any run of a node, until they are accepted or reported as failed.

Start with `tracker.py` (the reads and writes of one transaction) and `attempt.py` (one write over all its attempts).
`retry.py` has the one policy for rejected writes, `plain_writes.py` makes each write of an application a transaction of
its own and keeps the writes to one document in order.

Imported by `core`, `channel` and the packages above. Imports `channel` for the driver, and `core` for types only.
"""
