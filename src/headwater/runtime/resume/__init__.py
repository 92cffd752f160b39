"""Restart: nodes whose stored results still hold are installed without a run.

Start with `resume.py` (queries the stored observations of the nodes of a piece), `judge.py` (whether a node has to run,
and the reason) and `fingerprint.py` (the fingerprints of code and declarations behind a node). `writers.py` registers
the nodes that write the inputs of a node, `lazy_resume.py` keeps clean pieces without nodes until one is demanded or
affected, `clean_pieces.py` reports clean pieces when a runtime closes, `foreign_reads.py` compares reads of other
spaces. `preview.py` lists the nodes that would run again, `shadow_run.py` checks clean nodes by running them, both on
`dry_nodes.py`. `resume_state.py` is the state of one piece while it is resumed, `parts.py` has the parts of a runtime
that resuming uses and asks engines, `limits.py` has the bounds.

Imported by `runtime.api` and `cli`. Imports `pieces`, `writing`, `channel`, `core`.
"""
