from __future__ import annotations

from pathlib import Path

import numpy as np

from fedquilt.reports.read_run import read_run
from fedquilt.reports.run_figures import client_order, draw_convergence, draw_diagnostics, draw_run
from fedquilt.runs.folder import RunFolder
from support.page_runs import write_run


def test_a_run_gets_a_figure_for_all_that_it_has(tmp_path: Path) -> None:
    paths = draw_run(read_run(write_run(tmp_path / "run")), tmp_path / "figures", ".svg")
    assert [path.name for path in paths] == [
        "convergence.svg",
        "clients.svg",
        "diagnostics.svg",
        "similarity.svg",
        "similarity-rounds.svg",
    ]
    assert all(path.is_file() for path in paths)
    paths = draw_run(read_run(write_run(tmp_path / "plain", similarity=False)), tmp_path / "few", ".svg")
    assert [path.name for path in paths] == ["convergence.svg", "clients.svg"]


def test_diagnostics_are_drawn_where_records_have_them(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=0, similarity=False, done=False)
    place = RunFolder(folder).seed(0)
    for number in range(3):
        place.append({"round": number, "diagnostics": {"effective_clients": 4.0 - number, "weight_norm": None}})
    (path,) = draw_diagnostics(read_run(folder), tmp_path / "diagnostics.svg")
    text = path.read_text()
    assert "Effective clients" in text
    assert "Weight norm" in text
    none = read_run(write_run(tmp_path / "none", similarity=False))
    assert draw_diagnostics(none, tmp_path / "none.svg") == []


def test_the_correlation_with_labels_is_drawn_where_similarities_are_stored(tmp_path: Path) -> None:
    (path,) = draw_diagnostics(read_run(write_run(tmp_path / "run")), tmp_path / "diagnostics.svg")
    assert "Correlation with labels" in path.read_text()
    no_classes = read_run(write_run(tmp_path / "other", classes=None))
    assert draw_diagnostics(no_classes, tmp_path / "none.svg") == []


def test_a_method_of_one_round_is_a_level_line_beside_the_others(tmp_path: Path) -> None:
    runs = [
        read_run(write_run(tmp_path / name, name, rounds=rounds)) for name, rounds in (("fedavg", 9), ("majority", 1))
    ]
    (path,) = draw_convergence(runs, tmp_path / "convergence.svg")
    assert all(title in path.read_text() for title in ("FedAvg", "Majority"))


def test_without_an_evaluated_round_there_is_no_figure(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", rounds=0, done=False, similarity=False))
    assert draw_run(run, tmp_path / "figures") == []


def test_clients_of_one_family_stand_together() -> None:
    # Nodes 0-559 are of family 0, 560-979 of family 1, the rest of family 2.
    cut = {"nodes": np.array([1200, 1201, 0, 600, 601, 5, 1]), "sizes": np.array([2, 1, 3, 1])}
    order, groups = client_order({"dataset": "patchwork", "partition": "disjoint"}, cut)
    assert order is not None
    assert order.tolist() == [1, 3, 2, 0]
    assert groups == [0, 0, 1, 2]
    ten = {"nodes": np.arange(10), "sizes": np.ones(10, dtype=int)}
    assert client_order({"dataset": "cora", "partition": "overlapping"}, ten) == (None, [0] * 5 + [1] * 5)
    assert client_order({"dataset": "cora", "partition": "disjoint"}, ten) == (None, None)


def test_of_overlapping_clients_some_of_whom_were_held_out_each_stays_with_its_part() -> None:
    cut = {
        "nodes": np.arange(6),
        "sizes": np.ones(6, dtype=int),
        "numbers": np.array([0, 3, 4, 5, 6, 9, 1, 2, 7, 8]),  # the last four were held out
    }
    assert client_order({"dataset": "cora", "partition": "overlapping"}, cut) == (None, [0, 0, 0, 1, 1, 1])
