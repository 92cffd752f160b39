"""A model of derived results as a cache: a tier of entries in each runtime, and waves judged entry by entry.

Start with `rules.py` (the rules as switches), then `runtime.py` and `engine.py` (the two ends), `world.py` (the moves
and the properties) and `explore.py` (random and exhaustive search). Imported by `model.__main__` and by tests.
"""
