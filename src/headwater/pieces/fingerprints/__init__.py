"""What objects are made of, for fingerprints: code, values, functions, classes, and where each comes from."""
