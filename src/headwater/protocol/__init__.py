"""The records that cross a wire or a disk, and their checks on arrival.

Start with `commit` (a commit and its reads) and `verdict` (the engine's answer), then `messages` (everything that a
replica and an engine send each other; `docs/PROTOCOL.md` says in which order). `message` is the base of all messages;
`reactions` and `observations` are messages by subject. `log_record` is the stored form of a frame,
`hop_counts` counts how often a change went from session to session, `framing` cuts WebSocket frames, `pages` are the
messages of a browser page and `command_messages` those of the command line.

Imported by `engine`, `replica`, `scheduler`, `reactions`, `runtime`, `server` and `cli`. Imports `data` and `errors`.
Records are checked and converted here; no record is acted on.
"""
