"""Binding: how declared pieces become documents, handles and nodes of a runtime."""
