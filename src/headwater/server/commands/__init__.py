"""The command API: questions of `headwater get`, `set`, `log`, `nodes` and the other commands, answered as JSON.

Start with `command_api.py` (one question and its answer), then `command_route.py` (the HTTP request that carries it).
`json_forms.py`, `nodes_json.py` and `reactions_json.py` turn answers of an engine into JSON; `foreign_reads.py` asks
other spaces about the reads of nodes; `safe_copy.py` copies the file of a space for `verify`.

Imported by `server.server`, and by `cli` for directories that no process serves. Everything but `command_route.py`
works without the extra `server`. Imports `server.application` and `server.operation`.
"""
