"""TODO page of core."""
