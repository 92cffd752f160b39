"""A model of the protocol between replicas and one engine, checked over all interleavings: see README.md."""
