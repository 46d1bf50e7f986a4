"""Compute many clients together: clients, cohorts, the layout of their rows, and their random numbers."""
