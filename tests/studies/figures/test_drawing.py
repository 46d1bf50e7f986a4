"""All figures of a study, written to files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from fedquilt.studies.figures.drawing import draw_figures
from support.made_up_studies import HEAD, drawn, made_up


def test_what_is_not_done_is_not_drawn(tmp_path: Path) -> None:
    every = ("convergence", "similarity", "communities", "filters", "class-means")
    kinds = [f"  - {{kind: {kind}}}" for kind in every]
    kinds += ["  - {kind: lines, x: epochs}", "  - {kind: bars, x: epochs}"]
    summary = made_up(tmp_path, HEAD + "figures:\n" + "\n".join(kinds), done=0, printed={"Local": 70.0})
    assert draw_figures(summary, tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()


def test_hostile_labels_are_written_as_they_are(tmp_path: Path) -> None:
    labels = ["_a $x_1$ 100%", r"a\frac$b$ & {_}", "$\\"]
    text = HEAD.replace("Accuracy (%)", '"$ (%) $"')
    for name, label in zip(("Local", "FedAvg", "FED-PUB"), labels, strict=True):
        text = text.replace(f"label: {name},", f"label: {json.dumps(label)},")
    kinds = "{kind: lines, x: epochs}, {kind: bars, x: method, by: epochs}, {kind: similarity, where: {epochs: 1}}"
    summary = made_up(tmp_path, text + f"figures: [{kinds}]", done=9)
    assert len(draw_figures(summary, tmp_path, ("svg",))) == 4
    written = (tmp_path / "lines-1.svg").read_text()
    assert all(label.replace("&", "&amp;") in written for label in labels)


def test_every_figure_in_every_format_and_the_same_each_time(tmp_path: Path) -> None:
    summary = made_up(tmp_path, HEAD + "figures: [{kind: lines, x: epochs}]", done=9)
    paths = draw_figures(summary, tmp_path / "figures")
    assert {path.name for path in paths} == {f"{n}.{k}" for n in ("overview", "lines-1") for k in ("png", "pdf", "svg")}
    assert (tmp_path / "figures" / "overview.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figures" / "overview.pdf").read_bytes().startswith(b"%PDF")
    again = draw_figures(summary, tmp_path / "again", ("svg",))
    assert all(path.read_bytes() == (tmp_path / "figures" / path.name).read_bytes() for path in again)


def test_all_text_can_be_read_in_print(tmp_path: Path) -> None:
    kinds = "[{kind: convergence}, {kind: lines, x: epochs}, {kind: bars, x: epochs}, {kind: similarity}]"
    summary = made_up(tmp_path, HEAD + f"figures: {kinds}", printed={"Local": 70.0})
    for name, figure in drawn(summary).items():
        from matplotlib.text import Text

        small = [t.get_text() for t in figure.findobj(Text) if t.get_text().strip() and t.get_fontsize() < 7]
        assert not small, name
        assert 3.3 <= figure.get_figwidth() <= 7.3 or name.startswith("similarity")
