"""Crashes and failing disks.

Start with `model` (files, operations, and the content after a power loss) and `faulty_disk` (the same as a file
system for SQLite). `crash` is the harness: `workload` makes the `steps`, `machine` runs an engine on a disk, `tape`
records a run, `crash_points` checks a machine that stopped after each operation, `faults` one whose operation failed,
and `comparison` says when two states are the same.

Imported by `testing.author`, `testing.simulation` and tests. Imports the product only.
"""
