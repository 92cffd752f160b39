"""Connections of replicas: from the bytes of a socket to the messages of an engine, and back.

Start with `connection.py` (one connection, from Hello to its end). `wire.py` reads and writes the frames of a
WebSocket, `request.py` bounds sockets that are not WebSocket connections yet, `backpressure.py` bounds the work of one
connection that has no answer yet, `oversize.py` replaces messages that are too long.

Imported by `server.server`. Imports `server.operation`.
"""
