"""Pages, names and text of figures."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from fedquilt.studies.figures.layout import level_name, plain, split_pages
from support.made_up_studies import HEAD, drawn, made_up, panels


def test_many_panels_go_to_several_figures(tmp_path: Path) -> None:
    text = HEAD.replace("epochs: [1, 3, 10]", f"epochs: {list(range(1, 15))}") + "figures: [{kind: convergence}]"
    figures = drawn(made_up(tmp_path, text, pick="Local"))
    assert [len(panels(figures[f"convergence-{n}"])) for n in (1, 2)] == [7, 7]
    assert "convergence-3" not in figures
    assert [len(page) for page in split_pages(list(range(26)))] == [9, 9, 8]
    assert not list(split_pages([]))


def test_words() -> None:
    assert level_name("clients", "10") == "10 clients"
    assert level_name("edge_noise", "0.1") == "edge noise = 0.1"
    assert level_name("dataset", "Cora") == "Cora"
    assert plain("a\n b") == "a b"
