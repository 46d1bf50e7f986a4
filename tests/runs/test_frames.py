"""Tables of a run. Run's own properties are held here against its records."""

from __future__ import annotations

import sys

import pytest

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.runs.frames import client_rows, frame, history_rows, html_table
from support.small_runs import SMALL


@pytest.fixture(scope="module")
def run() -> fedquilt.Run:
    return fedquilt.run("fedavg", seeds=[0, 3], evaluate_every=2, **SMALL | {"rounds": 3})


def test_history_has_a_row_for_each_seed_and_round(run: fedquilt.Run) -> None:
    table = run.history
    assert list(zip(table["seed"], table["round"], strict=True)) == [(s, r) for s in (0, 3) for r in range(3)]
    first = run.records[0][0]
    assert table["bytes_up"][0] == sum(first["bytes_up"].values())
    evaluated = [record.get("test") for seed in (0, 3) for record in run.records[seed]]
    assert [None if value != value else value for value in table["test"]] == evaluated


def test_clients_have_a_row_for_each_seed_and_client_at_the_best_round(run: fedquilt.Run) -> None:
    table = run.clients
    assert list(zip(table["seed"], table["client"], strict=True)) == [(s, m) for s in (0, 3) for m in range(3)]
    for seed in run.result["seeds"]:
        own = table[table["seed"] == seed["seed"]]
        assert own["test"].mean() == pytest.approx(seed["test"])
        assert set(own["round"]) == {seed["best_round"]}


def test_a_run_draws_and_shows_itself(run: fedquilt.Run) -> None:
    left, right = run.plot().axes
    assert [line.get_label() for line in left.get_lines()][:2] == ["validation", "test"]
    assert len(right.patches) == 3
    shown = run._repr_html_()
    assert shown.startswith("<table><caption>Run fedavg on patchwork, 3 clients: test accuracy ")
    assert shown.count("<tr>") == 3


def test_without_pandas_a_sentence_says_what_to_install(run: fedquilt.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FedquiltError, match=r"pip install 'fedquilt\[pandas\]'"):
        assert run.history
    assert history_rows(run.records)
    assert client_rows(run.result, run.records)


def test_rows_may_lack_columns() -> None:
    rows = [{"a": 1}, {"a": 2, "b": 0.5}, {"a": None, "b": "<x>"}]
    assert list(frame(rows).columns) == ["a", "b"]
    assert "<td></td><td>&lt;x&gt;</td>" in html_table(rows, "c")
