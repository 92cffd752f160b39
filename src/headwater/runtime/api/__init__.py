"""What an application calls: a runtime, its spaces, and ways to open them.

Start with `entry_points.py` (`headwater.open`, `connect`, `run`), then `runtime.py` (a runtime on an event loop) and
`space.py` (cells, pieces and transactions of one space). `threads.py` takes calls from other threads, `reactions.py`
is `rt.reactions`.

Imported by servers, commands and tests. Imports every other room of the runtime.
"""
