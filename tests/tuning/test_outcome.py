"""The best trial, and the config file with its settings."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fedquilt.runs.config import RunConfig
from fedquilt.runs.read_config import read_config
from fedquilt.tuning.outcome import MARK, Trial, Tuned, best_of, best_val, write_config


@given(st.lists(st.one_of(st.none(), st.sampled_from([70.0, 71.5, 80.0])), min_size=1))
def test_of_equal_trials_the_earlier_is_the_best(vals: list[float | None]) -> None:
    best = best_of([Trial(n, {}, val, "done") for n, val in enumerate(vals)])
    done = [val for val in vals if val is not None]
    assert (best is None) == (not done)
    if best is not None:
        assert best.val == max(done)
        assert best.number == vals.index(max(done))


def test_without_a_finished_trial_there_is_no_best_value() -> None:
    assert math.isnan(best_val([Trial(1, {}, None, "failed")]))
    assert best_val([Trial(1, {}, None, "failed"), Trial(2, {}, 3.0, "done")]) == 3.0
    assert Tuned({}, 3.0, None, [Trial(1, {}, None, "failed"), Trial(2, {"lr": 1}, 3.0, "done")]).best.number == 2


def test_the_config_file_has_the_best_settings_and_says_how_they_were_found(tmp_path: Path) -> None:
    config = RunConfig.build({"method": "fedavg", "dataset": "cora", "rounds": 3, "epochs": 2, "patience": 4})
    trials = [Trial(1, {"lr": 0.1}, 70.0, "done"), Trial(2, {"lr": 0.2, "epochs": 3}, 71.5, "done")]
    path = tmp_path / "best.yaml"
    write_config(path, config, trials[1].settings, trials, {"torch": "9"})
    first, second, third = path.read_text().splitlines()[:3]
    assert first == f"{MARK}, by validation only; train with it: fedquilt run --config best.yaml"
    assert second == "# Validation None 71.50, with the defaults 70.00: seed 0, best round; trial 2 of 2."
    assert third == "# torch 9"
    values = read_config(path)
    assert values["settings"] == {"lr": 0.2, "epochs": 3}
    assert "epochs" not in values  # the setting says it
    assert (values["patience"], values["rounds"]) == (4, 3)
    assert "participation" not in values  # the default
    RunConfig.build(values)
