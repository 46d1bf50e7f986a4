"""Malicious clients: who they are, what they send, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, Sparse, TensorSpec, dense
from fedquilt.scenarios.attacks import EMBEDDING, Attack, check_attackable
from fedquilt.training.client_sampling import some_clients
from fedquilt.training.plan import Plan
from support.federations import FIRST_QUILT, assert_same, make_method, make_training, ragged_clients, without_seconds
from support.small_runs import stop_after

SMALL: dict[str, Any] = {"clients": 5, "rounds": 4, "device": "cpu", "settings": {"hidden": 8}}


SENDERS = torch.tensor([1, 3, 4])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def attack(kind: Any = "gaussian", scale: float = 5.0, malicious: tuple[int, ...] = (0, 3), seed: int = 7) -> Attack:
    return Attack(kind, scale, frozenset(malicious), seed)


def message() -> Message:
    rng = torch.Generator().manual_seed(0)
    return {"model.w": torch.randn(3, 2, generator=rng), EMBEDDING: torch.randn(3, 6, generator=rng)}


# -- what --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["same-value", "gaussian"])
def test_only_the_embedding_of_malicious_clients_changes(kind: str) -> None:
    before = message()
    kept = {name: value.clone() for name, value in before.items()}
    after = attack(kind).applied(before, (), 2, SENDERS, {})
    assert_same(before, kept)
    assert after["model.w"] is before["model.w"]
    assert torch.equal(after[EMBEDDING][[0, 2]], before[EMBEDDING][[0, 2]])
    lie = after[EMBEDDING][1]
    assert not torch.equal(lie, before[EMBEDDING][1])
    assert len(lie.unique()) == (1 if kind == "same-value" else 6)


@pytest.mark.parametrize("kind", ["same-value", "gaussian"])
def test_a_lie_depends_on_seed_round_and_client_alone(kind: str) -> None:
    def lie(senders: list[int], round: int, **changes: Any) -> torch.Tensor:
        uploads: Message = {EMBEDDING: torch.zeros(len(senders), 6)}
        return attack(kind, **changes).applied(uploads, (), round, torch.tensor(senders), {})[EMBEDDING][
            senders.index(3)
        ]

    first = lie([1, 3, 4], 2)
    assert torch.equal(first, lie([0, 2, 3], 2, malicious=(3,)))
    assert torch.allclose(2 * first, lie([3], 2, scale=10.0))
    for other in (lie([3], 1), lie([3], 2, seed=8)):
        assert not torch.equal(first, other)
    both = attack(kind).applied({EMBEDDING: torch.zeros(2, 6)}, (), 2, torch.tensor([0, 3]), {})[EMBEDDING]
    assert not torch.equal(both[0], both[1])


@pytest.mark.parametrize("kind", ["same-value", "gaussian"])
def test_lies_are_normal_with_the_given_deviation(kind: str) -> None:
    uploads: Message = {EMBEDDING: torch.zeros(1, 1)}
    mine = attack(kind, scale=3.0, malicious=(0,))
    values = torch.cat([mine.applied(uploads, (), r, torch.tensor([0]), {})[EMBEDDING].ravel() for r in range(1, 1001)])
    assert abs(float(values.mean())) < 5 * 3 / np.sqrt(1000)
    assert float(values.std()) == pytest.approx(3, abs=5 * 3 / np.sqrt(2000))


def test_what_is_sent_sparsely_stays_so() -> None:
    after = attack().applied({EMBEDDING: Sparse(torch.zeros(3, 6))}, (), 1, SENDERS, {})
    assert isinstance(after[EMBEDDING], Sparse)
    assert dense(after[EMBEDDING])[1].count_nonzero() == 6


def test_an_embedding_may_be_missing_in_later_rounds_but_not_in_the_first() -> None:
    uploads: Message = {"model.w": torch.zeros(3, 2)}
    assert attack().applied(uploads, (), 1, SENDERS, {}) is uploads
    with pytest.raises(FedquiltError, match="the method uploads no embedding to attack; leave out the attack"):
        attack().applied(uploads, (), 0, SENDERS, {})


def test_methods_without_an_embedding_are_refused() -> None:
    clients = ragged_clients()
    check_attackable(make_method("fedpub", clients), "gaussian")
    for name in ("fedavg", "local"):
        with pytest.raises(FedquiltError, match=f"Method '{name}' uploads no embedding to attack; .*: .*fedpub"):
            check_attackable(make_method(name, clients), "gaussian")


def test_weights_of_every_method_that_sends_any_can_be_attacked() -> None:
    clients = ragged_clients()
    for kind in ("noise", "flip", "inflated", "stealth"):
        check_attackable(make_method("fedavg", clients), kind)  # type: ignore[arg-type]
        with pytest.raises(FedquiltError, match="Method 'local' uploads nothing to attack; leave out the attack"):
            check_attackable(make_method("local", clients), kind)  # type: ignore[arg-type]
    check_attackable(make_method("quilt", clients, **FIRST_QUILT), "own-rows")
    for method in (make_method("fedavg", clients), make_method("quilt", clients)):
        with pytest.raises(FedquiltError, match="does not average by evidence, so that no rows can be owned; choose"):
            check_attackable(method, "own-rows")


# -- false weights -----------------------------------------------------------------------------------

WEIGHTS_AND_COUNTS = (TensorSpec("model.*", "."), TensorSpec("latent", "."), TensorSpec("seen", ".", count=True))


def weights() -> Message:
    """Uploads of three clients, of which the second is malicious: one patch is nobody else's, two are shared with one."""
    rng = torch.Generator().manual_seed(0)
    seen = torch.tensor([[0.0, 5.0, 4.0, 0.0], [2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 6.0, 3.0]])
    sent = {"model.w": torch.randn(3, 4, 2, generator=rng), "model.b": torch.randn(3, 2, generator=rng)}
    return {**sent, "latent": torch.randn(3, 5, generator=rng), "seen": seen}


def sends(kind: Any, scale: float = 5.0, down: Message | None = None) -> Message:
    before = weights()
    one = Attack(kind, scale, frozenset({3}), 7, {"model.w": ("seen", 0)}.get)
    after = one.applied(before, WEIGHTS_AND_COUNTS, 1, SENDERS, down or {})
    assert_same(before, weights())
    for name, value in before.items():  # honest clients' uploads arrive as they are
        assert torch.equal(after[name][[0, 2]], value[[0, 2]])
    return after


def test_noise_and_flipped_weights() -> None:
    honest, noise, flipped = weights(), sends("noise"), sends("flip", 2.0)
    for name in ("model.w", "model.b"):
        assert not torch.isclose(noise[name][1], honest[name][1]).any()
        assert torch.equal(flipped[name][1], -2.0 * honest[name][1])
    for after in (noise, flipped):
        assert torch.equal(after["seen"], honest["seen"])
        assert torch.equal(after["latent"], honest["latent"])


def test_own_rows_are_those_that_malicious_clients_win() -> None:
    honest, after = weights(), sends("own-rows")
    assert after["seen"][1].tolist() == [2.0, 2.0, 1.0, 1.0]  # it claims to have seen everything
    won = torch.tensor([True, True, False, True])  # the third has two honest voters
    assert torch.equal(after["model.w"][1][won], -5.0 * honest["model.w"][1][won])
    assert torch.equal(after["model.w"][1][~won], honest["model.w"][1][~won])
    assert torch.equal(after["model.b"], honest["model.b"])


def test_inflated_counts_and_the_description_of_an_average_client() -> None:
    honest, after = weights(), sends("inflated")
    assert after["seen"][1].tolist() == [1e9] * 4
    assert torch.equal(after["model.w"][1], -5.0 * honest["model.w"][1])
    assert torch.allclose(after["latent"][1], honest["latent"][[0, 2]].mean(0))


def test_stealth_steps_are_as_long_as_honest_ones_and_go_against_them() -> None:
    honest, down = weights(), {"model.w": torch.ones(4, 2)}
    after = sends("stealth", 1.0, down)
    steps = (honest["model.w"][[0, 2]] - down["model.w"]).double().numpy()
    mean, length = steps.mean(0), min(np.linalg.norm(step) for step in steps)  # torch's median of two is the lower
    np.testing.assert_allclose(after["model.w"][1], 1.0 - length * mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-6)
    assert torch.equal(after["model.b"], honest["model.b"])  # nothing was received under this name
    assert after["seen"][1].tolist() == [1.0, 5.0, 6.0, 3.0]


def test_an_attack_without_a_malicious_sender_changes_nothing() -> None:
    before = weights()
    assert Attack("flip", 5.0, frozenset({8}), 7).applied(before, WEIGHTS_AND_COUNTS, 1, SENDERS, {}) is before


@pytest.mark.parametrize("settings", [{"matching": False}, {"similarity": "label"}], ids=str)
def test_a_method_whose_settings_keep_the_embedding_at_home_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(FedquiltError, match="With these settings the method uploads no embedding to attack; leave out"):
        check_attackable(make_method("fedpub", ragged_clients(), **settings), "gaussian")


# -- in a training -----------------------------------------------------------------------------------


def test_the_server_gets_the_lies_and_clients_train_on() -> None:
    clients = ragged_clients()
    seen: list[torch.Tensor] = []
    trainings = []
    for malicious in ((), (1, 4)):
        method = make_method("fedpub", clients)
        compare = method.compare

        def watched(server: Any, uploads: Any, *rest: Any, compare: Callable = compare) -> torch.Tensor:
            seen.append(uploads[EMBEDDING].clone())
            return compare(server, uploads, *rest)

        method.compare = watched  # type: ignore[method-assign]
        trainings.append(
            make_training(method, clients, Plan(3), upload_transforms=[attack(malicious=malicious, seed=3)])
        )
        trainings[-1].run()
    honest, lied = seen[0], seen[3]
    assert torch.equal(honest[[0, 2, 3]], lied[[0, 2, 3]])
    assert not torch.isclose(honest[[1, 4]], lied[[1, 4]]).all()
    first, other = trainings[0].records, trainings[1].records
    assert first[0]["clients"] == other[0]["clients"]  # nothing was exchanged yet
    assert first[0]["bytes_up"] == other[0]["bytes_up"]
    assert first[1]["val_loss"] != other[1]["val_loss"]


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_a_stopped_run_goes_on_with_the_same_lies(participation: float) -> None:
    options = SMALL | {
        "attack": "same-value",
        "attack_scale": 3,
        "attack_ratio": 0.4,
        "participation": participation,
        "checkpoint_seconds": 0.0,
        "seeds": [2],
    }

    whole = fedquilt.run("fedpub", **options)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedpub", out="stopped", watch=stop_after(2, 1), **options)
    resumed = fedquilt.resume("stopped")
    assert without_seconds(resumed.records[2]) == without_seconds(whole.records[2])
    assert_same(resumed.models[2], whole.models[2])
    assert resumed.result["groups"] == whole.result["groups"]
    assert fedquilt.resume("stopped").result == resumed.result


def test_honest_and_malicious_clients_are_reported_apart() -> None:
    options = SMALL | {"attack": "gaussian", "attack_ratio": 0.4, "seeds": [0, 1]}
    run = fedquilt.run("fedpub", **options)
    tests = {"honest": [], "malicious": []}
    for seed, line in zip((0, 1), run.result["seeds"], strict=True):
        malicious = some_clients(seed, 5, 0.4, "attack", "clients").tolist()
        at_best = run.records[seed][line["best_round"]]["clients"]["test"]
        for name, lies in (("honest", False), ("malicious", True)):
            mine = [test for m, test in enumerate(at_best) if (m in malicious) == lies]
            assert line["groups"][name] == {"clients": len(mine), "test": pytest.approx(np.mean(mine))}
            tests[name].append(np.mean(mine))
        everyone = sum(part["clients"] * part["test"] for part in line["groups"].values()) / 5
        assert line["test"] == pytest.approx(everyone)
    for name, clients in (("honest", 3), ("malicious", 2)):
        assert run.result["groups"][name] == {
            "clients": clients,
            "test_mean": pytest.approx(np.mean(tests[name])),
            "test_std": pytest.approx(np.std(tests[name])),
        }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attack": "loud"}, "The option attack='loud' is not possible: input should be 'same-value', 'gaussian',"),
        ({"attack": "gaussian", "attack_scale": 0}, "The option attack_scale=0 is not possible"),
        ({"attack": "gaussian", "attack_ratio": 1}, "The option attack_ratio=1 is not possible"),
        ({"attack_ratio": 0.4}, "attack_ratio=0.4 is not possible: there is no attack; say which"),
        ({"attack_scale": 3}, "attack_scale=3 is not possible: there is no attack; say which"),
        ({"attack": "gaussian", "method": "fedavg"}, "Method 'fedavg' uploads no embedding to attack"),
        ({"attack": "gaussian", "clients": 1}, "A single client cannot be parted"),
        (
            {"attack": "gaussian", "settings": {"matching": False}},
            "With these settings the method uploads no embedding",
        ),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_before_a_folder_is_made(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(FedquiltError) as caught:
        fedquilt.run(**({"method": "fedpub", "out": "out"} | SMALL | options))
    assert says in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("methods", "settings", "says"),
    [
        (["fedpub", "fedavg"], {}, "Method 'fedavg' uploads no embedding"),
        (["fedsheafhn", "fedpub"], {"matching": False}, "With these settings the method uploads no embedding"),
    ],
    ids=str,
)
def test_in_a_comparison_it_is_a_row_and_the_others_go_on(
    methods: list[str], settings: dict[str, Any], says: str, tmp_path: Path
) -> None:
    options = SMALL | {"settings": {"hidden": 8} | settings}
    compared = fedquilt.compare(methods, out="out", attack="gaussian", **options)
    assert [run.result["method"] for run in compared] == methods[:1]
    assert says in compared.results[1]["failed"]


# -- longer steps, random steps, counts and labels -----------------------------------------------------


SPECS = (
    TensorSpec("model.*", "Weights."),
    TensorSpec("update.*", "Changes."),
    TensorSpec("count.*", "Counts.", count=True),
)


def step_message() -> tuple[Message, Message]:
    """Uploads of three clients, and the download: one weight for all, one for each, one that was not received."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(size=shape)).float()

    up = {name: drawn(3, 2, 4) for name in ("model.shared", "model.own", "model.new", "update.w")}
    down = {"model.shared": drawn(2, 4), "model.own": drawn(3, 2, 4), "update.w": drawn(3, 2, 4)}
    return up | {"count.train": torch.tensor([4.0, 5.0, 6.0])}, down


def test_a_scaled_step_is_the_trained_one_times_a_factor() -> None:
    up, down = step_message()
    after = attack("scaled", 3.0).applied(up, SPECS, 2, SENDERS, down)
    for name in up:
        assert torch.equal(after[name][[0, 2]], up[name][[0, 2]])  # client 3 is at place 1
    w, g = up["model.shared"][1].numpy(), down["model.shared"].numpy()
    np.testing.assert_allclose(after["model.shared"][1], g + 3 * (w - g), rtol=1e-5)
    w, g = up["model.own"][1].numpy(), down["model.own"][1].numpy()
    np.testing.assert_allclose(after["model.own"][1], g + 3 * (w - g), rtol=1e-5)
    for name in ("model.new", "update.w"):
        np.testing.assert_allclose(after[name][1], 3 * up[name][1].numpy(), rtol=1e-6)
    assert torch.equal(after["count.train"], up["count.train"])


def test_a_random_step_has_the_length_of_the_trained_one_and_another_direction() -> None:
    up, down = step_message()
    after = attack("random", 2.0).applied(up, SPECS, 2, SENDERS, down)
    trained = up["model.shared"][1] - down["model.shared"]
    step = after["model.shared"][1] - down["model.shared"]
    assert float(step.norm()) == pytest.approx(2 * float(trained.norm()), rel=1e-5)
    assert abs(float((step * trained).sum() / step.norm() / trained.norm())) < 0.95
    assert_same(after, attack("random", 2.0).applied(up, SPECS, 2, SENDERS, down))
    other = attack("random", 2.0).applied(up, SPECS, 3, SENDERS, down)
    assert not torch.equal(other["model.shared"], after["model.shared"])


def test_counts_alone_are_inflated() -> None:
    up, down = step_message()
    after = attack("counts").applied(up, SPECS, 2, SENDERS, down)
    assert after["count.train"].tolist() == [4.0, 1e9, 6.0]
    for name in up.keys() - {"count.train"}:
        assert torch.equal(after[name], up[name])
    with pytest.raises(FedquiltError, match="Method 'fedpub' uploads no counts to inflate"):
        check_attackable(make_method("fedpub", ragged_clients()), "counts")


def test_malicious_clients_train_on_turned_labels_and_are_reported_apart() -> None:
    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.resolve import ResolvedRun

    options = {"method": "fedavg", "dataset": "patchwork", "clients": 5, "rounds": 2, "attack_ratio": 0.4}
    poisoned = ResolvedRun(RunConfig.build(options | {"attack": "labels"}))
    clean = ResolvedRun(RunConfig.build(options | {"attack": "flip"}))
    chosen = some_clients(0, 5, 0.4, "attack", "clients").tolist()
    for mine, other in zip(poisoned.clients(0), clean.clients(0), strict=True):
        trains = mine.split == 0
        assert np.array_equal(mine.graph.y, other.graph.y) == (mine.id not in chosen)
        assert np.array_equal(mine.graph.y[~trains], other.graph.y[~trains])
    run = fedquilt.run(**options, attack="labels")
    groups = run.result["seeds"][0]["groups"]
    assert {"honest", "malicious"} <= groups.keys()
    with pytest.raises(
        FedquiltError, match="The task node-regression has no classes that malicious clients could turn"
    ):
        fedquilt.run(**options | {"dataset": "houses"}, attack="labels", task="node-regression")
