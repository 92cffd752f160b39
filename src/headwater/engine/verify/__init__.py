"""Verifiers that ship: the naive definition of the rules, and the oracle that replays a file against them."""
