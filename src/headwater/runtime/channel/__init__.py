"""The connection between a space and its engine.

Start with `transport.py` (the port) and `driver.py` (connects a session, moves its messages, reconnects it).
`loopback.py` and `websocket.py` are the transports, `connection_end.py` is the engine's end of a connection,
`backend.py` says where the spaces of a runtime are, `channel.py` joins a session and its driver for one space,
`sessions.py` names the user sessions that a runtime acts for.

Imported by `runtime.writing`, `runtime.pieces`, `runtime.events`, `runtime.resume`, `runtime.reactions`, `runtime.api`,
`server` and `cli`. Imports `core`.
"""
