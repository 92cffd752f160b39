"""Simulations for authors: `@simulated` runs a test of pieces under many seeds.

Start with `simulation` (the world that a test is given), then `seeds` (how one seed runs and how a failure is
reported). `runtime` is the author's runtime with its runs counted, `server` the engines on one disk, `network` the
transport between them, `faults` the schedule of faults; `loop` is the event loop in virtual time, `stored` reads the
logs at the end, `trace` records events.

Imported by `testing.author_plugin` and by tests. Imports `testing.disk` and `testing.network`, and the product.
"""
