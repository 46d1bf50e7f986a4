"""Runs: the configuration, resolving and executing it, comparing methods, the run folder and its checkpoints."""
