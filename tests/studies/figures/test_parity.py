"""Statistics of graphs against the published ones."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from support.made_up_studies import HEAD, drawn, made_up, panels


def test_facts_are_held_against_what_is_printed(tmp_path: Path) -> None:
    text = HEAD.replace("{test: Accuracy (%)}", "{nodes: Nodes}") + "better: {nodes: neither}\n"
    figure = drawn(made_up(tmp_path, text, printed={"Local": 300.0}))["overview"]
    (axes,) = panels(figure)
    assert axes.get_xlabel() == "Published"
    assert len(axes.get_lines()) == 1 + 3  # the diagonal, and a point for each printed number
