"""Handles on data: typed values, how they are stored, lazy views of them, and the handles an author holds."""
