"""A small world for tests of the scheduler: nodes over a replica, without an engine.

Start with `kit` (`World`, `Handle`). `graphs` draws random graphs and computes their expected values, `checks` has the
conditions that hold in every world, `watcher` compares invalidations with a naive rule. `tick_loops` calls the ticks of
a core by hand or by a virtual clock.

Imported by tests. Imports the product only.
"""
