"""The database of a space: the port, and its implementation on SQLite.

Start with `port`: every row type, and the methods that a database offers to the engine. `sqlite` implements the port
with its statements, on `database` (connection, transactions, failures) and `schema` (tables and their versions).
`checksummed_tables` writes and checks rows with a checksum of their own, which `row_checksum` computes; `wal` keeps
the write-ahead log of a file long enough and durable. `lazy_file` creates the file of a space with its first commit.

Imported by `engine.log`, `engine.delivery`, `engine.admission`, `engine.observations`, `engine.planned_writes`,
`engine.commit_group`, `engine.engine`, `engine.directory`, `engine.verify` and `runtime`. Imports
nothing of the engine.
"""
