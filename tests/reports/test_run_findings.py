from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.reports.read_run import StoredRun, read_run
from fedquilt.reports.run_findings import differences, draw_findings, read_findings, read_pair, views_of
from fedquilt.runs.folder import RunFolder
from support.page_runs import write_run

FOUND = {"coefficients": np.ones((4, 3)), "class_means": np.ones((4, 2, 5)), "class_counts": np.ones((4, 2), dtype=int)}


def run_with(folder: Path, found: dict[str, np.ndarray] = FOUND, **more: Any) -> StoredRun:
    """A run whose last seed has findings."""
    write_run(folder, **more)
    if found:
        last = RunFolder.open(folder).seeds()[-1]
        RunFolder.open(folder).seed(last).save_arrays("findings", found)
    return read_run(folder)


def test_the_first_seed_with_findings_is_read(tmp_path: Path) -> None:
    found = read_findings(run_with(tmp_path / "run", seeds=(0, 3)))
    assert found is not None
    assert found.seed == 3
    assert read_findings(run_with(tmp_path / "none", {})) is None


def test_runs_are_called_by_their_options_their_seeds_or_their_folders(tmp_path: Path) -> None:
    def pair(**more: Any) -> list[str]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        return differences(*read_pair(run_with(folder / "one", seeds=(0,)), run_with(folder / "two", **more)))

    assert pair(seeds=(4,)) == ["seed=0", "seed=4"]
    assert pair(seeds=(0,), rounds=5) == ["rounds=12", "rounds=5"]
    assert [Path(name).name for name in pair(seeds=(0,))] == ["one", "two"]


def test_runs_that_do_not_compare_are_refused(tmp_path: Path) -> None:
    one = run_with(tmp_path / "one")
    with pytest.raises(FedquiltError, match="--against takes a run of the same method"):
        read_pair(one, run_with(tmp_path / "other", method="fedavg"))
    with pytest.raises(FedquiltError, match="has no findings to draw"):
        read_pair(one, run_with(tmp_path / "none", {}))
    wide = {**FOUND, "class_means": np.ones((4, 2, 9))}
    with pytest.raises(FedquiltError, match="do not compare: 2 classes in 5 dimensions, and 2 classes in 9"):
        read_pair(one, run_with(tmp_path / "wide", wide))


def test_each_finding_is_a_figure_and_a_note_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_findings(run_with(tmp_path / "run"))
    assert found is not None
    monkeypatch.setattr("fedquilt.reports.findings.can_tsne", lambda: False)
    paths, notes = draw_findings([found], tmp_path, ".svg")
    assert [path.name for path in paths] == ["filters.svg", "class-means.svg"]
    (note,) = notes
    assert note.startswith(f"{tmp_path / 'class-means.svg'} shows principal components")
    assert draw_findings([], tmp_path) == ([], [])


def test_the_views_of_clients_are_drawn_where_the_first_run_has_some(tmp_path: Path) -> None:
    new, old = FOUND | {"views": np.full((4, 2), 0.5)}, {"coefficients": np.ones((4, 3))}
    one, two = read_pair(run_with(tmp_path / "new", new), run_with(tmp_path / "old", old))
    assert views_of(two) is None
    found = views_of(one)
    assert found is not None
    assert found.clients.tolist() == new["views"].tolist()
    for runs, names in (
        ([one], ["views.svg"]),
        ([one, two], ["views.svg"]),
        ([two, one], []),
        ([one, one], ["views.svg"]),
    ):
        paths, _ = draw_findings(runs, tmp_path, ".svg")
        assert [path.name for path in paths if path.stem == "views"] == names
