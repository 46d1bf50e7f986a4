"""What `fedquilt bench` does not measure, and what it measured before (history/). Never run as a test."""
