from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.reports.partition_picture import partition_figure, partition_picture

EDGES = np.array([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])


def test_shares_sizes_and_kept_edges() -> None:
    figure = partition_figure(EDGES, [np.array([0, 1, 2, 3]), np.array([3, 4])], np.array([0, 0, 0, 1, 1]), "Toy")
    above, below = figure.axes
    assert [bar.get_height() for bar in above.patches] == [4, 2]
    assert [bar.get_height() for bar in below.patches] == [75, 0, 25, 100]
    assert [bar.get_y() for bar in below.patches] == [0, 0, 75, 0]
    assert above.get_title(loc="left") == "2 clients  ·  5 of 5 nodes  ·  80% of edges inside a client"
    assert figure.get_suptitle() == "Toy"


def test_many_classes_and_nodes_without_a_label() -> None:
    y = np.r_[np.arange(40), np.arange(15), -1]
    figure = partition_figure(EDGES, [np.arange(56)], y)
    legend = figure.axes[1].get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["none", "others", *(str(i) for i in reversed(range(15)))]
    heights = [bar.get_height() for bar in figure.axes[1].patches]
    assert sum(heights) == pytest.approx(100)
    assert heights[-2] == pytest.approx(100 * 25 / 56)
    colours = {bar.get_facecolor() for bar in figure.axes[1].patches}
    assert len(colours) == len(names)


def test_nan_labels_and_an_empty_client() -> None:
    figure = partition_figure(EDGES, [np.arange(5), np.array([], dtype=int)], np.array([0, 1, np.nan, 1, 0]))
    assert [bar.get_height() for bar in figure.axes[0].patches] == [5, 0]


def test_written_from_tensors(tmp_path: Path) -> None:
    nodes = [torch.tensor([0, 1]), torch.tensor([2, 3, 4])]
    partition_picture(torch.from_numpy(EDGES), nodes, torch.tensor([[0], [1], [0], [1], [2]]), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_errors() -> None:
    with pytest.raises(FedquiltError, match="at least one client"):
        partition_figure(EDGES, [], np.zeros(5))
    with pytest.raises(FedquiltError, match="one class a node"):
        partition_figure(EDGES, [np.arange(5)], np.zeros((5, 3)))


def test_classes_have_their_names() -> None:
    figure = partition_figure(np.zeros((2, 0)), [[0, 1], [2]], [0, 1, -1], class_names=("ill", "well"))
    assert {bars.get_label() for bars in figure.axes[1].containers} == {"ill", "well", "none"}
