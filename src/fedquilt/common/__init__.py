"""What every other folder may use: files written atomically, locks, random streams. It knows nothing of graphs."""
