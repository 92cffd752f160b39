"""Pieces: what an author declares. Declarations only; the runtime binds them to documents and nodes."""
