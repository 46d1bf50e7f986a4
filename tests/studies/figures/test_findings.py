"""Findings side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from support.made_up_studies import HEAD, drawn, made_up


def test_findings_are_laid_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedquilt.reports.findings.can_tsne", lambda: False)
    said: list[str] = []
    text = HEAD + (
        "figures: [{kind: filters, where: {epochs: 1, method: [FedAvg, Local]}}, {kind: class-means, where: {epochs: 1}}]"
    )
    figures = drawn(made_up(tmp_path, text), warn=said.append)
    titles = [part.get_suptitle() for part in figures["filters-1"].subfigs]
    assert titles == ["FedAvg", "Local"]  # in the order in which the figure names them
    assert [axes.get_title(loc="left") for axes in figures["class-means-1"].axes] == ["Local", "FedAvg", "FED-PUB"]
    assert "principal components" in said[0]


def test_what_is_not_kept_is_said(tmp_path: Path) -> None:
    summary = made_up(tmp_path, HEAD + "figures: [{kind: filters}, {kind: similarity}, {kind: convergence}]", done=2)
    for path in tmp_path.rglob("*.npz"):
        path.unlink()
    said: list[str] = []
    assert list(drawn(summary, warn=said.append)) == ["overview", "convergence-1"]
    assert [sentence.split(" are drawn")[0].split(" is drawn")[0] for sentence in said] == [
        "No filters",
        "No similarity of clients",
    ]
