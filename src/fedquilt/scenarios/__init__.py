"""What a run can be put under: attacks, noise, newcomers, robust aggregation."""
