"""Sessions of connected replicas: the engine's end of the protocol.

Start with `hub`: it receives messages of all connections of a space and sends verdicts and changes. `host` runs the
hub on one thread and groups commits that arrive together. `peer` is one connection, `watch_table` the documents that
peers watch, `queries` answers their questions, `conflict_turns` orders the retries of rejected sessions,
`error_codes` maps errors to codes on the wire.

Imported by `runtime` and `server`. Imports `engine`, `commit_group`, `delivery`, `admission`, `log` and `limits`, never
`store`.
"""
