"""The folder of a comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.comparison_folder import COMPARISON, configs_of, is_comparison, runs_of


def made(folder: Path, *methods: str) -> None:
    for method in methods:
        (folder / method).mkdir(parents=True)
        (folder / method / "config.json").write_text("{}")


def test_runs_come_in_the_order_of_compare_json(tmp_path: Path) -> None:
    made(tmp_path, "fedavg", "quilt")
    assert is_comparison(tmp_path)
    assert not is_comparison(tmp_path / "quilt")
    assert not is_comparison(tmp_path / "nothing")
    assert runs_of(tmp_path) == [tmp_path / "fedavg", tmp_path / "quilt"]  # without the file, by name
    assert configs_of(tmp_path) == []
    configs = [{"method": name} for name in ("quilt", "local", "fedavg")]
    (tmp_path / COMPARISON).write_text(json.dumps({"configs": configs}))
    assert configs_of(tmp_path) == configs
    assert runs_of(tmp_path) == [tmp_path / "quilt", tmp_path / "fedavg"]  # local did not start


@pytest.mark.parametrize("text", ["{", "[]", '{"configs": [{}]}', '{"configs": 3}'])
def test_a_damaged_compare_json_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / COMPARISON).write_text(text)
    with pytest.raises(FedquiltError, match=r"cannot be read; resume the runs in .* one by one"):
        configs_of(tmp_path)
