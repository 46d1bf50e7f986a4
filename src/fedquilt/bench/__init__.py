"""Speed and memory of every method, against a plain loop over clients and against earlier results: `fedquilt bench`."""
