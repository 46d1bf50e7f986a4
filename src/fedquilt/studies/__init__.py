"""Many runs: a paper's table, an ablation, a sweep, each a file in `catalogue/`, with the published numbers beside it."""
