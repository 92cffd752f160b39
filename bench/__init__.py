"""Benchmarks. `./dev bench [NAME ...]` runs them."""
