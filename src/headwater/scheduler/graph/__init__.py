"""The graph: readers and writers of documents, liveness of nodes, and heights.

Start with `graph.py`: it changes edges, and keeps liveness and heights true. `edges.py` walks edges.

Imported by `scheduler.waiting_nodes`, `scheduler.suspension`, `scheduler.persistence`, `scheduler.freshness`,
`scheduler.runner`, `scheduler.commit_verdicts`, `scheduler.nested_runs`, `scheduler.pass_`, `scheduler.introspection`,
`scheduler.scheduler` and `runtime`. Imports `scheduler.node`.
"""
