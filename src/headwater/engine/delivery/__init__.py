"""Events and topic records of a space, and their delivery to reactions.

Start with `commit_outbox` (events and records that a commit sends), then `targets` (one row per reaction and key: due,
claimed or parked). `subscriptions` lists the reactions of each topic, `idle_workers` the workers with free capacity,
`results` moves positions after a delivery. `facade` is the interface for the rest of the engine, with the operator's
calls.

Imported by `engine.admission`, `engine.commit_group`, `engine.engine` and `engine.sync`. Imports
`log`, `store` and `limits`.
"""
