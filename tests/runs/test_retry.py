"""A seed that diverged is trained once more with smaller steps: what changes, and that it is said, kept and resumed."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.errors import DivergedError
from fedquilt.methods.settings import AdamSettings, NoSettings
from fedquilt.runs.config import RunConfig
from fedquilt.runs.folder import RunFolder
from fedquilt.runs.retry import in_words, may_retry, smaller_steps
from support.federations import assert_same, without_seconds
from support.small_runs import stop_after

pytestmark = pytest.mark.usefixtures("elsewhere")

# With a learning rate of 1 FedSSA diverges here, with 0.1 it does not.
OPTIONS: dict[str, Any] = {"dataset": "patchwork", "clients": 3, "rounds": 4, "device": "cpu"}
WILD = {"lr": 1.0}
CALM = {"lr": 0.1, "filter_lr": 0.005000000000000001, "clip": 1.0}


def test_all_rates_are_a_tenth_and_gradients_are_clipped() -> None:
    assert smaller_steps(AdamSettings(lr=0.5)) == {"lr": 0.05, "clip": 1.0}
    assert smaller_steps(AdamSettings(clip=0.25))["clip"] == 0.25
    assert smaller_steps(NoSettings()) == {}
    assert in_words({"lr": 0.1 * 0.01, "clip": 1.0}) == "lr=0.001 clip=1"


def test_there_is_no_second_try_where_it_is_unwanted_spends_a_budget_or_changes_nothing() -> None:
    config = RunConfig.build({})
    assert may_retry(config, AdamSettings())
    assert not may_retry(config, NoSettings())
    assert not may_retry(RunConfig.build({"on_divergence": "stop"}), AdamSettings())
    assert not may_retry(RunConfig.build({"dp_clip": 1.0, "dp_noise": 1.0}), AdamSettings())


def test_a_seed_that_diverges_is_trained_again_and_everything_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DivergedError) as caught:
        fedquilt.run("fedssa", settings=WILD, on_divergence="stop", **OPTIONS)
    assert caught.value.__cause__ is not caught.value
    caplog.set_level(logging.WARNING)
    run = fedquilt.run("fedssa", settings=WILD, out=tmp_path / "out", **OPTIONS)
    words = "lr=0.1 filter_lr=0.005 clip=1"
    assert f"Seed 0 is trained once more from the start, with {words}." in caplog.text
    assert run.result["seeds"][0]["retried"] == words
    summary = json.loads((tmp_path / "out" / "seed-0" / "summary.json").read_text())
    assert (summary["retried"], summary["diverged"][:17]) == (words, "Training diverged")
    # The models say with which settings they were trained; they are those of a run that asks for them.
    assert {name: run.facts[0]["settings"][name] for name in CALM} == CALM
    asked = fedquilt.run("fedssa", settings=CALM, **OPTIONS)
    assert "retried" not in asked.result["seeds"][0]
    assert without_seconds(asked.records[0]) == without_seconds(run.records[0])
    assert_same(asked.models[0], run.models[0])
    again = fedquilt.load_run(tmp_path / "out")
    assert again.result == run.result


def test_a_second_try_that_was_stopped_is_resumed(tmp_path: Path) -> None:
    whole = fedquilt.run("fedssa", settings=WILD, **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run(
            "fedssa", settings=WILD, out=tmp_path / "out", watch=stop_after(0, 2), checkpoint_seconds=0, **OPTIONS
        )
    folder = RunFolder(tmp_path / "out").seed(0)
    assert folder.retry is not None
    assert len(folder.records()) == 3
    resumed = fedquilt.resume(tmp_path / "out")
    assert without_seconds(resumed.records[0]) == without_seconds(whole.records[0])
    assert resumed.result["seeds"][0]["retried"]


def test_a_seed_that_diverges_twice_fails_and_names_both(tmp_path: Path) -> None:
    with pytest.raises(
        DivergedError, match=r"\(seed 0 was trained twice, also with lr=0.001 filter_lr=100 clip=1\)\.$"
    ):
        fedquilt.run("fedssa", settings={"filter_lr": 1000.0}, out=tmp_path / "out", **OPTIONS)


def test_a_damaged_note_of_a_second_try_is_one_sentence(tmp_path: Path) -> None:
    fedquilt.run("fedssa", settings=WILD, out=tmp_path / "out", **OPTIONS)
    path = tmp_path / "out" / "seed-0" / "retry.json"
    path.write_text(path.read_text().replace("0.1,", "0.2,"))
    with pytest.raises(fedquilt.FedquiltError, match=r"retry\.json is damaged; put it back"):
        _ = RunFolder(tmp_path / "out").seed(0).retry
