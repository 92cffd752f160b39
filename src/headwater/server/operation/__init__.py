"""The parts of a server that all connections share: spaces, keys, limits, metrics and the log.

Start with `service.py`, which holds the others. `spaces.py` opens and closes the engines of spaces and buffers messages
to connections, `keys.py` checks tokens, `limits.py` has every bound of the server, `metrics.py` the figures for an
operator.

Imported by `server.application`, `server.commands`, `server.sync`, `server.server` and `cli`. Imports no other room of
the server.
"""
