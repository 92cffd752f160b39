"""The data layer: values, paths, addresses, links, patches, changes, ids and their encodings.

Owns what a document can hold and what can be done to it, as pure functions over immutable values.
Never reads a clock, a random source, a file or a socket, and never imports a layer above it.
"""
