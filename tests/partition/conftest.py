"""Graphs that the partition tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.graphs.graph import Graph
from support.partitions import largest_component


@pytest.fixture(scope="session")
def cora(data_folder: Path) -> Graph:
    """The largest connected component of Cora, which is what the papers cut."""
    return largest_component(data_folder / "cora.npz")
