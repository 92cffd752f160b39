"""Fingerprints: digests of a node's code and of everything that the code refers to.

Start with `fingerprint` (`fingerprint_of`, the walk over all referenced objects, and the forms of classes and of any
object). `functions` and `values` make the forms of functions and values; `form` is the form itself. `origin` says which
code is the application's and which version stands for other code. `change_kinds` names the kinds of changes for
previews.

Imported by `runtime` and `cli`. Imports `pieces.declarations` only.
"""
