from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.reports.gains import Gains, client_gains, gains_figure, gains_table, write_gains
from fedquilt.reports.read_run import read_runs
from fedquilt.reports.tables import to_markdown


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gains") / "compared"
    small = {"partition": "natural", "rounds": 2, "seeds": [0, 1], "split": "5/45/50", "settings": {"hidden": 4}}
    fedquilt.compare(["majority", "local", "fedavg"], "patchwork", out=out, **small)
    return out


def test_gains_are_a_methods_test_less_that_of_local(folder: Path, tmp_path: Path) -> None:
    runs = read_runs(folder)[0]
    found = write_gains(runs, tmp_path)
    tests = {run.method: np.array([seed.summary["clients_test"] for seed in run.seeds if seed.summary]) for run in runs}
    assert list(found.gains) == ["fedavg"]
    assert np.array_equal(found.gains["fedavg"], tests["fedavg"] - tests["local"])
    assert found.labels.sum() == 70  # one in twenty of 1,400
    mean, error = found.of_clients("fedavg")
    difference = tests["fedavg"] - tests["local"]
    assert mean == pytest.approx(difference.mean(0))
    assert error == pytest.approx(difference.std(0, ddof=1) / np.sqrt(2))
    of_all, its_error = found.of_all("fedavg")
    assert of_all == pytest.approx(difference.mean())
    assert its_error == pytest.approx(difference.mean(1).std(ddof=1) / np.sqrt(2))
    assert "| all | 70 |" in (tmp_path / "gains.md").read_text()
    assert (tmp_path / "gains.png").stat().st_size > 10_000


def test_without_local_there_is_nothing_to_compare_with(folder: Path) -> None:
    runs = [run for run in read_runs(folder)[0] if run.method != "local"]
    with pytest.raises(FedquiltError, match="measured from 'local'"):
        client_gains(runs)


def test_a_client_without_a_test_node_has_no_gain_and_neither_wins_nor_loses() -> None:
    found = Gains(
        "accuracy", np.array([3.0, 2, 1]), np.array([[50, 60, np.nan]]), {"quilt": np.array([[5, -1, np.nan]])}
    )
    text = to_markdown(gains_table(found))
    assert "| 2 | 1 | - | - |" in text
    assert "| gain / lose |  |  | 1 / 1 |" in text
    labels = [text.get_text() for text in gains_figure(found).axes[0].texts]
    assert labels == ["worse off than alone"]
