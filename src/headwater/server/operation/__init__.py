"""The parts of a server that all connections share: spaces, keys, limits, metrics and the log.

Start with `service.py`, which holds the others. `request_gate.py` refuses requests before their route, `accounts.py`
counts the use of each user. `spaces.py` opens and closes the engines of spaces and buffers messages
to connections, `keys.py` checks tokens, `limits.py` has every bound of the server, `metrics.py`, `loop_watch.py` and
`health.py` the figures for an operator.

Imported by `server.application`, `server.commands`, `server.sync`, `server.server` and `cli`. Imports no other room of
the server.
"""
