"""`python -m fedquilt.cli` runs the command line where the console script is not on the path."""

import sys

from fedquilt.cli import main

sys.exit(main())
