from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from fedquilt.errors import FedquiltError
from fedquilt.reports import figures
from fedquilt.reports.figures import heatmap
from fedquilt.reports.style import class_colours, class_label, colour, dash

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(("suffix", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("PNG", PNG)])
def test_the_suffix_decides_and_the_same_figure_is_the_same_file(tmp_path: Path, suffix: str, start: bytes) -> None:
    paths = [tmp_path / f"{i}.{suffix}" for i in range(2)]
    for path in paths:
        heatmap(np.eye(2), path)
    assert paths[0].read_bytes().startswith(start)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("name", ["figure.exe", "figure"])
def test_an_unknown_suffix(tmp_path: Path, name: str) -> None:
    with pytest.raises(FedquiltError, match=r"should end in \.png"):
        heatmap(np.eye(2), tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_failed_drawing_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        heatmap(np.eye(2), path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.png"]


def test_the_users_own_style_neither_leaks_in_nor_is_changed() -> None:
    with matplotlib.rc_context({"axes.facecolor": "red"}):
        figure = figures.heatmap_figure(np.eye(2))
        assert matplotlib.rcParams["axes.facecolor"] == "red"
    assert figure.axes[0].get_facecolor() == (1, 1, 1, 1)


def test_28_lines_and_15_classes_can_be_told_apart() -> None:
    assert len({(colour(i), str(dash(i))) for i in range(28)}) == 28
    assert len({tuple(shade) for shade in class_colours(15)}) == 15


def test_a_class_has_its_name_in_a_legend() -> None:
    names = ("ill", "cost $5 or $6", "_hidden")
    assert [class_label(n, names) for n in range(4)] == ["ill", "cost \\$5 or \\$6", "\u200a_hidden", "3"]
    assert class_label(2, None) == "2"
