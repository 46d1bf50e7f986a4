"""The kinds of attack, one file each; `fuzz.attempts.Kind` says what a file has."""
