"""Settings of tasks: defaults, what the user gives, and what is refused."""

from __future__ import annotations

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.tasks.base import find_task
from fedquilt.tasks.link import LinkSettings
from fedquilt.tasks.settings import NoTaskSettings, read_task_settings


def test_settings_are_defaults_and_what_is_given() -> None:
    assert read_task_settings("link", LinkSettings, {}) == LinkSettings()
    assert find_task("link", {"decoder": "mlp", "width": 8}).settings == LinkSettings(decoder="mlp", width=8)
    assert find_task("node-classification").settings == NoTaskSettings()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"decoders": "mlp"}, "There is no setting of the task link 'decoders'; did you mean 'decoder'"),
        ({"decoder": "distance"}, "The setting decoder='distance' of the task link"),
        ({"width": 1}, "The setting width=1 of the task link"),
        ({"disjoint": 1.0}, "The setting disjoint=1.0 of the task link"),
        ({"split": "50/20/20"}, "edges are split by three percentages that sum to 100"),
        ({"split": "5fold"}, "edges are split by three percentages that sum to 100"),
        ({"split": "a"}, "is not three percentages"),
        ({"width": "\0"}, "The setting width=.* of the task link is not possible"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_sentence(given: dict[str, object], why: str) -> None:
    with pytest.raises(FedquiltError, match=why):
        find_task("link", given)


def test_a_task_without_settings_takes_none() -> None:
    with pytest.raises(FedquiltError, match="The task node-classification has no settings, so 'width' cannot be set"):
        find_task("node-classification", {"width": 3})
