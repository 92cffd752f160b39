"""The application's interface: a runtime, its spaces, and functions that open them.

Start with `entry_points.py` (`headwater.open`, `connect`, `run`), then `runtime.py` (a runtime on an event loop) and
`space.py` (cells, pieces and transactions of one space). `threads.py` takes calls from other threads, `reactions.py` is
`rt.reactions`.

Imported by servers, commands and tests, and by the dry runs of `resume`. Imports every other package of the runtime.
"""
