"""Immutable values, and the names of places in them.

Start with `value` (the content of documents), `path` and `address` (places, documents, links), then `patch` and
`patch_kinds` (changes), then `change` (when a write matters to a read). `diff` finds the patches between two values,
`reader_trie` finds the readers that a change concerns; `codec` and `json_form` encode; `ids` derives ids, `trace` has
the events of the one trace, `text` and `limits` check input.

Imported by `protocol`, `engine`, `replica`, `cells`, `pieces`, `scheduler`, `runtime`, `server` and `cli`. Imports
`errors` only. Reads no clock, no random source, no file and no socket.
"""
