"""The database of a space: the port, and its implementation on SQLite.

Start with `port`: every row type, and the methods that a database offers to the engine. `sqlite` implements the port,
on `database` (connection, transactions, failures) and `schema` (tables and their versions). `lazy_file` creates the
file of a space with its first commit.

Imported by all rooms below `sync`. Imports nothing of the engine.
"""
