"""The graph: who reads what, who writes what, who is live, and what comes before what."""
