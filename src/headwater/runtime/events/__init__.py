"""TODO page of events."""
