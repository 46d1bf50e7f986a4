"""AdaFGL: FedAvg's extractor, then training at home on what it says, read in two ways by the Homophily Confidence Score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.methods.adafgl import BEGUN, AdaFgl
from fedquilt.nn.homophily_confidence import HOMOPHILY_CONFIDENCE, homophily_confidence
from fedquilt.nn.models import Model
from fedquilt.nn.optim import STEP
from fedquilt.runs.folder import SeedFolder
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near, dense_features, gcn_operator, lay
from support.federations import Wiretap, assert_same, make_method, make_task, make_training, ragged_clients, tapped_run

ROUNDS = 3


def adafgl(clients: list[Client], **settings: object) -> AdaFgl:
    return make_method("adafgl", clients, make_task(clients, rounds=ROUNDS), **settings)


def trained(clients: list[Client], participation: float = 1.0, **settings: object) -> Training:
    training = make_training(adafgl(clients, **settings), clients, Plan(ROUNDS, participation))
    training.run()
    return training


def test_the_extractor_is_fedavgs_and_nothing_crosses_at_home() -> None:
    clients = ragged_clients()
    training, tap = tapped_run(adafgl(clients), clients, ROUNDS, 1.0)
    alone = make_training(make_method("fedavg", clients, make_task(clients, rounds=ROUNDS)), clients, Plan(ROUNDS))
    alone.run()
    state = training.engine.state()
    for name, average in alone.down.items():
        assert torch.equal(state[name], average.expand_as(state[name])), name
    extractor = set(alone.down)
    assert [set(up) for up in tap.ups] == [extractor | {"train_nodes"}] * ROUNDS + [set()] * ROUNDS
    assert [set(down) for down in tap.downs] == [set()] + [extractor] * ROUNDS + [set()] * (ROUNDS - 1)
    assert [record["phase"] for record in training.records] == ["extractor"] * ROUNDS + ["personal"] * ROUNDS
    assert ["val" in record for record in training.records] == [False] * ROUNDS + [True] * ROUNDS


def test_personal_rounds_are_extra() -> None:
    clients = ragged_clients()
    assert [phase.rounds for phase in adafgl(clients).phases(5)] == [5, 5]
    assert [phase.rounds for phase in adafgl(clients, personal_rounds=2).phases(5)] == [5, 2]
    assert len(trained(clients, personal_rounds=1).records) == ROUNDS + 1


def test_each_phase_trains_its_own_weights_and_adam_begins_anew() -> None:
    clients = ragged_clients()
    training = make_training(adafgl(clients, epochs=2), clients, Plan(ROUNDS))
    start = {name: tensor.clone() for name, tensor in training.engine.state().items()}
    training.advance(ROUNDS)
    middle = {name: tensor.clone() for name, tensor in training.engine.state().items()}
    personal = [name for name in start if name.startswith("model.home.")]
    assert all(torch.equal(start[name], middle[name]) for name in personal)
    assert middle[STEP].tolist() == [2.0 * ROUNDS] * 5
    training.advance(1)
    after = training.engine.state()
    assert not any(torch.equal(middle[name], after[name]) for name in personal)
    assert after[STEP].tolist() == [2.0] * 5
    assert after[BEGUN].tolist() == [1.0] * 5


def test_whoever_comes_late_has_the_extractor_too() -> None:
    clients = ragged_clients()
    training = make_training(adafgl(clients, personal_rounds=8), clients, Plan(ROUNDS, participation=0.4))
    tap = Wiretap(training.engine)
    training.run()
    state = training.engine.state()
    here = state[BEGUN] > 0
    assert here.sum() >= 4
    for name, average in tap.downs[ROUNDS].items():
        assert torch.equal(state[name][here], average.expand_as(state[name])[here])


@pytest.mark.parametrize("after", [1, ROUNDS, ROUNDS + 1])
def test_a_training_is_resumed_in_any_phase(tmp_path: Path, after: int) -> None:
    clients = ragged_clients()
    whole = trained(clients, participation=0.6)
    cut = make_training(adafgl(clients), clients, Plan(ROUNDS, 0.6), store=SeedFolder(tmp_path))
    cut.advance(after)
    cut.save()
    resumed = make_training(adafgl(clients), clients, Plan(ROUNDS, 0.6), store=SeedFolder(tmp_path))
    resumed.run()
    assert_same(resumed.engine.state(), whole.engine.state())


def softmax(z: np.ndarray) -> np.ndarray:
    raised = np.exp(z - z.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


def plain_probabilities(method: AdaFgl, client: Client, own: dict[str, np.ndarray], soft: np.ndarray) -> np.ndarray:
    """A personal model's predictions with every matrix written out."""
    s, x = method.settings, dense_features(client).astype(np.float64)

    def kernel(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z = y / np.linalg.norm(y, axis=1, keepdims=True)
        similarity = z @ z.T
        degree = similarity.sum(1)
        return similarity / np.sqrt(np.outer(degree, degree)), np.sqrt(np.outer(degree, degree)) / degree.sum()

    p = s.alpha * gcn_operator(client) + (1 - s.alpha) * kernel(soft)[0]
    blocks = np.split(own["first.weight"], s.steps + 2, axis=1)
    hops = [np.linalg.matrix_power(p, k) @ x @ blocks[k] for k in range(s.steps + 1)]
    hidden = np.maximum(sum(hops) + own["smoothed.hidden"], 0)
    alone = np.maximum(x @ blocks[-1] + own["features.hidden"], 0)
    smoothed = softmax(hidden @ own["smoothed.weight"] + own["smoothed.bias"])
    features = softmax(alone @ own["features.weight"] + own["features.bias"])
    first = hidden @ own["messages.weight"] + own["messages.bias"]
    learned, expected = kernel(softmax(first))
    attract, repel = 1 + own["messages.gains"]
    messages = first + attract * (s.beta * p + (1 - s.beta) * learned) @ first - repel * expected @ first
    share = homophily_confidence(client)
    return share * (smoothed + soft) / 2 + (1 - share) * (smoothed + features + softmax(messages)) / 3


@pytest.mark.parametrize("layout", ["padded", "compact"])
def test_predictions_equal_those_with_all_matrices_written_out(layout: str) -> None:
    clients = ragged_clients()
    training = trained(clients, alpha=0.3, beta=0.6, lr=0.05)
    method, personal, cohort = training.method, training.engine.personal(), lay(clients, layout)
    found = cohort.parts_of(method.logits(personal, cohort).softmax(1))
    soft = cohort.parts_of(method.soft_labels(personal, cohort).double())
    for m, client in enumerate(clients):
        own = {n.removeprefix("home."): w[m].double().numpy() for n, w in personal.items() if "home." in n}
        assert_near(found[m], torch.from_numpy(plain_probabilities(method, client, own, soft[m].numpy())))


def test_the_score_decides_which_reading_counts() -> None:
    clients = ragged_clients()
    training = trained(clients, lr=0.05)
    personal = training.engine.personal()

    def outputs(**settings: object) -> torch.Tensor:
        return adafgl(clients, **settings).logits(personal, Cohort(clients))

    homophilous, heterophilous = outputs(reading="homophilous").exp(), outputs(reading="heterophilous").exp()
    assert not torch.allclose(homophilous, heterophilous, atol=1e-3)
    share = torch.tensor([homophily_confidence(client) for client in clients])
    assert len(set(share.tolist())) > 1
    cohort = Cohort(clients)
    mixed = torch.lerp(heterophilous, homophilous, share[cohort.client].unsqueeze(1))
    assert_near(outputs().exp(), mixed)
    others = ragged_clients()
    for client, score in zip(others, share.roll(2).tolist(), strict=True):
        client.preset(HOMOPHILY_CONFIDENCE, score)
    assert not torch.allclose(adafgl(others).logits(personal, Cohort(others)).exp(), mixed, atol=1e-3)


def test_what_the_extractor_says_matters() -> None:
    clients = ragged_clients()
    method, cohort = adafgl(clients), Cohort(clients)
    state = method.start(cohort)
    network = {name.removeprefix("model.home."): w for name, w in state.items() if name.startswith("model.home.")}
    soft = torch.randn(cohort.rows, 3, generator=torch.Generator().manual_seed(1)).mul(3).softmax(1)
    other = soft[:, [1, 2, 0]]
    there = method.heads(network, cohort, soft)
    assert_near(method.heads(network, cohort, other).smoothed, there.smoothed)  # cosines do not know the classes' names
    shuffled = soft.clone()
    shuffled[: clients[0].graph.nodes] = soft[: clients[0].graph.nodes].flip(0)
    assert not torch.allclose(method.heads(network, cohort, shuffled).smoothed, there.smoothed, atol=1e-4)
    by_graph = adafgl(clients, alpha=1.0)
    assert_near(by_graph.heads(network, cohort, soft).smoothed, by_graph.heads(network, cohort, shuffled).smoothed)


def test_preservation_holds_the_smoothed_reading_near_the_extractor() -> None:
    clients = ragged_clients()

    def distance(preserve: float) -> float:
        training = trained(clients, personal_rounds=10, preserve=preserve, reading="homophilous", dropout=0.0, lr=0.05)
        method, personal, cohort = training.method, training.engine.personal(), Cohort(clients)
        soft = method.soft_labels(personal, cohort)
        network = {name.removeprefix("home."): w for name, w in personal.items() if name.startswith("home.")}
        return float((method.heads(network, cohort, soft).smoothed.softmax(1) - soft).square().mean())

    assert distance(20.0) < 0.5 * distance(0.0)


@pytest.mark.parametrize("model", sorted(Model.kinds))
def test_every_backbone_can_be_the_extractor(model: str) -> None:
    training = trained(ragged_clients(), model=model)
    assert all(torch.isfinite(w).all() for w in training.engine.personal().values())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"alpha": 1.5}, "alpha"),
        ({"beta": -0.1}, "beta"),
        ({"steps": 0}, "steps"),
        ({"personal_rounds": -1}, "personal_rounds"),
        ({"reading": "none"}, "reading"),
    ],
)
def test_bad_settings_get_a_sentence(settings: dict[str, object], words: str) -> None:
    with pytest.raises(FedquiltError, match=words):
        adafgl(ragged_clients(), **settings)
