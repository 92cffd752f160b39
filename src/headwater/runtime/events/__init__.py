"""Events: from `send` to an outcome.

Start with `event.py` (the data), `delivery.py` (its way through the states of `runtime.writing.states`, and its
outcome) and `events.py` (sending, the turns of events in a pass, and the composition of this room). `lane.py` keeps the
send order of a space, `attempt.py` runs one handler in one transaction, `context.py` is the value of `self.ctx`,
`lineage.py` ends everything that an attempt launched with that attempt (I10), `receipts.py` makes redelivery harmless
(I11). `durable.py` and `event_rows.py` store events before they are handled, `outbox.py` is the file of a client,
`pickup.py` takes up events whose sender is gone. `table.py` lists every event and its outcome, `periodic.py` sends the
events of `every_ms=`, `deleted_target.py` refuses events of deleted pieces.

Imported by `runtime.reactions`, `runtime.api` and `server`. Imports `pieces`, `writing`, `channel`, `core`.
"""
