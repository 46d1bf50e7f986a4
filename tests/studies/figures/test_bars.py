"""Bar charts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from matplotlib.container import BarContainer

from support.made_up_studies import HEAD, drawn, key, made_up, panels


def test_bars_have_a_hatch_each_and_diamonds(tmp_path: Path) -> None:
    text = HEAD + "figures: [{kind: bars, x: epochs}, {kind: bars, x: method, by: epochs}]"
    figures = drawn(made_up(tmp_path, text, printed={"Local": 70.0}))
    (axes,) = panels(figures["bars-1"])
    patches = [bar for group in axes.containers if isinstance(group, BarContainer) for bar in group]
    assert len(patches) == 9
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in patches}) == 3
    assert sum(line.get_label() == "_published" for line in axes.get_lines()) == 3
    assert key(figures["bars-1"]) == ["Local", "FedAvg", "FED-PUB", "published"]
    assert key(figures["bars-2"])[:2] == ["epochs = 1", "epochs = 3"]
