"""Children of a piece: `each` and `child`.

Start with `coordinator.py`: one node reads the keys, one row per key keeps a child, and the handles of authors show the
rows. `elements.py` reads keys and elements of the source, `prefetch.py` requests the documents of siblings together.

Imported by `runtime.pieces.handles`, `runtime.pieces.instance`, `runtime.api` and `server`.
Imports the other modules of `runtime.pieces`, and `core`.
"""
