"""The graph: readers and writers of documents, liveness of nodes, and heights.

`edges.py` walks edges; `graph.py` changes them and keeps liveness and heights true.
"""
