"""TODO page of fold."""
