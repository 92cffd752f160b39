"""Commands that run code of an application, or create a project: `run`, `serve`, `worker`, `test`, `new`.

Start with `run.py` (an application with its data and its page). `reload.py` puts edited code into the running process,
`worker.py` delivers records to reactions, `project.py` has `new` and `test`.

Imported by `cli.app`, which loads a module when its command is used. Imports `cli.data`.
"""
