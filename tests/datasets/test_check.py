"""Loading a graph and describing it in one call."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.datasets.check import check_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.check import describe_graph
from fedquilt.graphs.npz import write_npz
from support.graphs import tiny


def test_a_bad_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_text("nothing")
    with pytest.raises(FedquiltError, match="is not an npz file"):
        check_graph(tmp_path / "bad.npz")


def test_the_report_is_that_of_the_loaded_graph(tmp_path: Path) -> None:
    write_npz(tiny(), tmp_path / "g.npz")
    assert check_graph(tmp_path / "g.npz").rows() == describe_graph(tiny()).rows()
    assert check_graph(tiny().to_data()).nodes == 4
