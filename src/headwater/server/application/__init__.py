"""The application that a server runs: its runtime, the pages of browsers, and the reactions of its spaces.

Start with `application.py` (the runtime over the server's own spaces, and who may do what), then `page.py` (the
connection of one browser). `rights.py` names the right that an action on a member needs, `member_json.py` shows the
value of a member as JSON, `reaction_spaces.py` opens spaces in which reactions have work.

Imported by `server.server` and `server.commands`. Imports `server.operation`.
"""
