"""TODO page of pieces."""
