"""Restart: nodes whose stored results still hold are installed without a run.

Start with `resume.py` (asks what is stored of the nodes of a piece), `judge.py` (whether a node has to run, why) and
`fingerprint.py` (what identifies the code and the declarations behind a node). `lookup.py` asks for single nodes,
`writers.py` finds the nodes that write what a node read, `lazy_resume.py` keeps clean pieces without nodes until one is
demanded or affected, `clean_pieces.py` reports clean pieces when a runtime closes, `foreign_reads.py` compares reads of
other spaces. `preview.py` says what would run again, `shadow_run.py` checks clean nodes by running them, both on
`dry_nodes.py`. `limits.py` has the bounds.

Imported by `runtime.api` and `cli`. Imports `pieces`, `writing`, `channel`, `core`.
"""
