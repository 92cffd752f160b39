"""The sync simulation: one server and several replicas in virtual time, with random work and random faults.

Start with `simulation` (`Simulation`, and `python -m headwater.testing.simulation.simulation`). `server` and `process`
are the two kinds of processes; `conversation` is one session of a process, `intents` its transactions, `tokens` its
access tokens. `workload` draws the work, `faults` the faults, `operator` the work on branches. Checks: `oracle` folds
the log, `replica_checks` and `attempts` compare a replica with it after every step, `access` reads the rights,
`final_checks` runs at the end; `trace` records steps and findings.

Imported by tests and by `testing.differential`, which uses the oracle. Imports `testing.disk`, `testing.network` and
the product.
"""
