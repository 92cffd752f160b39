"""Folds: one value over many elements, updated with the changed elements only.

Start with `fold.py`. `checkpoint.py` stores the state of a fold between processes, `history.py` reads the source as
it was at the seq of the checkpoint.
"""
