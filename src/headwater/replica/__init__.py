"""The local side: confirmed state, what is pending on top of it, and the session that settles the difference."""
