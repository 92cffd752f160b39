"""The costs of pieces on a durable space, through the public API, beside libraries that keep nothing.

`pieces` has the classes that are measured, `shapes` measures them, `peers` builds the same graphs in other libraries,
`run` gives each measurement a process and a time limit and prints the figures.
"""
