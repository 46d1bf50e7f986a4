"""Helpers without graphs or models: atomic files, JSON lines, locks, random streams, checks and their sentences."""
