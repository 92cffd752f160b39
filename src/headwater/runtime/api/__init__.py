"""The application's interface: a runtime, its spaces, and functions that open them.

Start with `entry_points.py` (`headwater.open`, `connect`, `run`), then `runtime.py` (a runtime on an event loop) and
`space.py` (cells, pieces and transactions of one space). `composition.py` makes the parts of a runtime and connects
them. `threads.py` takes calls from other threads, `reactions.py` is `rt.reactions`.

Imported by `server` and `cli`, and by tests. Imports every other room of the runtime.
"""
