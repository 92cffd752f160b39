"""The durable side: one append-only log per space, and the decision which commits enter it."""
