"""Commands that read or change the data of a space, in a directory or through the server that owns it.

Start with `target.py` (the way from a command to the process that can answer), then `commands.py` (`get`, `set`,
`send`, `log`, `why`, `graph`). `history.py` (`spaces`, `branch`, `compact`), `nodes.py`, `preview.py`, `reactions.py`,
`verify.py` and `backup.py` (`backup`, `restore`) have the other commands; `space_copy.py` copies the file of a space
that may be in use; `stored_nodes.py` loads the observations that `preview` and `verify --resume`
compare with the code of an application.

Imported by `cli.app`, which loads a module when its command is used, and by `cli.process`.
"""
