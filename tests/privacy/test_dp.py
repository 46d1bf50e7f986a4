"""Protected uploads: norms, noise, what is replaced, what is known, and whose random numbers they are."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedquilt.messages.message import Factored, Message, Sparse, TensorSpec, dense
from fedquilt.privacy.dp import DpConfig, Privatiser, secure_normal
from support.federations import assert_same

CROSSINGS = (
    TensorSpec("model.*", "Weights."),
    TensorSpec("embedding", "An embedding."),
    TensorSpec("train_nodes", "How many.", count=True),
    TensorSpec("whole", "Whole numbers."),
)
TINY = 1e-12  # so little noise that one sees the clipped upload


def privatiser(clip: float = 1.0, noise: float = 1.0, seed: int | None = 7, **more: Any) -> Privatiser:
    made = Privatiser(DpConfig(clip=clip, noise=max(noise, 1e-3), **more), 10, seed)
    made.noise = noise  # also less than can be asked for
    return made


def message(clients: int = 3, seed: int = 0) -> Message:
    rng = torch.Generator().manual_seed(seed)
    return {
        "model.w": torch.randn(clients, 4, 5, generator=rng),
        "train_nodes": torch.tensor([40.0, 7.0, 11.0])[:clients],
        "embedding": torch.randn(clients, 6, generator=rng),
    }


def rows(upload: Message, *names: str) -> torch.Tensor:
    """What leaves a client as one vector: [n, P]."""
    return torch.cat([dense(upload[name]).flatten(1) for name in names], dim=1)


# -- clipping ----------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.floats(0.01, 100.0), st.integers(0, 100), st.floats(1e-3, 1e6))
def test_all_tensors_of_an_upload_together_have_the_norm(clip: float, seed: int, scale: float) -> None:
    before = message(seed=seed)
    before = {n: dense(v) * scale for n, v in before.items()}
    after = privatiser(clip, TINY).applied(before, CROSSINGS, 0, [0, 1, 2])
    old, new = (rows(m, "model.w", "embedding").double().numpy() for m in (before, after))
    for mine, theirs in zip(old, new, strict=True):
        assert np.linalg.norm(theirs) <= clip
        expected = mine * min(1.0, clip / np.linalg.norm(mine))
        np.testing.assert_allclose(theirs, expected, rtol=1e-4, atol=1e-5 * clip)


def test_what_is_no_number_counts_as_no_change() -> None:
    upload: Message = {"model.w": torch.tensor([[3.0, math.nan, math.inf, -math.inf, 4.0]])}
    after = dense(privatiser(100.0, TINY).applied(upload, CROSSINGS, 0, [0])["model.w"])
    assert torch.allclose(after, torch.tensor([[3.0, 0.0, 0.0, 0.0, 4.0]]), atol=1e-4)


def test_an_upload_of_zeros_stays_one() -> None:
    after = privatiser(1.0, TINY).applied({"model.w": torch.zeros(2, 9)}, CROSSINGS, 0, [0, 1])
    assert float(dense(after["model.w"]).abs().max()) < 1e-9


def test_given_tensors_are_not_changed() -> None:
    before = message()
    kept = {name: dense(value).clone() for name, value in before.items()}
    privatiser().applied(before, CROSSINGS, 0, [0, 1, 2], known={"model.w": torch.ones(4, 5)})
    assert_same(before, kept)


# -- noise -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [5, None])
@pytest.mark.parametrize(("clip", "noise"), [(1.0, 1.0), (0.1, 3.0), (20.0, 0.5)])
def test_noise_is_normal_with_the_deviation_noise_times_clip_on_every_entry(
    seed: int | None, clip: float, noise: float
) -> None:
    count = 200_000
    upload: Message = {"model.w": torch.zeros(1, count - 1000), "embedding": torch.zeros(1, 1000)}
    after = rows(privatiser(clip, noise, seed).applied(upload, CROSSINGS, 3, [1]), "model.w", "embedding").double()
    sd = noise * clip
    assert float(after.std()) == pytest.approx(sd, rel=5 / math.sqrt(2 * count))
    assert abs(float(after.mean())) < 5 * sd / math.sqrt(count)
    assert float((after.abs() < sd).double().mean()) == pytest.approx(0.6827, abs=0.006)
    assert float(after[:, -1000:].std()) == pytest.approx(sd, rel=5 / math.sqrt(2000))


def test_noise_is_that_of_the_seed_the_client_and_the_round_alone() -> None:
    def sent(senders: list[int], round: int = 2, seed: int = 7) -> torch.Tensor:
        upload: Message = {"model.w": torch.zeros(len(senders), 50)}
        return dense(privatiser(seed=seed).applied(upload, CROSSINGS, round, senders)["model.w"])[senders.index(3)]

    first = sent([3])
    assert torch.equal(first, sent([0, 3, 4]))
    others = [sent([3], round=1), sent([3], seed=8)]
    both = dense(privatiser().applied({"model.w": torch.zeros(2, 50)}, CROSSINGS, 2, [3, 4])["model.w"])
    for other in (*others, both[1]):
        assert not torch.isclose(first, other).any()


@pytest.mark.parametrize("seed", [5, None])
@pytest.mark.parametrize("change", [0.0, 0.3, 1e-9])
def test_what_leaves_is_on_the_same_grid_whatever_changed(seed: int | None, change: float) -> None:
    """Rounding happens after the noise, so that the last bits of a number do not tell what it was added to."""
    clip, noise = 0.7, 3.0
    upload: Message = {"model.w": torch.full((1, 5000), change)}
    after = dense(privatiser(clip, noise, seed).applied(upload, CROSSINGS, 0, [0])["model.w"]).double()
    grid = 2.0 ** (math.floor(math.log2(noise * clip)) - 18)
    assert torch.equal((after / grid).round(), after / grid)
    assert float((after / grid % 2).mean()) == pytest.approx(0.5, abs=0.05)  # and all of it is used


def test_a_cohort_of_many_equals_many_of_one() -> None:
    upload, known = message(), {"model.w": torch.randn(3, 4, 5), "embedding": torch.randn(6)}
    whole = privatiser().applied(upload, CROSSINGS, 4, [2, 5, 6], known)
    for place, client in enumerate([2, 5, 6]):
        mine = {"model.w": known["model.w"][place : place + 1], "embedding": known["embedding"]}
        alone = {name: dense(value)[place : place + 1] for name, value in upload.items()}
        assert_same(
            privatiser().applied(alone, CROSSINGS, 4, [client], mine),
            {name: dense(value)[place : place + 1] for name, value in whole.items()},
        )


def test_names_and_not_their_order_decide() -> None:
    upload = message()
    turned = dict(reversed(upload.items()))
    one, other = (privatiser().applied(m, CROSSINGS, 0, [0, 1, 2]) for m in (upload, turned))
    assert list(one) == list(upload)
    assert_same(one, {name: other[name] for name in one})


def test_real_sites_draw_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    urandom = os.urandom
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or urandom(count))
    upload: Message = {"model.w": torch.zeros(1, 100)}
    one, other = (dense(privatiser(seed=None).applied(upload, CROSSINGS, 0)["model.w"]) for _ in range(2))
    assert not torch.isclose(one, other).any()
    assert sum(asked) == 2 * 100 * 32


def test_secure_numbers_are_independent_standard_normal() -> None:
    drawn = secure_normal(2**18 + 5).double().numpy()
    assert drawn.shape == (2**18 + 5,)
    assert drawn.std() == pytest.approx(1.0, abs=0.01)
    assert (drawn**4).mean() == pytest.approx(3.0, abs=0.1)  # of a normal distribution, not of a sum of a few others
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01
    assert np.isfinite(drawn).all()


# -- what is sent ------------------------------------------------------------------------------------


def test_counts_do_not_leave() -> None:
    upload = message()
    after = privatiser().applied(upload, CROSSINGS, 0, [0, 1, 2])
    assert torch.equal(dense(after["train_nodes"]), torch.ones(3))
    alone: Message = {"train_nodes": dense(upload["train_nodes"])}
    assert torch.equal(dense(privatiser().applied(alone, CROSSINGS, 0, [0, 1, 2])["train_nodes"]), torch.ones(3))
    # nor do they use up the norm
    without = {name: value for name, value in upload.items() if name != "train_nodes"}
    other = privatiser().applied(without, CROSSINGS, 0, [0, 1, 2])
    assert torch.equal(dense(after["model.w"]), dense(other["model.w"]))


def test_sparse_tensors_are_sent_dense() -> None:
    after = privatiser().applied({"model.w": Sparse(torch.zeros(1, 40))}, CROSSINGS, 0, [0])["model.w"]
    assert isinstance(after, torch.Tensor)
    assert after.count_nonzero() == 40


def test_whole_numbers_become_real_ones() -> None:
    after = dense(privatiser(100.0, TINY).applied({"whole": torch.tensor([[3, 4]])}, CROSSINGS, 0, [0])["whole"])
    assert torch.allclose(after, torch.tensor([[3.0, 4.0]]), atol=1e-4)


# -- what is known -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["shared", "each", "sparse", "factored"])
def test_only_the_difference_from_what_the_server_sent_is_clipped(form: str) -> None:
    base = 50.0 + torch.arange(12.0).view(3, 4)
    known = {
        "shared": base[0],
        "each": base,
        "sparse": Sparse(base),
        "factored": Factored(torch.eye(3), base, torch.zeros(3), torch.zeros(3, 4)),
    }[form]
    if form == "shared":
        base = base[:1].expand(3, 4)
    change = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    after = dense(
        privatiser(0.5, TINY).applied({"model.w": base + change}, CROSSINGS, 0, [0, 1, 2], {"model.w": known})[
            "model.w"
        ]
    )
    np.testing.assert_allclose((after - base).norm(dim=1), [0.5] * 3, rtol=1e-3)
    np.testing.assert_allclose(after - base, 0.5 * change / change.norm(dim=1, keepdim=True), atol=1e-4)


def test_what_was_sent_in_another_shape_is_left_alone() -> None:
    upload: Message = {"model.w": torch.ones(2, 3)}
    with_other = privatiser().applied(
        upload, CROSSINGS, 0, [0, 1], {"model.w": torch.ones(2, 4, 3), "x": torch.ones(3)}
    )
    assert_same(with_other, privatiser().applied(upload, CROSSINGS, 0, [0, 1]))


# -- how it is asked for -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"clip": 1.0},
        {"clip": 0.0, "noise": 1.0},
        {"clip": math.inf, "noise": 1.0},
        {"clip": 1.0, "noise": 0.0},
        {"clip": 1.0, "noise": math.nan},
        {"clip": 1.0, "noise": 1e-4},
        {"clip": 1e-10, "noise": 1.0},
        {"clip": 1.0, "epsilon": 1e7},
        {"clip": 1.0, "noise": 1.0, "delta": 0.0},
        {"clip": 1.0, "noise": 1.0, "delta": 1.0},
        {"clip": 1.0, "epsilon": -1.0},
        {"clip": 1.0, "noise": 1.0, "sigma": 1.0},
    ],
    ids=str,
)
def test_wrong_configurations_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DpConfig(**wrong)


def test_figures_stay_at_home_unless_asked_for() -> None:
    assert not DpConfig(clip=1.0, noise=1.0).report
    assert DpConfig(clip=1.0, noise=1.0, report=True).report


def test_a_budget_decides_how_much_noise_and_how_many_uploads() -> None:
    pytest.importorskip("dp_accounting", reason="needs the extra dp")
    made = Privatiser(DpConfig(clip=1.0, epsilon=4.0), rounds=20)
    assert made.spent(20) == pytest.approx(4.0)
    assert made.affords(1000) == 20
    assert privatiser().affords(1000) == 1000  # no budget
