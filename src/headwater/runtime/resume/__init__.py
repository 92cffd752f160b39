"""TODO page of resume."""
