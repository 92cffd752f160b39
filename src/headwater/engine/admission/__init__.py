"""The decision whether a commit enters the log.

Start with `admission`: it judges reads and operations against the heads and changes nothing. `preconditions` judges
the conditions that a commit names, `access` the rights of its principal, `user_stock` how much its user has stored,
`merge` compares a branch with its parent and prepares the commit that merges it.

Imported by `engine.observations`, `engine.planned_writes`, `engine.waves`, `engine.commit_group`, `engine.engine`,
`engine.directory`, `engine.sync`, `runtime`, `server` and `cli`. The packages outside the engine use
the rights and the branch comparison only. Imports `delivery`, `log`, `store` and `limits`.
"""
