"""Compute many clients together: clients, cohorts, the layout of their rows, and their random numbers."""

MOST_HOPS, MOST_NEIGHBOURS = 16, 1_000_000
"""The longest fan-out, and the most neighbours of a node that it may ask for (`fedquilt.cohort.sampled_neighbours`)."""
