"""Folds: one value over many elements, updated with the changed elements only.

Start with `fold.py`, which also stores the state of a fold between processes. `history.py` reads the source as it was
at the seq of the stored state.

Imported by `runtime.pieces.registry` and `runtime.pieces.code_versions`. Imports `runtime.pieces.identity`,
`runtime.pieces.view`, `channel` and `core`.
"""
