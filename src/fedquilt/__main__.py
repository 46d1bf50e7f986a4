"""`python -m fedquilt` is the same as `fedquilt`."""

from fedquilt.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
