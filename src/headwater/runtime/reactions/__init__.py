"""Reactions of pieces, served by a runtime.

Start with `serve.py` (declares the reactions of open classes and delivers their records). `bound.py` calls one
reaction and commits its result, `threads.py` runs plain functions on threads, per lane.

Imported by `runtime.api` and `server`. Imports `events`, `pieces`, `writing`, `channel`, `core`.
"""
