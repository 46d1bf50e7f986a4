"""FED-PUB's formulas, each against a few lines of NumPy or autograd."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import TRAIN
from fedquilt.messages.message import Message, Sparse, dense, message_bytes
from fedquilt.methods import fedpub
from fedquilt.methods.base import State
from fedquilt.methods.base_adam import KEYS
from fedquilt.methods.fedpub import FedPub, cosine, jensen_shannon, label_share, prune, shrink_toward_zero
from fedquilt.methods.settings import build_settings
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.functional_embedding import random_client, random_graph
from fedquilt.nn.models import Model, common_start
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import PADDING, assert_near, client_lists, lay
from support.federations import Wiretap, make_method, make_task, make_training, ragged_clients
from support.pyg_reference import random_weights

MATRICES = ("conv1.weight", "conv2.weight", "classifier.weight")
seeds = st.integers(0, 2**31)


def make(**settings: Any) -> FedPub:
    clients = ragged_clients()
    return make_method("fedpub", clients, make_task(clients, epochs=2), **settings)


def tapped(rounds: int = 4, participation: float = 1.0, **settings: Any) -> tuple[Training, Wiretap]:
    clients = ragged_clients()
    training = make_training(make(**settings), clients, Plan(rounds, participation))
    tap = Wiretap(training.engine)
    training.run()
    return training, tap


def numpy_softmax(score: np.ndarray) -> np.ndarray:
    raised = np.exp(score - score.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


def numpy_typical(similarity: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Similarities [..., r, n], where those of pairs that were never compared are the mean of the receiver's others, or 0."""
    count = np.maximum(known.sum(-1), 1)
    return np.where(known, similarity, ((similarity * known).sum(-1) / count)[..., None])


def numpy_similarity(rows: np.ndarray, contrast: str) -> np.ndarray:
    rows = rows - rows.mean(0) if contrast == "centred" else rows
    norm = np.linalg.norm(rows, axis=1)
    c, n = rows @ rows.T / np.outer(norm, norm), len(rows)
    return c if contrast == "none" else (1 + ((n - 1) * c + 1) / n) / 2


# -- who is averaged with whom -----------------------------------------------------------------------


@given(seed=seeds, clients=st.integers(1, 6), tau=st.floats(0.1, 20))
def test_alpha_is_a_softmax_of_tau_times_similarity(seed: int, clients: int, tau: float) -> None:
    s = np.random.default_rng(seed).uniform(-1, 1, (clients, clients))
    alpha = make(tau=tau).attention(torch.from_numpy(s))
    assert_near(alpha, torch.from_numpy(numpy_softmax(tau * s)))
    assert_near(alpha.sum(1), torch.ones(clients))


@given(seed=seeds, receivers=st.integers(1, 5), senders=st.integers(1, 5))
def test_explicit_communities_are_those_over_one_half(seed: int, receivers: int, senders: int) -> None:
    s = np.random.default_rng(seed).uniform(0, 1, (receivers, senders))
    s[0] = 0.5  # not over one half: resembles nobody, and so falls back to all
    alpha = make(tau=3.0, communities="explicit").attention(torch.from_numpy(s))
    for row, found in zip(s, alpha, strict=True):
        member = row > 0.5 if (row > 0.5).any() else np.ones(senders, bool)
        raised = np.where(member, np.exp(3.0 * row), 0.0)
        assert_near(found, torch.from_numpy(raised / raised.sum()))
        assert bool((found[torch.from_numpy(~member)] == 0).all())
    assert_near(alpha[0], torch.full((senders,), 1 / senders))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tau": 20.0},
        {"communities": "explicit"},
        {"similarity": "parameter"},
        {"similarity": "gradient"},
        {"similarity": "label"},
        {"threshold": 0.5},
        {"contrast": "centred"},
        {"contrast": "centred", "communities": "explicit"},
        {"contrast": "centred", "similarity": "parameter"},
        {"contrast": "centred", "similarity": "gradient"},
        {"upload": "plain"},
    ],
    ids=str,
)
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_aggregation_equals_numpy(settings: dict[str, Any], participation: float) -> None:
    training, tap = tapped(5, participation, **settings)
    method, known, guessed = training.method, np.zeros((5, 5), dtype=bool), 0
    whole = np.full((5, 5), 0.0 if method.settings.contrast == "none" else 0.5)
    start = common_start(method.shapes(), 3, 5, torch.device("cpu"))
    sent = {f"model.{n}": w.double().numpy().copy() for n, w in start.items()}
    parts = [r["participants"] if r["participants"] != "all" else list(range(5)) for r in training.records]
    for r, (here, there) in enumerate(itertools.pairwise([*parts, []])):
        up = {n: t.double().numpy() for n, t in tap.ups[r].items()}
        stacks = {n: t for n, t in up.items() if n.startswith("model.")}
        kind = method.settings.similarity
        if kind == "label":
            share = up["label_share"]
            mid = (share[:, None] + share[None]) / 2
            plain = -np.where(share > 0, share * np.log2(np.maximum(share, 1e-12)), 0).sum(-1)
            mixed = -np.where(mid > 0, mid * np.log2(np.maximum(mid, 1e-12)), 0).sum(-1)
            s = 1 - (mixed - (plain[:, None] + plain[None]) / 2)
        else:
            rows = {
                "function": lambda u=up: u["embedding"],
                "parameter": lambda k=stacks: np.concatenate([w.reshape(len(w), -1) for w in k.values()], 1),
                "gradient": lambda k=stacks, h=here: np.concatenate(
                    [(w - sent[n][h]).reshape(len(w), -1) for n, w in k.items()], 1
                ),
            }[kind]()
            s = numpy_similarity(rows, method.settings.contrast)
        whole[np.ix_(here, here)], known[np.ix_(here, here)] = s, True
        if not there:  # nothing is sent after the last round
            break
        among = known[np.ix_(there, here)]
        guessed += (among.any(1) & ~among.all(1)).sum()
        seen = numpy_typical(whole[np.ix_(there, here)], among)
        score = method.settings.tau * seen
        if method.settings.communities == "explicit":
            member = seen > 0.5
            member |= ~member.any(1, keepdims=True)
            score = np.where(member, score, -np.inf)
        alpha = numpy_softmax(score)
        down = tap.downs[r + 1]
        for name, stack in stacks.items():
            mixed = np.tensordot(alpha, stack, axes=1)
            sent[name][there] = mixed
            if method.prunes(name.removeprefix("model.")):
                for place, client in enumerate(there):
                    if client in here:
                        mixed[place] *= stack[here.index(client)] != 0
            assert_near(down[name], torch.from_numpy(mixed), 2e-5)
    assert_near(training.server["similarity"], torch.from_numpy(whole), 2e-5)
    assert (guessed > 0) == (participation < 1)


def test_without_matching_it_is_a_plain_average() -> None:
    _, tap = tapped(3, 0.6, matching=False)
    for up, down in zip(tap.ups[:-1], tap.downs[1:], strict=True):
        assert set(up) == {*(n for n in down if n != "graph_seed"), "train_nodes"}
        share = up["train_nodes"] / up["train_nodes"].sum()
        for name in set(down) - {"graph_seed"}:
            mean = torch.tensordot(share.double(), up[name].double(), 1)
            assert_near(down[name], mean.expand(len(down[name]), *mean.shape))


@pytest.mark.parametrize(
    ("settings", "extra"),
    [
        ({}, {"embedding"}),
        ({"graph": "feature"}, {"embedding"}),
        ({"similarity": "label"}, {"label_share"}),
        ({"similarity": "parameter"}, set()),
        ({"similarity": "gradient"}, set()),
        ({"matching": False}, {"train_nodes"}),
    ],
    ids=str,
)
def test_only_what_similarity_needs_is_sent_and_masks_never(settings: dict[str, Any], extra: set[str]) -> None:
    training, tap = tapped(2, **settings)
    weights = {f"model.{name}" for name in training.method.model.shapes()}
    assert all(set(up) == weights | extra for up in tap.ups)
    assert set(tap.downs[0]) == {"graph_seed"}
    assert set(tap.downs[1]) == weights | {"graph_seed"}


# -- what a client minimises -------------------------------------------------------------------------


@pytest.mark.parametrize("masking", [True, False])
@pytest.mark.parametrize("proximal", [0.0, 0.7])
@pytest.mark.parametrize("received", [True, False])
def test_gradients_equal_autograd_through_the_mask(masking: bool, proximal: float, received: bool) -> None:
    method, cohort = make(masking=masking, proximal=proximal), Cohort(ragged_clients())
    state = method.start(cohort)
    stream = torch.Generator().manual_seed(0)
    for tensor in method.trained(state).values():
        tensor.add_(torch.randn(tensor.shape, generator=stream) / 5)
    down = {n: torch.randn(t.shape, generator=stream) for n, t in state.items() if n.startswith("model.")}
    down = {n: Sparse(t) if n.endswith("weight") else t for n, t in down.items()} if received else {}
    method = make(masking=masking, proximal=proximal, epochs=3)  # step 4: the second of its round, theta has moved
    dropout = Dropout(0.5, state[KEYS], 4)
    found, loss = method.gradients(state, cohort, dropout, down)

    leaves = {name: tensor.clone().requires_grad_() for name, tensor in method.trained(state).items()}
    theta = {n.removeprefix("model."): t for n, t in leaves.items() if n.startswith("model.")}
    mask = {n.removeprefix("mask."): t for n, t in leaves.items() if n.startswith("mask.")}
    assert set(mask) == (set(MATRICES) if masking else set())
    acting = theta | {n: theta[n] * (1 + offset) for n, offset in mask.items()}
    total, each = method.task.training_loss(
        cohort, method.model.training(cohort, acting, dropout).logits, dropout.draws
    )
    for name, value in down.items():
        total = total + proximal * (acting[name.removeprefix("model.")] - dense(value)).square().sum()
    grads = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    assert set(found) == set(grads)
    for name, grad in grads.items():
        assert_near(found[name], grad)
    assert_near(loss, each.detach())


def test_masks_start_at_ones_on_the_matrices() -> None:
    method, cohort = make(), Cohort(ragged_clients())
    state = method.start(cohort)
    masks = {name.removeprefix("mask."): t for name, t in state.items() if name.startswith("mask.")}
    assert set(masks) == set(MATRICES)
    for name, mask in masks.items():
        assert torch.equal(1 + mask, torch.ones_like(state[f"model.{name}"]))  # kept as the offset from one
    for name, w in method.personal(state).items():
        assert torch.equal(w, state[f"model.{name}"])
    assert not any(name.startswith("mask.") for name in make(masking=False).start(cohort))


def test_the_l1_step_shrinks_masks_toward_zero() -> None:
    method, cohort = make(l1=10.0, lr=0.01), Cohort(ragged_clients())
    state = method.start(cohort)
    for name in MATRICES:
        state[f"mask.{name}"].normal_(-1.0, 0.2, generator=torch.Generator().manual_seed(1))
    before = {name: tensor.clone() for name, tensor in state.items()}
    method.after_step(state, {})
    for name, tensor in state.items():
        old = before[name].double().numpy()
        if not name.startswith("mask."):
            assert torch.equal(tensor, before[name])
            continue
        old = 1 + old
        assert_near(1 + tensor, torch.from_numpy(np.sign(old) * np.maximum(np.abs(old) - 0.1, 0.0)), 1e-6)
        assert bool((1 + tensor[torch.from_numpy(np.abs(old) < 0.0999)] == 0).all())
        assert 0.2 < float((1 + tensor == 0).float().mean()) < 0.6
    unchanged = make(l1=0.0)
    state = {name: tensor.clone() for name, tensor in before.items()}
    unchanged.after_step(state, {})
    assert all(torch.equal(state[name], before[name]) for name in state)


def test_the_l1_step_of_masks_that_are_all_positive() -> None:
    """The usual case has a shorter way; it must agree."""
    offset = torch.linspace(-0.999, 0.5, 50).view(1, 5, 10)
    expected = np.maximum(1 + offset.double().numpy() - 0.1, 0.0)
    shrink_toward_zero(offset, 0.1)
    assert_near(1 + offset, torch.from_numpy(expected), 1e-6)
    small = torch.full((1, 2, 2), -1e-5)
    shrink_toward_zero(small, 1e-6)
    assert_near(small, torch.full((1, 2, 2), -1.1e-5).double(), 1e-6)  # nothing is lost beside the one


@pytest.mark.parametrize("lasting", [1.0, 0.9, 0.0])
def test_masks_stay_at_home_and_fade_and_weights_are_taken_over(lasting: float) -> None:
    training, tap = tapped(3, lasting=lasting)
    method, state = training.method, training.engine.parts[0].state
    masks = {name: state[name].clone() for name in state if name.startswith("mask.")}
    assert all(bool((offset != 0).any()) for offset in masks.values())
    mine = {name: tensor.clone() for name, tensor in state.items()}
    method.receive(mine, tap.downs[2])
    for name in masks:
        assert torch.equal(mine[name], lasting * masks[name])
    for name in tap.downs[2]:
        assert name == "graph_seed" or torch.equal(mine[name], tap.downs[2][name])
    method.receive(mine, tap.downs[0])  # nothing of the model in it: nothing was spent
    for name in masks:
        assert torch.equal(mine[name], lasting * masks[name])


@pytest.mark.parametrize("upload", ["masked", "plain"])
def test_what_is_used_is_theta_times_mu_and_sent_with_or_without_mu(upload: str) -> None:
    training, tap = tapped(3, upload=upload)
    state = training.engine.parts[0].state
    for name, w in training.engine.personal().items():
        mask = 1 + state.get(f"mask.{name}", torch.zeros(()))
        assert_near(w, state[f"model.{name}"] * mask, 2e-7)
        assert torch.equal(tap.ups[-1][f"model.{name}"], w if upload == "masked" else state[f"model.{name}"])


# -- over many rounds --------------------------------------------------------------------------------


def numpy_adam(w: np.ndarray, grad: np.ndarray, moments: list[np.ndarray], step: int, lr: float) -> np.ndarray:
    moments[0] = 0.9 * moments[0] + 0.1 * grad
    moments[1] = 0.999 * moments[1] + 0.001 * grad**2
    return w - lr * (moments[0] / (1 - 0.9**step)) / (np.sqrt(moments[1] / (1 - 0.999**step)) + 1e-8)


@pytest.mark.parametrize("upload", ["masked", "plain"])
@pytest.mark.parametrize("lasting", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("limit", [0.0, 0.9])
def test_a_lone_clients_rounds_equal_a_loop(upload: str, lasting: float, limit: float) -> None:
    """Receive, fade, train theta and mu by Adam, shrink mu, send: in NumPy, but for the cross-entropy's gradient."""
    (client,) = ragged_clients((31,))
    settings = {"upload": upload, "lasting": lasting, "limit": limit, "l1": 0.5, "proximal": 0.0, "dropout": 0.0}
    context = make_task([client], epochs=2)
    method = make_method("fedpub", [client], context, **settings)
    training = make_training(method, [client], Plan(6))
    tap = Wiretap(training.engine)
    training.run()
    cohort = Cohort([client])
    start = common_start(method.shapes(), context.seed, 1, torch.device("cpu"))
    theta = {name: w.double().numpy() for name, w in start.items()}
    offset = {name: np.zeros_like(theta[name]) for name in MATRICES}
    moments = {part: {n: [np.zeros_like(w), np.zeros_like(w)] for n, w in theta.items()} for part in ("theta", "mu")}
    sent, step, lr = theta, 0, method.settings.lr
    for round in range(6):
        if round:
            theta = {name: w.copy() for name, w in sent.items()}
            offset = {name: lasting * o for name, o in offset.items()}
        for _ in range(2):
            step += 1
            acting = {name: w * (1 + offset.get(name, 0.0)) for name, w in theta.items()}
            as_tensors = {name: torch.from_numpy(w).float() for name, w in acting.items()}
            dropout = Dropout(0.0, torch.zeros(1, dtype=torch.int64), 0)
            grads, _ = method.effective_gradients(as_tensors, cohort, dropout)
            for name, tensor in grads.items():
                grad = tensor.double().numpy()
                old = theta[name]
                mask = 1 + offset.get(name, 0.0)
                theta[name] = numpy_adam(old, grad * mask, moments["theta"][name], step, lr)
                if name in offset:
                    mu = 1 + numpy_adam(offset[name], grad * old, moments["mu"][name], step, lr)
                    offset[name] = np.sign(mu) * np.maximum(np.abs(mu) - 0.5 * lr, 0) - 1
        sent = {name: w * (1 + offset.get(name, 0.0)) if upload == "masked" else w for name, w in theta.items()}
        for name in MATRICES if limit else ():
            rows, columns = sent[name].shape[1:]
            most = limit * np.sqrt(2 * rows * columns / (rows + columns))
            sent[name] = sent[name] * min(1.0, most / np.linalg.norm(sent[name]))
        for name, w in sent.items():
            gap = np.abs(tap.ups[round][f"model.{name}"].double().numpy() - w).max()
            assert gap < 2e-4, (round, name, gap)


@pytest.mark.parametrize("settings", [{}, {"tau": 20.0}, {"epochs": 3, "lr": 0.05}, {"upload": "plain"}], ids=str)
def test_weights_stay_bounded_over_two_hundred_rounds(settings: dict[str, Any]) -> None:
    training, tap = tapped(200, **settings)
    limit = training.method.settings.limit
    assert limit > 0
    for name in MATRICES:
        rows, columns = tap.ups[0][f"model.{name}"].shape[1:]
        most = limit * np.sqrt(2 * rows * columns / (rows + columns))
        assert all(float(up[f"model.{name}"].flatten(1).norm(dim=1).max()) <= most * (1 + 1e-5) for up in tap.ups)
    assert all(np.isfinite(record["loss"]) for record in training.records if "loss" in record)


def test_masks_that_last_and_are_sent_too_compound() -> None:
    """The paper's Algorithm 1 to the letter: why it is not the default."""
    with pytest.raises(FedquiltError, match="Training diverged"):
        tapped(200, upload="masked", lasting=1.0, limit=0.0, proximal=0.0, tau=20.0)


# -- diagnostics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 2, 3, 20])
def test_centred_similarity_is_a_half_on_average_and_one_with_oneself(clients: int) -> None:
    rows = torch.randn(clients, 30, generator=torch.Generator().manual_seed(clients)) + 5.0
    method = make(contrast="centred")
    found = method.scaled(cosine([method.contrasted(rows)]), clients)
    if clients > 1:
        assert_near(found.diagonal(), torch.ones(clients))
        assert float(found[~torch.eye(clients, dtype=torch.bool)].mean()) == pytest.approx(0.5, abs=0.02)
    assert bool(((found >= 0) & (found <= 1 + 1e-6)).all())


@pytest.mark.parametrize("settings", [{}, {"contrast": "centred"}, {"matching": False}], ids=str)
def test_diagnostics_equal_numpy(settings: dict[str, Any]) -> None:
    training, tap = tapped(3, **settings)
    for record, up in zip(training.records, tap.ups, strict=True):
        found = record["diagnostics"]
        norms = np.linalg.norm(up["model.conv1.weight"].double().numpy().reshape(5, -1), axis=1)
        assert found["weight_norm"] == pytest.approx(norms.mean(), rel=1e-5)
        if not training.method.settings.matching:
            share = (up["train_nodes"] / up["train_nodes"].sum()).double().numpy()
            assert found["effective_clients"] == pytest.approx(np.exp(-(share * np.log(share)).sum()), rel=1e-5)
            assert set(found) == {"weight_norm", "effective_clients"}
            continue
        s = numpy_similarity(up["embedding"].double().numpy(), training.method.settings.contrast)
        alpha = numpy_softmax(training.method.settings.tau * s)
        assert found["effective_clients"] == pytest.approx(np.exp(-(alpha * np.log(alpha)).sum(1)).mean(), rel=1e-4)
        pairs = np.sort(s[np.triu_indices(5, 1)])
        assert found["similarity_median"] == pytest.approx(pairs[(len(pairs) - 1) // 2], abs=1e-4)


@pytest.mark.parametrize("contrast", ["none", "centred"])
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_thin_averages_equal_those_of_all_pairs(
    contrast: str, participation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all clients in every round; one that sat out is compared otherwise, by the embedding that it last sent."""
    whole, _ = tapped(5, participation, contrast=contrast)
    monkeypatch.setattr(fedpub, "MANY", 2)
    clients = ragged_clients()
    thin = make_training(make(contrast=contrast), clients, Plan(5, participation))
    sent: list[torch.Tensor] = []
    aggregate = thin.method.aggregate

    def watched(server: State, uploads: Message, senders: torch.Tensor, receivers: torch.Tensor) -> Message:
        sent.append(dense(uploads["embedding"]).clone())
        return aggregate(server, uploads, senders, receivers)

    thin.runner.aggregate = watched
    thin.run()
    assert thin.method.many
    assert thin.method.similarity(thin.server) is None
    for mine, theirs in zip(thin.records, whole.records, strict=True):
        if participation == 1.0:
            for name, value in theirs["diagnostics"].items():
                assert mine["diagnostics"][name] == pytest.approx(value, rel=2e-3, abs=2e-3)
    if participation == 1.0:
        for name, w in whole.engine.personal().items():
            assert_near(thin.engine.personal()[name], w, 2e-3)
    rows = sent[-1]
    rows = rows - rows.mean(0) if contrast == "centred" else rows
    last = thin.records[-1]["participants"]
    last = list(range(5)) if last == "all" else last
    assert_near(thin.server["embedding"][last], torch.nn.functional.normalize(rows, dim=1), 1e-5)


# -- pruning -----------------------------------------------------------------------------------------


@given(seed=seeds, clients=st.integers(1, 4), threshold=st.floats(0, 3))
def test_prune(seed: int, clients: int, threshold: float) -> None:
    w = np.random.default_rng(seed).standard_normal((clients, 5, 3)).astype(np.float32)
    found = torch.from_numpy(w.copy())
    prune(found, threshold)
    for m in range(clients):
        size = np.abs(w[m])
        edge = threshold * size.mean(dtype=np.float64)
        clear = np.abs(size - edge) > 1e-5  # rounding decides the others
        assert np.array_equal(found[m].numpy()[clear], np.where(size >= edge, w[m], 0.0)[clear])


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_pruned_entries_are_neither_sent_nor_received_nor_used(participation: float) -> None:
    training, tap = tapped(5, participation, threshold=0.5)
    parts = [r["participants"] if r["participants"] != "all" else list(range(5)) for r in training.records]
    both = 0
    for r in range(4):
        for name in MATRICES:
            up, down = tap.ups[r][f"model.{name}"], tap.downs[r + 1][f"model.{name}"]
            assert 0.1 < float((up == 0).double().mean()) < 0.9
            for place, client in enumerate(parts[r + 1]):
                if client in parts[r]:
                    both += 1
                    assert not down[place][up[parts[r].index(client)] == 0].any()
                else:  # it did not send, so nothing is known of what it removed
                    assert torch.equal(down[place] == 0, (up == 0).all(0))
        for name in ("conv1.bias", "conv2.bias", "classifier.bias"):
            assert tap.ups[r][f"model.{name}"].any()
    assert both
    personal = training.engine.personal()
    for name in MATRICES:
        last = tap.ups[-1][f"model.{name}"]
        assert torch.equal(personal[name][parts[-1]], last)
        assert bool((personal[name][parts[-1]][last == 0] == 0).all())
    again = training.method.personal(training.engine.parts[0].state)
    assert all(torch.equal(again[name], personal[name]) for name in personal)


def test_bytes_fall_with_what_is_pruned() -> None:
    _, full = tapped(4)
    whole = tapped(4)[0]
    pruned, tap = tapped(4, threshold=0.5)
    assert pruned.progress.upload_bytes < whole.progress.upload_bytes
    assert pruned.progress.download_bytes < whole.progress.download_bytes
    for r, record in enumerate(pruned.records):
        for message, counted in ((tap.ups[r], record["bytes_up"]), (tap.downs[r], record["bytes_down"])):
            assert set(counted) == set(message)
            for name, tensor in message.items():
                if name.removeprefix("model.") in MATRICES:
                    entries = tensor[0].numel()
                    each = [min(4 * int((t != 0).sum()) + -(-entries // 8), 4 * entries) for t in tensor]
                    assert counted[name] == sum(each)
                elif name == "graph_seed":
                    assert counted[name] == 8 * 5
                else:
                    assert counted[name] == tensor.numel() * 4
    for r, record in enumerate(whole.records):
        for name, tensor in full.ups[r].items():
            assert record["bytes_up"][name] == tensor.numel() * 4
    assert message_bytes({"model.x": Sparse(torch.eye(16).unsqueeze(0))}, FedPub.uploads, 1) == {"model.x": 64 + 32}


# -- defaults and refusals ---------------------------------------------------------------------------


@pytest.mark.parametrize(("partition", "tau"), [("overlapping", 5.0), ("disjoint", 3.0), ("louvain", 3.0)])
def test_tau_follows_the_partition(partition: str, tau: float) -> None:
    context = make_task(ragged_clients(), partition=partition)
    assert build_settings(FedPub, context, {}).tau == tau
    assert build_settings(FedPub, context, {"tau": 7}).tau == 7.0


@pytest.mark.parametrize("settings", [*({"model": kind} for kind in sorted(Model.kinds)), {"layers": 3}], ids=str)
def test_any_backbone_embeds_on_the_random_graph(settings: dict[str, Any]) -> None:
    """Its embedding there, client by client: what is uploaded is the mean over the nodes of the graph that everyone draws."""
    clients = ragged_clients()
    method = make_method("fedpub", clients, masking=False, limit=0.0, **settings)
    cohort = lay(clients)
    seed = method.server_start()[1]["graph_seed"]
    weights = random_weights(method.shapes(), len(clients), 0)
    found = method.embed(weights, cohort, {"graph_seed": seed})
    drawn = random_client("sbm", int(seed), cohort.features)
    for m in range(len(clients)):
        own = {name: w[m : m + 1] for name, w in weights.items()}
        alone = method.model(Cohort([drawn]), own).embedding.mean(0)
        assert_near(found[m], alone, 5e-5)
    assert method.embed(weights, cohort, {"graph_seed": seed}).equal(found)


# -- the random graph --------------------------------------------------------------------------------


def test_everybody_embeds_on_the_same_graph_whose_seed_is_sent() -> None:
    tap = tapped(3)[1]
    (seed,) = {int(down["graph_seed"]) for down in tap.downs}
    graph = random_graph("sbm", seed, 10, torch.device("cpu"))
    again = random_graph.__wrapped__("sbm", seed, 10, torch.device("cpu"))
    assert torch.equal(graph.smoothed, again.smoothed)
    assert torch.equal(graph.averaged, again.averaged)
    other = tapped(1)[1].downs[0]["graph_seed"]
    assert int(other) == seed  # the same run, the same graph
    clients = ragged_clients()
    context = make_task(clients, seed=4)
    assert int(make_method("fedpub", clients, context).server_start()[1]["graph_seed"]) != seed


@pytest.mark.parametrize("seed", range(3))
def test_a_block_model_has_as_many_edges_as_it_should(seed: int) -> None:
    nodes, pairs_inside, pairs_across = 500, 5 * 4950, 10 * 10_000
    expected = pairs_inside * 0.1 + pairs_across * 0.01
    deviation = np.sqrt(pairs_inside * 0.09 + pairs_across * 0.0099)
    stream = numpy_stream(seed, "random graph")
    u, v = np.triu_indices(nodes, k=1)
    drawn = stream.random(len(u)) < np.where(u // 100 == v // 100, 0.1, 0.01)
    assert abs(drawn.sum() - expected) < 5 * deviation
    # The same edges give the operator that the embedding uses.
    a = np.eye(nodes)
    a[u[drawn], v[drawn]] = a[v[drawn], u[drawn]] = 1.0
    degree = a.sum(1)
    operator = a / np.sqrt(np.outer(degree, degree))
    graph = random_graph("sbm", seed, 4, torch.device("cpu"))
    assert_near(graph.averaged, torch.from_numpy(operator.mean(0)), 1e-6)
    x = stream.standard_normal((nodes, 4)).astype(np.float32)
    assert_near(graph.smoothed, torch.from_numpy(operator @ x))


def test_similarity_is_noted_and_symmetric() -> None:
    training, tap = tapped(5)
    similarity = training.method.similarity(training.server)
    assert similarity is training.server["similarity"]
    assert_near(similarity, similarity.T)
    assert_near(similarity.diagonal(), torch.ones(5))
    assert_near(similarity, torch.from_numpy(numpy_similarity(tap.ups[4]["embedding"].double().numpy(), "none")))
    assert make(matching=False).similarity({"similarity": torch.zeros(5, 5)}) is None


@pytest.mark.parametrize(
    ("settings", "beside"),
    [
        ({}, {"embedding"}),
        ({"similarity": "label"}, {"label_share"}),
        ({"similarity": "parameter"}, set()),
        ({"matching": False}, {"train_nodes"}),
        ({"matching": False, "similarity": "label"}, {"train_nodes"}),
    ],
    ids=str,
)
def test_what_is_sent_beside_the_model_is_what_the_settings_ask_for(settings: dict, beside: set[str]) -> None:
    training, tap = tapped(1, **settings)
    method = training.method
    assert {name for name in tap.ups[0] if not name.startswith("model.")} == beside
    assert {spec.name for spec in method.uploads if method.sends(spec.name)} == beside | {"model.*"}


# -- similarities ------------------------------------------------------------------------------------


@given(seed=seeds, clients=st.integers(1, 6))
def test_cosine(seed: int, clients: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((clients, 3, 4)), rng.standard_normal((clients, 5)) * 3]
    joined = np.concatenate([part.reshape(clients, -1) for part in parts], axis=1)
    norm = np.linalg.norm(joined, axis=1)
    expected = joined @ joined.T / np.outer(norm, norm)
    found = cosine([torch.from_numpy(part.astype(np.float32)) for part in parts])
    assert_near(found, torch.from_numpy(expected))


def test_cosine_with_nothing_is_zero() -> None:
    similarity = cosine([torch.tensor([[0.0, 0.0], [3.0, 4.0]])])
    assert similarity.tolist() == [[0.0, 0.0], [0.0, 1.0]]


@given(seed=seeds, clients=st.integers(1, 6), classes=st.integers(1, 8))
def test_jensen_shannon(seed: int, clients: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, (clients, classes)).astype(float)
    counts[counts.sum(1) == 0, 0] = 1.0
    share = counts / counts.sum(1, keepdims=True)
    found = jensen_shannon(torch.from_numpy(share.astype(np.float32)))
    for i in range(clients):
        for j in range(clients):
            expected = np.nan_to_num(jensenshannon(share[i], share[j], base=2)) ** 2  # SciPy gives the root
            assert float(found[i, j]) == pytest.approx(expected, abs=2e-6)
    assert bool(((found >= 0) & (found <= 1)).all())


def test_jensen_shannon_of_strangers_is_one_bit() -> None:
    assert jensen_shannon(torch.eye(2)).tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists(classes=4))
def test_label_share(rows: str, clients: list[Client]) -> None:
    found = label_share(lay(clients, rows))
    for m, client in enumerate(clients):
        labels = client.graph.y[(client.split == TRAIN) & (client.graph.y >= 0)]
        counts = np.bincount(labels, minlength=4)
        assert_near(found[m], torch.from_numpy(counts / max(1, counts.sum())))
