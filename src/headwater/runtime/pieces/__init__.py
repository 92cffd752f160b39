"""Pieces at run time: from declared classes to documents, handles and nodes.

Start with `instance.py` (one piece in one runtime) and `view.py` (the piece as one run sees it: for all users, one user
or one session). `registry.py` finds the instance of a piece and releases those that no code uses, `handles.py` makes a
handle and a node for each member, `lifecycle.py` opens, finds, stops and deletes pieces, `piece_documents.py` lists and
erases their documents, `records.py` is the stored record of a piece, `identity.py` names nodes over restarts.

`child_set.py` has the rows and children of an `each` or a `child`: one node reads the keys, one row per key keeps a
child. `elements.py` reads keys and elements of the source, `prefetch.py` requests the documents of siblings together.
`fold.py` has folds, `links.py` resolves handles that a piece was given or that data leads to, `resource.py` fetches
values from outside, `classes.py` has the imported classes and the fingerprints of their members, `generation_check.py`
decides which of several programs runs a piece, `hot_reload.py` replaces classes in a running program.

`ports.py` has the ports through which pieces reach events (`EventSender`) and resume (`NodeSource`).

Imported by `runtime.events`, `runtime.resume`, `runtime.reactions`, `runtime.api`, `server` and `cli`. Imports
`writing`, `channel` and `core`.
"""
