"""Connections of replicas: from the bytes of a socket to the messages of an engine, and back.

Start with `connection.py` (one connection, from Hello to its end). `wire.py` has the sockets and their frames,
`backpressure.py` the bounds on one connection and the handling of messages that are too long.

Imported by `server.server`. Imports `server.operation`.
"""
