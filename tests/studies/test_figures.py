"""The figures of a study, on made-up cells: what is drawn, how often, and what is left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from fedquilt.studies.figures.page import heading, pages, plain
from matplotlib.container import BarContainer, ErrorbarContainer

from fedquilt.runs.folder import SeedFolder
from fedquilt.studies.cells import Cell, expand
from fedquilt.studies.figures.drawing import draw_figures, study_figures
from fedquilt.studies.figures.lines import scale_of
from fedquilt.studies.gather import summarise
from fedquilt.studies.published import Published
from fedquilt.studies.spec import read_study
from fedquilt.studies.store import CellStore
from fedquilt.studies.summary import Summary

ROUNDS = 6
HEAD = """
title: "Ours, Table 1: a study"
claim: It works.
seeds: 2
options: {dataset: patchwork, partition: natural, rounds: 6}
rows: [method]
columns: [epochs]
values: {test: Accuracy (%)}
axes:
  method:
    - {label: Local, method: local}
    - {label: FedAvg, method: fedavg}
    - {label: FED-PUB, method: fedpub}
  epochs: [1, 3, 10]
"""


def keep(cell: Cell, into: Path, number: int) -> None:
    """A cell as `run_cell` would leave it, with made-up numbers."""
    folder = CellStore(into).folder(cell)
    seed = SeedFolder(folder / f"seed-{cell.seed}")
    level = 60.0 + number % 17
    for r in range(ROUNDS):
        seed.append({"round": r, "val": level + r, "test": level + r if r != 2 else None})
    rng = np.random.default_rng(number)
    square = rng.random((6, 6))
    shape = np.stack([square, square.T]) if cell.config.method == "fedavg" else square
    seed.save_arrays("similarity", {"0": shape, "-1": shape})
    seed.save_arrays(
        "findings",
        {
            "coefficients": rng.random((6, 4)),
            "class_means": rng.random((6, 3, 5)),
            "class_counts": np.full((6, 3), 4),
        },
    )
    facts = {
        "config": {k: v for k, v in cell.config.model_dump().items() if k != "data"},
        "measures": {"test": level + ROUNDS, "val": level, "best_round": 5.0, "nodes": 100.0 * (1 + number % 9)},
        "finished": 1.0,
        "device": "CPU",
        "versions": {"fedquilt": "0", "torch": "0"},
    }
    CellStore(into).finish(cell, facts, keep_models=True)


def made_up(
    tmp_path: Path, text: str, done: int | None = None, printed: dict[str, float] | None = None, pick: str = ""
) -> Summary:
    """A study of which the first `done` cells are kept, or those whose label has `pick`; `printed` by method."""
    (tmp_path / "mine.yaml").write_text(text)
    study = read_study(tmp_path / "mine.yaml", "fedpub-mine")
    cells, missing = expand(study)
    for number, cell in enumerate(cells[: len(cells) if done is None else done]):
        if pick in cell.label:
            keep(cell, tmp_path / "kept", number)
    published = [
        Published(at, value, printed[at["method"]], 0.1)
        for at in study.places()
        for value in study.values
        if printed and at["method"] in printed
    ]
    return summarise(study, cells, missing, published, CellStore(tmp_path / "kept"))


def drawn(summary: Summary, **more) -> dict:
    return dict(study_figures(summary, **more))


def panels(figure) -> list:
    return [axes for axes in figure.axes if axes.axison and not axes.get_label().startswith("<colorbar")]


def named(axes) -> list[str]:
    return [str(line.get_label()) for line in axes.get_lines() if not str(line.get_label()).startswith("_")]


def key(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_convergence_has_a_panel_a_place_and_a_line_a_method(tmp_path):
    figure = drawn(made_up(tmp_path, HEAD + "figures: [{kind: convergence}]"))["convergence-1"]
    assert [axes.get_title(loc="left") for axes in panels(figure)] == ["epochs = 1", "epochs = 3", "epochs = 10"]
    colours = []
    for axes in panels(figure):
        assert named(axes) == ["Local", "FedAvg", "FED-PUB"]
        lines = axes.get_lines()
        colours.append([line.get_color() for line in lines])
        assert len({line.get_marker() for line in lines}) == 3
        assert lines[0].get_xdata().tolist() == [1, 2, 4, 5, 6]  # rounds count from 1; the third was not evaluated
        assert lines[2].get_linewidth() > lines[0].get_linewidth()  # the paper's own method
        assert len(axes.collections) == 3  # a band each, over two seeds
    assert colours[0] == colours[1] == colours[2]
    assert key(figure) == ["Local", "FedAvg", "FED-PUB"]


def test_a_method_keeps_its_colour_where_others_are_not_done(tmp_path):
    summary = made_up(tmp_path, HEAD + "figures: [{kind: convergence}]", done=7)  # 9 places, seed by seed
    figure = drawn(summary)["convergence-1"]
    first, last = panels(figure)[0], panels(figure)[-1]
    assert named(first) == ["Local", "FedAvg", "FED-PUB"]
    assert named(last) == ["Local", "FedAvg"]
    assert [line.get_color() for line in last.get_lines()] == [line.get_color() for line in first.get_lines()][:2]
    assert not first.collections  # one seed has no band


def test_many_panels_go_to_several_figures(tmp_path):
    text = HEAD.replace("epochs: [1, 3, 10]", f"epochs: {list(range(1, 15))}") + "figures: [{kind: convergence}]"
    figures = drawn(made_up(tmp_path, text, pick="Local"))
    assert [len(panels(figures[f"convergence-{n}"])) for n in (1, 2)] == [7, 7]
    assert "convergence-3" not in figures
    assert [len(page) for page in pages(list(range(26)))] == [9, 9, 8]
    assert not list(pages([]))


def test_lines_have_whiskers_and_what_is_printed(tmp_path):
    text = HEAD + "figures: [{kind: lines, x: epochs, log: true}]"
    figure = drawn(made_up(tmp_path, text, printed={"FED-PUB": 77.0}))["lines-1"]
    (axes,) = panels(figure)
    assert len([c for c in axes.containers if isinstance(c, ErrorbarContainer)]) == 3
    (published,) = [line for line in axes.get_lines() if line.get_label() == "_published"]
    assert published.get_ydata().tolist() == [77.0] * 3
    assert published.get_markerfacecolor() == "white"
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "3", "10"]
    assert key(figure) == ["Local", "FedAvg", "FED-PUB", "published"]
    assert axes.get_xlabel() == "Epochs"


def test_where_levels_stand(tmp_path):
    assert scale_of(["1", "2", "10"], "k", False).places == {"1": 1.0, "2": 2.0, "10": 10.0}
    assert scale_of(["10%", "50%"], "share", False).places == {"10%": 0.0, "50%": 1.0}
    assert scale_of(["0.001", "0.01", "1"], "mu", False).places == {"0.001": 0.0, "0.01": 1.0, "1": 2.0}  # no room
    assert scale_of(["0.001", "0.01", "1"], "mu", True).log
    assert not scale_of(["0", "1"], "mu", True).log
    named = scale_of(["lambda=0", "lambda=0.5"], "setting", False)
    assert (named.ticks, named.name) == (["0", "0.5"], "lambda")


def test_what_has_no_number_takes_no_room(tmp_path):
    text = HEAD.replace("values: {", "values: {nodes: Nodes, ")
    summary = made_up(tmp_path, text + "figures: [{kind: bars, x: epochs}, {kind: lines, x: epochs}]")
    entries = [replace(e, by_seed={}) if e.at["method"] == "Local" else e for e in summary.entries]
    figures = drawn(replace(summary, entries=entries))
    assert key(figures["bars-1"]) == key(figures["lines-1"]) == ["FedAvg", "FED-PUB"]


def test_bars_have_a_hatch_each_and_diamonds(tmp_path):
    text = HEAD + "figures: [{kind: bars, x: epochs}, {kind: bars, x: method, by: epochs}]"
    figures = drawn(made_up(tmp_path, text, printed={"Local": 70.0}))
    (axes,) = panels(figures["bars-1"])
    patches = [bar for group in axes.containers if isinstance(group, BarContainer) for bar in group]
    assert len(patches) == 9
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in patches}) == 3
    assert sum(line.get_label() == "_published" for line in axes.get_lines()) == 3
    assert key(figures["bars-1"]) == ["Local", "FedAvg", "FED-PUB", "published"]
    assert key(figures["bars-2"])[:2] == ["epochs = 1", "epochs = 3"]


def test_where_narrows_a_figure(tmp_path):
    text = HEAD + "figures: [{kind: convergence, where: {epochs: 3, method: [Local, FedAvg]}}]"
    (axes,) = panels(drawn(made_up(tmp_path, text))["convergence-1"])
    assert named(axes) == ["Local", "FedAvg"]
    assert axes.get_title(loc="left") == ""  # what holds for all is no title


def test_similarities_a_panel_a_round_and_factor(tmp_path):
    text = HEAD + "figures: [{kind: similarity, rounds: [0, -1, 3], where: {epochs: 1}}]"
    said: list[str] = []
    figure = drawn(made_up(tmp_path, text), aside=said.append)["similarity-1"]
    titles = [axes.get_title() for axes in panels(figure)]
    assert len(titles) == 2 + 4 + 2  # FedAvg's cells have two factors
    assert titles[:2] == ["Local\nround 1", "Local\nbest round (5)"]
    assert "FedAvg\nfactor 2, best round (5)" in titles
    assert any("no similarity is kept at round 4" in sentence for sentence in said)


def test_communities_beside_what_the_graph_says(tmp_path):
    text = HEAD.replace("partition: natural", "partition: disjoint, clients: 6")
    summary = made_up(tmp_path, text + "figures: [{kind: communities, where: {epochs: 1}}]")
    titles = [axes.get_title() for axes in panels(drawn(summary)["communities-1"])]
    assert titles[:2] == ["(a) Missing edges", "(b) Similarity of labels"]
    assert titles[2] == "(c) Local\nbest round (5)"
    assert len(titles) == 6


def test_communities_without_the_graph(tmp_path):
    summary = made_up(tmp_path, HEAD + "figures: [{kind: communities, where: {epochs: 1}}]")
    for entry in summary.entries:
        for kept in entry.cells.values():
            kept.facts["config"]["dataset"] = "nowhere"
    said: list[str] = []
    titles = [axes.get_title() for axes in panels(drawn(summary, aside=said.append)["communities-1"])]
    assert titles[0] == "(a) Local\nbest round (5)"
    assert len(said) == 1
    assert "not drawn" in said[0]


def test_findings_are_laid_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setattr("fedquilt.reports.findings.can_tsne", lambda: False)
    said: list[str] = []
    text = HEAD + (
        "figures: [{kind: filters, where: {epochs: 1, method: [FedAvg, Local]}}, {kind: class-means, where: {epochs: 1}}]"
    )
    figures = drawn(made_up(tmp_path, text), aside=said.append)
    titles = [part.get_suptitle() for part in figures["filters-1"].subfigs]
    assert titles == ["FedAvg", "Local"]  # in the order in which the figure names them
    assert [axes.get_title(loc="left") for axes in figures["class-means-1"].axes] == ["Local", "FedAvg", "FED-PUB"]
    assert "principal components" in said[0]


def test_what_is_not_kept_is_said(tmp_path):
    summary = made_up(tmp_path, HEAD + "figures: [{kind: filters}, {kind: similarity}, {kind: convergence}]", done=2)
    for path in tmp_path.rglob("*.npz"):
        path.unlink()
    said: list[str] = []
    assert list(drawn(summary, aside=said.append)) == ["overview", "convergence-1"]
    assert [sentence.split(" are drawn")[0].split(" is drawn")[0] for sentence in said] == [
        "No filters",
        "No similarity of clients",
    ]


def test_the_overview_shows_rows_and_what_is_printed(tmp_path):
    figure = drawn(made_up(tmp_path, HEAD, printed={"Local": 70.0, "FED-PUB": 80.0}))["overview"]
    assert [axes.get_title(loc="left") for axes in panels(figure)] == ["epochs = 1", "epochs = 3", "epochs = 10"]
    first = panels(figure)[0]
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["Local", "FedAvg", "FED-PUB"]
    assert [tick.get_fontweight() for tick in first.get_yticklabels()] == ["normal", "normal", "bold"]
    labels = [str(line.get_label()) for line in first.get_lines()]
    assert labels.count("_published") == 2
    assert labels.count("_reference") == 1
    assert len([c for c in first.containers if isinstance(c, ErrorbarContainer)]) == 3
    assert "published" in key(figure)


def test_the_overview_tells_the_last_axis_apart_by_colour(tmp_path):
    text = HEAD.replace("columns: [epochs]", "columns: [participation, epochs]") + "  participation: [0.5, 1.0]\n"
    figure = drawn(made_up(tmp_path, text))["overview"]
    assert [axes.get_title(loc="left") for axes in panels(figure)] == ["participation = 0.5", "participation = 1.0"]
    assert key(figure)[:3] == ["epochs = 1", "epochs = 3", "epochs = 10"]


def test_the_overview_marks_what_is_far_off_and_never_hides_a_winner(tmp_path):
    summary = made_up(tmp_path, HEAD)
    far = {"Local": 1.0, "FED-PUB": 99.0}
    entries = [replace(e, by_seed={0: far.get(e.at["method"], 70.0)}) for e in summary.entries]
    many = [replace(e, at={**e.at}, by_seed={0: 70.0 + n}) for n, e in enumerate(summary.entries * 3)]
    figure = drawn(replace(summary, entries=[*entries, *many]))["overview"]
    first = panels(figure)[0]
    low, high = first.get_xlim()
    assert low > 1.0
    assert high > 99.0
    assert [line.get_marker() for line in first.get_lines() if line.get_label() == "_far"] == ["<"]
    assert "beyond the axis" in key(figure)


def test_facts_are_held_against_what_is_printed(tmp_path):
    text = HEAD.replace("{test: Accuracy (%)}", "{nodes: Nodes}") + "better: {nodes: neither}\n"
    figure = drawn(made_up(tmp_path, text, printed={"Local": 300.0}))["overview"]
    (axes,) = panels(figure)
    assert axes.get_xlabel() == "Published"
    assert len(axes.get_lines()) == 1 + 3  # the diagonal, and a point for each printed number


def test_what_is_not_done_is_not_drawn(tmp_path):
    every = ("convergence", "similarity", "communities", "filters", "class-means")
    kinds = [f"  - {{kind: {kind}}}" for kind in every]
    kinds += ["  - {kind: lines, x: epochs}", "  - {kind: bars, x: epochs}"]
    summary = made_up(tmp_path, HEAD + "figures:\n" + "\n".join(kinds), done=0, printed={"Local": 70.0})
    assert draw_figures(summary, tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()


def test_hostile_labels_are_written_as_they_are(tmp_path):
    labels = ["_a $x_1$ 100%", r"a\frac$b$ & {_}", "$\\"]
    text = HEAD.replace("Accuracy (%)", '"$ (%) $"')
    for name, label in zip(("Local", "FedAvg", "FED-PUB"), labels, strict=True):
        text = text.replace(f"label: {name},", f"label: {json.dumps(label)},")
    kinds = "{kind: lines, x: epochs}, {kind: bars, x: method, by: epochs}, {kind: similarity, where: {epochs: 1}}"
    summary = made_up(tmp_path, text + f"figures: [{kinds}]", done=9)
    assert len(draw_figures(summary, tmp_path, ("svg",))) == 4
    written = (tmp_path / "lines-1.svg").read_text()
    assert all(label.replace("&", "&amp;") in written for label in labels)


def test_every_figure_in_every_format_and_the_same_each_time(tmp_path):
    summary = made_up(tmp_path, HEAD + "figures: [{kind: lines, x: epochs}]", done=9)
    paths = draw_figures(summary, tmp_path / "figures")
    assert {path.name for path in paths} == {f"{n}.{k}" for n in ("overview", "lines-1") for k in ("png", "pdf", "svg")}
    assert (tmp_path / "figures" / "overview.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figures" / "overview.pdf").read_bytes().startswith(b"%PDF")
    again = draw_figures(summary, tmp_path / "again", ("svg",))
    assert all(path.read_bytes() == (tmp_path / "figures" / path.name).read_bytes() for path in again)


def test_all_text_can_be_read_in_print(tmp_path):
    kinds = "[{kind: convergence}, {kind: lines, x: epochs}, {kind: bars, x: epochs}, {kind: similarity}]"
    summary = made_up(tmp_path, HEAD + f"figures: {kinds}", printed={"Local": 70.0})
    for name, figure in drawn(summary).items():
        from matplotlib.text import Text

        small = [t.get_text() for t in figure.findobj(Text) if t.get_text().strip() and t.get_fontsize() < 7]
        assert not small, name
        assert 3.3 <= figure.get_figwidth() <= 7.3 or name.startswith("similarity")


def test_words():
    assert heading("clients", "10") == "10 clients"
    assert heading("edge_noise", "0.1") == "edge noise = 0.1"
    assert heading("dataset", "Cora") == "Cora"
    assert plain("a\n b") == "a b"
