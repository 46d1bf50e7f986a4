"""Many clients laid side by side as one computation. A client is a cohort of one."""
