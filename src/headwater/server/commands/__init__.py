"""The command API: questions of `headwater get`, `set`, `log`, `nodes` and the other commands, answered as JSON.

Start with `command_api.py` (one question and its answer), then `command_route.py` (the HTTP request that carries it).
The `*_json` and form modules turn the answers of an engine into JSON; `foreign_reads.py` asks other spaces about the
reads of nodes; `safe_copy.py` copies the file of a space for `verify`.

Imported by `server.server` and by the command line, which answers the same questions from a directory that no process
serves: everything but `command_route.py` works without the extra `server`. Imports `server.application`,
`server.operation`.
"""
