from __future__ import annotations

import pytest

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.reports.compared_runs import ComparedRuns
from support.small_runs import SMALL


@pytest.fixture(scope="module")
def compared() -> ComparedRuns:
    return fedquilt.compare(["local", "fedavg"], **SMALL)


def test_it_is_a_sequence_of_runs_which_are_found_by_method_too(compared: ComparedRuns) -> None:
    assert len(compared) == 2
    assert [run.result["method"] for run in compared] == ["local", "fedavg"]
    assert compared[0] is compared["local"] is next(iter(compared))
    assert compared[1:] == [compared[-1]]
    with pytest.raises(FedquiltError, match="There is no run of the method 'fedag'; did you mean 'fedavg'"):
        compared["fedag"]


def test_the_table_has_a_row_for_each_method(compared: ComparedRuns) -> None:
    table = compared.table
    assert list(table.index) == ["local", "fedavg"]
    assert table.loc["fedavg", "test_mean"] == compared["fedavg"].result["test_mean"]
    assert table.loc["local", "upload_mb_per_round"] == 0.0
    assert table.loc["fedavg", "upload_mb_per_round"] > 0.0


def test_it_prints_and_draws_itself(compared: ComparedRuns) -> None:
    text = str(compared)
    assert "Method" in text
    assert f"{compared[1].result['test_mean']:.2f}" in text
    assert repr(compared).startswith("<ComparedRuns: <Run local on ")
    assert compared._repr_html_().count("<tr>") == 3
    drawn = [line.get_label() for line in compared.plot().axes[0].get_lines()]
    assert {"Local", "FedAvg"} <= set(drawn)
