"""The settings of a run: local epochs that the run, the method or the dataset says.

What holds for every method's settings is in test_contract.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.methods.base import RunContext
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.majority import Majority
from fedquilt.methods.settings import NoSettings, resolve_settings
from support.federations import make_task, ragged_clients
from support.thoroughness import EPOCHS, Thorough


def context(epochs: int = 2) -> RunContext:
    return make_task(ragged_clients(), epochs=epochs)


def test_epochs_are_the_runs_then_the_methods_then_the_datasets() -> None:
    for method, given, told, used in (
        (FedAvg, {}, None, 2),
        (Thorough, {}, None, EPOCHS),
        (Thorough, {}, 5, 5),
        (Thorough, {"epochs": 7}, None, 7),
        (Thorough, {"epochs": "7"}, 7, 7),
    ):
        settings, resolved = resolve_settings(method, context(told or 2), given, told)
        assert settings.epochs == resolved.epochs == used
        assert resolved == context(used)


def test_what_is_resolved_and_told_again_is_the_same() -> None:
    settings, resolved = resolve_settings(Thorough, context(), {"hidden": 8}, None)
    assert settings.lr == pytest.approx(0.01 / EPOCHS)  # which follows the epochs that are used
    assert resolve_settings(Thorough, resolved, {"hidden": 8}, resolved.epochs) == (settings, resolved)


def test_epochs_told_twice_must_agree() -> None:
    with pytest.raises(FedquiltError) as caught:
        resolve_settings(Thorough, context(), {"epochs": 7}, 5)
    assert str(caught.value) == (
        "Local epochs are given twice, as epochs=5 and as the setting epochs=7; leave one of them out."
    )


def test_a_method_without_epochs_leaves_the_task_as_it_is() -> None:
    assert resolve_settings(Majority, context(4), {}, 4) == (NoSettings(), context(4))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"hidden": 10**18},
            "hidden=1000000000000000000 of method 'fedavg' is not possible: it is over 1,000,000.",
        ),
        ({"hidden": 10**5000}, "is not possible: it has more than 64 bits."),
        ({"lr": float("nan")}, "The setting lr=nan of method 'fedavg' is not possible: it is not a finite number."),
        ({"model": "a\0"}, "it has a NUL character"),
        ({"model": b"gcn"}, "YAML reads it as a bytes"),
        ({"model": ["x" * 3000]}, "is not possible: input should be a valid string"),
    ],
)
def test_values_that_no_setting_has_are_one_short_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(FedquiltError) as caught:
        resolve_settings(FedAvg, context(), given, None)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400
