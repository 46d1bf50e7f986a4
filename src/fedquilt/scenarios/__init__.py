"""Scenarios of a run: attacks, edge noise, newcomers, robust aggregation."""
