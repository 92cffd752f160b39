"""Folds: one value over many elements, updated with the changed elements only.

Start with `fold.py`. `checkpoint.py` stores the state of a fold between processes, `history.py` reads the source as
it was at the seq of the checkpoint.

Imported by `runtime.pieces.registry` and `runtime.pieces.code_versions`. Imports `runtime.pieces.identity`,
`runtime.pieces.view`, `channel` and `core`.
"""
