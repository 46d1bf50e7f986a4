"""Engines: who carries a round out. `base` is the protocol, one file an engine."""
