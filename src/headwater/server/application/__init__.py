"""The application that a server runs: its runtime, the pages of browsers, and the reactions of its spaces.

Start with `application.py` (the runtime over the server's own spaces, and the rights of users), then `page.py` (the
connection of one browser). `member_json.py` has the right that an access to a member needs, and the JSON of its value.

Imported by `server.commands` and `server.server`. Imports `server.operation`.
"""
