"""The log of a space, and the state that it describes.

Start with `log` (rows and their checksum chain), then `heads` (current documents) and `history` (reads of the present
and the past). `branches` lists the branches, `write_index` answers which seq wrote a path last, `sessions` keeps the
commits and verdicts of each session, `snapshots` and `compaction` bound the way back, `recovery` repairs heads after
a crash.

Imported by `engine.delivery`, `engine.admission`, `engine.observations`, `engine.planned_writes`, `engine.waves`,
`engine.commit_group`, `engine.engine`, `engine.provenance`, `engine.sync`, `engine.verify`, `runtime`
and `server`. Imports `store` and `limits`.
"""
