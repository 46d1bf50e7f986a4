"""Random streams. Every random draw has an owner: the graph, the partition, the server, or client i in round r.

A stream is derived from (seed, owner, ...) by hashing. So the same seed gives the same numbers with any engine, cohort size
and device, and after a resume.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *owner: str | int) -> int:
    """A 63-bit hash of the seed and of all parts of the owner."""
    # Each part with its kind and length, so that no two owners are written alike: 1 is not "1", ("a", "b") not "a/b".
    parts = [part if isinstance(part, str) else int(part) for part in (int(seed), *owner)]
    text = "".join(f"{type(part).__name__}:{len(str(part))}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def numpy_stream(seed: int, *owner: str | int) -> np.random.Generator:
    """NumPy's generator for this owner, e.g. `numpy_stream(seed, "partition", "overlapping")`."""
    return np.random.default_rng(derive(seed, *owner))


def torch_stream(seed: int, *owner: str | int) -> torch.Generator:
    """PyTorch's generator for this owner, always on the CPU so that the numbers do not depend on the device."""
    import torch  # takes a second to import; graphs and partitions do without it

    return torch.Generator().manual_seed(derive(seed, *owner))
