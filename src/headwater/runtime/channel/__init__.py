"""TODO page of channel."""
