"""Introspection: diagnostics for people and tests. Reads the other components; no decision depends on it (P10).

Start with `introspection.py` (the object that composes the rest). `causes.py` explains why a node ran,
`non_settling.py` reports cycles, `stats.py` counts, `snapshot.py` records the graph, `idempotency.py` repeats runs, and
`listeners.py` distributes trace events.

Imported by `scheduler.scheduler` and `runtime`. Imports the other components of the scheduler.
"""
