from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedquilt.errors import FedquiltError
from fedquilt.reports import figures
from fedquilt.reports.figures import client_bars, convergence, heatmap, similarity_rounds

PNG = b"\x89PNG\r\n\x1a\n"


def records(*tests: float | None) -> list[dict[str, Any]]:
    return [
        {"round": i, "test": test, "val": None if test is None else test + 1, "clients": {}}
        for i, test in enumerate(tests, start=1)
    ]


def line(figure: Figure, label: str) -> tuple[list[float], list[float]]:
    (found,) = [line for line in figure.axes[0].get_lines() if line.get_label() == label]
    return list(np.asarray(found.get_xdata())), list(np.asarray(found.get_ydata()))


def test_convergence_draws_the_means() -> None:
    curves = {"fedpub": [records(10, 40, 30), records(20, 60, 50)], "local": [records(5, 6, 7)]}
    figure = figures.convergence_figure(curves, "roc_auc")
    assert line(figure, "fedpub") == ([1, 2, 3], [15, 50, 40])
    assert line(figure, "_validation of fedpub") == ([1, 2, 3], [16, 51, 41])
    assert line(figure, "_best of fedpub") == ([2], [50])
    assert line(figure, "_best of local") == ([3], [7])
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Round", "ROC AUC (%)")
    # One band only: a single seed has no spread to show.
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (10, 60)


def test_convergence_bold_test_and_thin_validation() -> None:
    axes = figures.convergence_figure({"a": [records(1, 2)]}).axes[0]
    width = {str(line.get_label()): line.get_linewidth() for line in axes.get_lines()}
    assert width["a"] > 2 * width["_validation of a"]


def test_convergence_with_gaps_and_seeds_of_different_length() -> None:
    figure = figures.convergence_figure({"a": [records(10, None, 30), records(20)]})
    assert line(figure, "a") == ([1, 3], [15, 30])


def test_many_curves_are_all_different() -> None:
    figure = figures.convergence_figure({str(i): [records(i, i + 1)] for i in range(12)})
    lines = [line for line in figure.axes[0].get_lines() if str(line.get_label()).isdigit()]
    assert len({(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines}) == 12


def test_convergence_of_nothing() -> None:
    with pytest.raises(FedquiltError, match="no rounds"):
        figures.convergence_figure({"a": [[]]})


def test_heatmap_shows_the_matrix_in_order() -> None:
    matrix = np.array([[1, 0.2, 0.4], [0.2, 1, 0.3], [0.4, 0.3, 1]])
    figure = figures.heatmap_figure(matrix, "Similarity", groups=["a", "a", "b"])
    axes = figure.axes[0]
    (image,) = axes.get_images()
    np.testing.assert_array_equal(image.get_array(), matrix)
    assert image.get_clim() == (0.2, 0.4)
    assert axes.get_title(loc="left") == "Similarity"
    assert [text.get_text() for text in axes.texts][:3] == ["1.00", "0.20", "0.40"]
    assert [list(np.asarray(edge.get_xdata())) for edge in axes.get_lines()][1] == [1.5, 1.5]
    assert len(axes.get_lines()) == 2


def test_heatmap_of_many_of_one_and_of_nan() -> None:
    many = figures.heatmap_figure(np.random.default_rng(0).random((200, 200)))
    assert len(many.axes[0].texts) == 0
    figures.heatmap_figure([[1.0]])
    figures.heatmap_figure(np.full((3, 3), 0.5))
    figures.heatmap_figure([[1.0, math.nan], [math.nan, 1.0]])


def test_heatmap_errors() -> None:
    with pytest.raises(FedquiltError, match="this one is 2 x 3"):
        figures.heatmap_figure(np.ones((2, 3)))
    with pytest.raises(FedquiltError, match="3 clients, but 2 group labels"):
        figures.heatmap_figure(np.eye(3), groups=[0, 1])


def test_client_bars_heights_and_baseline() -> None:
    values = [[10.0, None, 30.0], [20.0, None, 50.0]]
    figure = figures.client_bars_figure(values, baseline=[[5.0, 6.0, 7.0]])
    axes = figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([15, math.nan, 40], nan_ok=True)
    (levels,) = [group for group in axes.collections if "baseline" in str(group.get_label())]
    assert [segment[0][1] for segment in levels.get_segments()] == [5, 6, 7]
    assert axes.get_ylim()[0] == 0
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["personal model", "mean 27.5", "baseline (mean 6.0)"]


def test_client_bars_have_a_title_where_one_is_given() -> None:
    for title in ("", "Seed 3"):
        axes = figures.client_bars_figure([[1.0, 2.0]], title=title).axes[0]
        assert axes.get_title(loc="left") == title


def test_client_bars_with_a_number_as_baseline_and_errors() -> None:
    axes = figures.client_bars_figure([[1.0] * 40], baseline=50).axes[0]
    assert len(axes.collections[0].get_segments()) == 40
    with pytest.raises(FedquiltError, match="baseline has 1 clients, but there are 2"):
        figures.client_bars_figure([[1.0, 2.0]], baseline=[[1.0]])
    for bad in ([], [[]], [[1.0], [1.0, 2.0]]):
        with pytest.raises(FedquiltError, match="a value for each client"):
            figures.client_bars_figure(bad)


def test_similarity_rounds_share_a_scale() -> None:
    matrices = {
        20: np.full((3, 3), 0.9),
        1: np.full((3, 3), 0.1),
        **{i: np.eye(3) * 0.5 for i in range(2, 7)},
    }
    figure = figures.similarity_rounds_figure(matrices)
    panels = [axes for axes in figure.axes if axes.get_images()]
    assert [axes.get_title() for axes in panels] == [f"Round {i}" for i in (1, 2, 3, 4, 5, 6, 20)]
    assert {axes.get_images()[0].get_clim() for axes in panels} == {(0.0, 0.9)}
    np.testing.assert_array_equal(panels[-1].get_images()[0].get_array(), matrices[20])
    with pytest.raises(FedquiltError, match="no similarity"):
        figures.similarity_rounds_figure({})


def test_all_are_written_as_png(tmp_path: Path) -> None:
    convergence({"a": [records(1, 2), records(2, 3)]}, tmp_path / "a" / "convergence.png", "accuracy")
    heatmap(np.eye(4), tmp_path / "heatmap.png", "Title", [0, 0, 1, 1])
    client_bars([[1.0, 2.0]], tmp_path / "bars.png", baseline=1.5)
    similarity_rounds({1: np.eye(3), 2: np.eye(3)}, tmp_path / "rounds.png", "Title")
    written = sorted(tmp_path.rglob("*.*"))
    assert [path.name for path in written] == ["convergence.png", "bars.png", "heatmap.png", "rounds.png"]
    for path in written:
        assert path.read_bytes().startswith(PNG)
        assert path.stat().st_size > 5000
