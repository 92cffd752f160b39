"""TODO page of children."""
