"""Conditions that a run can be put under: attacks, edge noise, newcomers, robust aggregation."""
