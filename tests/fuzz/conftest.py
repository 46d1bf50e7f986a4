"""The generators fork processes and watch them by /proc and pidfd, which only Linux has."""

import sys

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]
