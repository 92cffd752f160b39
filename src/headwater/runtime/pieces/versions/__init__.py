"""Versions of piece classes: which of several programs runs a piece, and new code in a running program.

Start with `code_versions.py`, which says what a generation and a claim are, and replaces classes in a running program.
`generation_check.py` decides before each derived run whether this program computes the members of a piece.

Imported by `runtime.pieces.lifecycle`, `runtime.api` and `cli`. Imports the other modules of `runtime.pieces`,
`writing` and `core`.
"""
