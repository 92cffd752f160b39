"""Pieces at run time: from declared classes to documents, handles and nodes.

Start with `instance.py` (one piece in one runtime) and `view.py` (the piece as one run sees it: for all users, one user
or one session). `registry.py` finds the instance of a piece, `handles.py` makes a handle and a node for each member,
`lifecycle.py` opens, finds, stops and deletes pieces, and erases removed children, `records.py` is the stored record of
a piece, `identity.py` names nodes over restarts, `context.py` is the value of `self.ctx`. `children` has `each` and
`child`, `fold` has folds. `inputs.py` and `links.py` resolve handles that a piece was given or that data leads to,
`resource.py` fetches values from outside, `code_versions.py` replaces classes in a running program,
`generation_check.py` decides which of several programs runs a piece, `idle.py` releases pieces that no code uses.

`ports.py` has the two ports through which pieces reach events (`EventSender`) and resume (`NodeSource`);
`resume_state.py` is the state of resuming that an instance carries.

Imported by `runtime.events`, `runtime.resume`, `runtime.reactions`, `runtime.api`, `server` and `cli`. Imports
`writing`, `channel` and `core`.
"""
