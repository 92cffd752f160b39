"""`./dev bench reactive`: the shapes of the public js-reactivity-benchmark, written anew, for every contender.

`contender` says what a shape may use; `kairo`, `cellx`, `grids` and `sets` are the shapes, `catalogue` lists
them with their sizes; `peers` and `headwater_contender` are who runs them, `exact` is who counts for all;
`measure` runs inside a contender's process, `processes` keeps those processes and their time limits; `run`
takes turns and prints.
"""
