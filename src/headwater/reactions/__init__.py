"""Durable work outside any run: records of topics are delivered to reactions, at least once and in order."""
