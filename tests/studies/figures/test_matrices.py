"""Matrices between clients."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from support.made_up_studies import HEAD, drawn, made_up, panels


def test_similarities_a_panel_a_round_and_factor(tmp_path: Path) -> None:
    text = HEAD + "figures: [{kind: similarity, rounds: [0, -1, 3], where: {epochs: 1}}]"
    said: list[str] = []
    figure = drawn(made_up(tmp_path, text), warn=said.append)["similarity-1"]
    titles = [axes.get_title() for axes in panels(figure)]
    assert len(titles) == 2 + 4 + 2  # FedAvg's cells have two factors
    assert titles[:2] == ["Local\nround 1", "Local\nbest round (5)"]
    assert "FedAvg\nfactor 2, best round (5)" in titles
    assert any("no similarity is kept at round 4" in sentence for sentence in said)


def test_communities_beside_what_the_graph_says(tmp_path: Path) -> None:
    text = HEAD.replace("partition: natural", "partition: disjoint, clients: 6")
    summary = made_up(tmp_path, text + "figures: [{kind: communities, where: {epochs: 1}}]")
    titles = [axes.get_title() for axes in panels(drawn(summary)["communities-1"])]
    assert titles[:2] == ["(a) Missing edges", "(b) Similarity of labels"]
    assert titles[2] == "(c) Local\nbest round (5)"
    assert len(titles) == 6


def test_communities_without_the_graph(tmp_path: Path) -> None:
    summary = made_up(tmp_path, HEAD + "figures: [{kind: communities, where: {epochs: 1}}]")
    for entry in summary.entries:
        for cell in entry.cells.values():
            cell.facts["config"]["dataset"] = "nowhere"
    said: list[str] = []
    titles = [axes.get_title() for axes in panels(drawn(summary, warn=said.append)["communities-1"])]
    assert titles[0] == "(a) Local\nbest round (5)"
    assert len(said) == 1
    assert "not drawn" in said[0]
