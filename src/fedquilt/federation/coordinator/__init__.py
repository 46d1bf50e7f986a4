"""The coordinator of a federation: it has the round loop and the run folder, and no graph."""
