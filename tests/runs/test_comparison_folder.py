from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.comparison_folder import COMPARISON, configs_of, is_comparison, runs_of


def begin(folder: Path, *methods: str) -> None:
    """Make the run folders of a comparison as far as `is_comparison` looks at them."""
    for method in methods:
        (folder / method).mkdir(parents=True)
        (folder / method / "config.json").write_text("{}")


def test_runs_are_in_the_order_of_the_table_and_only_those_that_started(tmp_path: Path) -> None:
    begin(tmp_path, "fedavg", "quilt")
    configs = [{"method": name} for name in ("quilt", "local", "fedavg")]
    (tmp_path / COMPARISON).write_text(json.dumps({"configs": configs}))
    assert configs_of(tmp_path) == configs
    assert runs_of(tmp_path) == [tmp_path / "quilt", tmp_path / "fedavg"]
    assert is_comparison(tmp_path)
    assert not is_comparison(tmp_path / "quilt")
    assert not is_comparison(tmp_path / "nothing")


def test_a_folder_of_runs_without_compare_json_is_a_comparison_by_name(tmp_path: Path) -> None:
    assert not is_comparison(tmp_path)
    begin(tmp_path, "quilt", "fedavg")
    assert is_comparison(tmp_path)
    assert configs_of(tmp_path) == []
    assert runs_of(tmp_path) == [tmp_path / "fedavg", tmp_path / "quilt"]


@pytest.mark.parametrize("text", ["", "[]", '{"configs": [{}]}', '{"configs": [{"method": 1}]}'])
def test_a_damaged_compare_json_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / COMPARISON).write_text(text)
    with pytest.raises(FedquiltError, match=r"cannot be read; resume the runs in .* one by one"):
        configs_of(tmp_path)
