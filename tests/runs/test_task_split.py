"""The split of edges as an option of a run."""

from __future__ import annotations

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig
from fedquilt.runs.task_split import with_task_split


def resolved(**options: object) -> tuple[str | None, dict[str, object]]:
    found = with_task_split(RunConfig.build({"task": "link", **options}))
    return found.split, dict(found.task_settings)


def test_the_option_and_the_setting_are_one() -> None:
    assert resolved() == ("70/10/20", {})
    assert resolved(split="70/10/20") == ("70/10/20", {})
    assert resolved(split="80/10/10") == ("80/10/10", {"split": "80/10/10"})
    assert resolved(task_settings={"split": "80/10/10"}) == ("80/10/10", {"split": "80/10/10"})
    assert resolved(split="80/10/10", task_settings={"split": "80/10/10"}) == ("80/10/10", {"split": "80/10/10"})


def test_other_tasks_split_nodes() -> None:
    config = RunConfig.build({"split": "40/30/30"})
    assert with_task_split(config) is config


def test_wrong_splits_are_refused() -> None:
    with pytest.raises(FedquiltError, match="The edges' shares are given twice, as split=80/10/10 and as the task's"):
        resolved(split="80/10/10", task_settings={"split": "60/20/20"})
    with pytest.raises(FedquiltError, match="edges are split by three percentages"):
        resolved(split="5fold")
