"""The search: its trials, what they are worth, and who watches them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.training.loop import Training
from fedquilt.training.round import RoundRunner
from fedquilt.tuning.progress import SearchProgress
from fedquilt.tuning.search import WARM_UP
from fedquilt.tuning.trials import STARTUP
from support.searches import SMALL, search, told
from support.small_runs import own_graph


def test_the_defaults_come_first_and_nothing_worse_is_found() -> None:
    tuned = search(seeds=[0, 1])
    first = tuned.trials[0]
    assert first.settings == {"lr": 0.01, "weight_decay": 0.0, "dropout": 0.5}
    assert first.val == tuned.default_val
    assert tuned.best_val == max(t.val for t in tuned.trials if t.val is not None) >= first.val
    assert [t.number for t in tuned.trials] == list(range(1, 9))
    assert tuned.best_settings == {"hidden": 8, **tuned.best.settings}
    assert len({tuple(t.settings.items()) for t in tuned.trials}) == 8


def test_a_value_is_the_mean_validation_that_a_run_has() -> None:
    tuned = search(trials=3, seeds=[0, 1])
    for trial in tuned.trials:
        options = {**SMALL, "settings": {"hidden": 8, **trial.settings}}
        run = fedquilt.run("fedavg", own_graph(masks=True), seeds=[0, 1], **options)
        vals = [max(r["val"] for r in records) for records in run.records.values()]
        assert trial.val == sum(vals) / 2


def test_the_same_search_twice_is_the_same_and_another_seed_another() -> None:
    one, two, other = search(), search(), search(seeds=[5])
    assert told(one) == told(two)
    assert [t.settings for t in one.trials[1:]] != [t.settings for t in other.trials[1:]]


def test_what_is_fixed_is_not_searched() -> None:
    tuned = search(trials=2, settings={"hidden": 8, "lr": 0.02})
    assert [set(t.settings) for t in tuned.trials] == [{"weight_decay", "dropout"}] * 2
    assert tuned.best_settings["lr"] == 0.02
    epochs = search(trials=2, epochs=2, space={"epochs": [1, 2, 3], "lr": [0.01, 0.02]})
    assert [set(t.settings) for t in epochs.trials] == [{"lr"}] * 2


def test_a_space_without_the_defaults_begins_with_them_all_the_same() -> None:
    tuned = search(trials=4, space={"lr": {"low": 0.1, "high": 0.2}, "dropout": [0.0, 0.5]})
    assert tuned.trials[0].settings == {"dropout": 0.5}
    assert tuned.trials[0].val == search(trials=1).default_val
    assert all(0.1 <= t.settings["lr"] <= 0.2 for t in tuned.trials[1:])


def test_local_epochs_can_be_searched() -> None:
    tuned = search(trials=4, space={"epochs": {"low": 1, "high": 3}})
    assert {t.settings["epochs"] for t in tuned.trials} <= {1, 2, 3}
    assert isinstance(tuned.best_settings["epochs"], int)


def test_training_that_diverges_is_a_failed_trial_and_not_the_end() -> None:
    tuned = search(trials=6, space={"lr": [0.01, 1e30]}, rounds=6)
    failed = [t for t in tuned.trials if t.state == "failed"]
    assert failed
    assert all(t.val is None and "diverged" in (t.why or "") for t in failed)
    assert all(t.settings["lr"] == 1e30 for t in failed)
    assert tuned.best_settings["lr"] == 0.01


def test_settings_that_do_not_go_together_are_a_failed_trial() -> None:
    tuned = search(trials=5, method="fedsheafhn", settings={"hidden": 8, "width": 8}, space={"stalk": [3, 4]})
    assert {(t.settings["stalk"], t.state) for t in tuned.trials} == {(3, "failed"), (4, "done")}
    assert {t.rounds for t in tuned.trials} == {0, 4}


def test_memory_that_runs_out_is_a_failed_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RoundRunner.run

    def full(self: RoundRunner, round: int) -> Any:
        if self.method.settings.lr > 0.05:
            raise torch.OutOfMemoryError
        return whole(self, round)

    monkeypatch.setattr(RoundRunner, "run", full)
    tuned = search(trials=5, space={"lr": [0.01, 0.1]})
    assert {(t.settings["lr"], t.state) for t in tuned.trials} == {(0.01, "done"), (0.1, "failed")}


def test_when_nothing_can_be_trained_the_sentence_is_handed_on() -> None:
    with pytest.raises(FedquiltError, match=r"None of 2 trials could be trained; the last one: Training diverged.*\.$"):
        search(trials=2, settings={"hidden": 8, "lr": 1e30}, rounds=6)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "majority", "settings": {}}, "Method 'majority' has no settings"),
        ({"settings": {"lr": 0.1, "weight_decay": 0, "dropout": 0, "hidden": 8}}, "is left to search"),
        ({"trials": 0}, "at least one trial, not 0"),
        ({"timeout": 0.0}, "The timeout is 0 seconds"),
        ({"method": "fedavgg"}, "did you mean 'fedavg'"),
        ({"space": {"lrr": [1]}}, "did you mean 'lr'"),
        ({"metric": "f2"}, "There is no metric 'f2'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(options: dict[str, Any], says: str, elsewhere: Any) -> None:
    with pytest.raises(FedquiltError, match=says):
        search(into="folder", **options)
    assert not list(elsewhere.iterdir())


def test_a_split_on_which_nobody_can_be_validated_is_refused_at_once(elsewhere: Any) -> None:
    graph = own_graph(classes=2, masks=True)
    assert graph.masks is not None
    graph.y[graph.masks["val"]] = 0
    with pytest.raises(FedquiltError, match="on which auc is defined"):
        search(dataset=graph, metric="auc", into="folder")
    assert not list(elsewhere.iterdir())


# -- trials that lag behind --------------------------------------------------------------------------------------------

LAGGING: dict[str, Any] = {"rounds": 9, "trials": 14, "space": {"lr": [0.01, 0.02, 0.03, 0.05, 1e-6]}}


def test_a_trial_that_lags_behind_is_stopped_at_once() -> None:
    rounds: list[tuple[int, float]] = []
    tuned = search(**LAGGING, watch=lambda s: rounds.append((s.trial, s.share)) if s.ended is None else None)
    stopped = [t for t in tuned.trials if t.state == "stopped"]
    assert stopped
    for trial in stopped:
        assert trial.number > STARTUP
        assert 9 / WARM_UP < trial.rounds < 9
        assert max(share for number, share in rounds if number == trial.number) == trial.rounds / 9
        assert trial.val is None


def test_rounds_in_blocks_stop_in_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = search(**LAGGING)

    def blocks(self: Training, until: int) -> None:
        first = self.progress.next_round
        for one in [self._train_one_round(round) for round in range(first, min(until, first + 5))]:
            self._record(one, 0.0)
            self.on_round(self.records[-1])

    monkeypatch.setattr(Training, "_train_some_rounds", blocks)
    assert told(search(**LAGGING)) == told(one_by_one)
    assert any(t.state == "stopped" for t in one_by_one.trials)


def test_rounds_without_evaluation_and_seeds_that_lose_patience_are_no_trouble() -> None:
    tuned = search(trials=9, rounds=9, evaluate_every=4, seeds=[0, 1], patience=2)
    assert tuned.best_val >= (tuned.default_val or 0)


# -- who watches -------------------------------------------------------------------------------------------------------


def test_a_watcher_sees_each_round_and_each_end() -> None:
    seen: list[SearchProgress] = []
    tuned = search(trials=3, seeds=[0, 1], watch=seen.append)
    ends = [s for s in seen if s.ended is not None]
    assert [s.ended for s in ends] == tuned.trials
    assert [s.share for s in seen if s.trial == 1 and s.ended is None] == [n / 8 for n in range(9)]
    assert math.isnan(seen[0].best)
    assert math.isnan(seen[0].left)
    assert ends[-1].left == 0.0
    assert ends[-1].best == tuned.best_val
    assert seen[8].val == pytest.approx(tuned.trials[0].val)


def test_no_trial_starts_when_time_is_out_but_the_first() -> None:
    assert len(search(timeout=1e-9).trials) == 1
