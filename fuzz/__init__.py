"""Attacks on fedquilt by generators with seeds: `python -m fuzz --help`, `make fuzz`; docs/results/attacks.md has figures.

One kind of attack is one file in `fuzz.kinds`. An attempt follows from its kind, seed and number alone, so that each can
be made again. It runs in processes forked from this one, which has imported everything and computed nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Sites and grids in memory are those of the tests.
sys.path.insert(0, str(ROOT / "tests"))
# One thread: processes are forked, and a thread pool does not survive that. Set before NumPy and PyTorch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
