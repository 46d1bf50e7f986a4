"""The organisation's side: what a site has and permits, what left it, what it keeps, and predictions from its own model."""
