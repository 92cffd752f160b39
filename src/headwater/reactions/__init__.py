"""Delivery of records to reactions: durable work outside any transaction, at least once and in the order of each
target.

Start with `drain.py` (a worker, its slots and its leases), then `target_delivery.py` (one claimed target).
`retry_rules.py` decides about failures, `traces.py` has the records that listeners receive, `port.py` the
interfaces to reactions and spaces, `limits.py` the bounds. Which targets are due is decided by the engine
(`engine.delivery`).

Imported by `runtime` and `cli`. Imports `protocol` and below.
"""
