"""TODO page of reactions."""
