"""Introspection: what people and tests look at. Read-only over the rest; no decision depends on it (P10)."""
