"""TODO page of writing."""
