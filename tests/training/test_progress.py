"""Progress: the best round's models are copies, taken where the device says so, and summaries are plain JSON."""

from __future__ import annotations

import json
import math

import pytest
import torch

from fedquilt.devices import offload
from fedquilt.training.progress import BestRound, Progress, none_if_nan
from support.clients import numbers


def test_models_and_similarity_are_copied() -> None:
    best, models, similarity = BestRound(), {"w": numbers(0, 3, 2)}, numbers(1, 3, 3)
    best.copy_models(models, similarity, None)
    kept = best.models["w"]
    expected = models["w"].clone()
    models["w"].zero_()
    similarity.zero_()
    assert torch.equal(kept, expected)
    assert best.similarity is not None
    assert best.similarity.all()
    best.copy_models(models, None, None)
    assert best.models["w"] is kept  # the same memory
    assert not kept.any()


@pytest.mark.parametrize("better", [True, False])
def test_the_device_decides_without_a_read(better: bool) -> None:
    best, first, second = BestRound(), numbers(0, 3, 2), numbers(1, 3, 2)
    best.copy_models({"w": first}, None, torch.tensor(False))  # the first models are kept in any case
    assert torch.equal(best.models["w"], first)
    best.copy_models({"w": second}, None, torch.tensor(better))
    assert torch.equal(best.models["w"], second if better else first)


def test_models_that_are_offloaded_stay_so() -> None:
    best, model = BestRound(), offload.offloaded_copy(numbers(0, 600, 4))
    best.copy_models({"w": model}, None, None)
    assert offload.is_offloaded(best.models["w"])
    assert torch.equal(best.models["w"], model)


def test_a_summary_is_json_and_says_none_for_what_is_undefined() -> None:
    progress = Progress(next_round=4, seconds=2.0, best=BestRound(1, 50.0, math.nan, [None, 50.0]))
    summary = json.loads(json.dumps(progress.summary(3, "accuracy"), allow_nan=False))
    assert (summary["seed"], summary["best_round"], summary["val"], summary["test"]) == (3, 1, 50.0, None)
    assert (summary["rounds_run"], summary["seconds_per_round"]) == (4, 0.5)
    assert Progress().summary(0, None)["seconds_per_round"] == 0.0
    assert none_if_nan(0.0) == 0.0
