"""Observations: the last run of each node, with the addresses that it read.

Start with `codec` (the stored form), then `writer` (keeps the observations of accepted commits, and drops those of a
deleted or recreated piece) and `queries` (answers which nodes are still up to date). `reader_index` finds the pieces
that read a document, `interned_names` stores each text once, `clean_pieces` keeps pieces whose nodes are all up to
date.

Imported by `engine.planned_writes`, `engine.commit_group`, `engine.engine` and `engine.verify`. Imports `admission`,
`log`, `store` and `limits`.
"""
