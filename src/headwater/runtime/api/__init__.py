"""TODO page of api."""
