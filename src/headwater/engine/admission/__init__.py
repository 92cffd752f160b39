"""The decision whether a commit enters the log.

Start with `admission`: it judges reads and operations against the heads and changes nothing. `preconditions` judges
the conditions that a commit names, `access` the rights of its principal, `merge` compares a branch with its parent
and prepares the commit that merges it.

Imported by `observations`, `commit_group`, `wiring`, `engine` and `sync`; `access` and `merge` also by the runtime,
servers and commands. Imports `delivery`, `log`, `store` and `limits`.
"""
