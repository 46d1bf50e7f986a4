"""The hypernetwork, part by part, against PyTorch's and PyTorch Geometric's own layers."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv

from fedquilt.nn.hypernetwork import LAST, Diffusion, Hypernetwork
from fedquilt.nn.models import Gcn
from support.clients import assert_near, doubles

KINDS = get_args(Diffusion)
SHAPES = {"conv1.weight": (3, 2), "conv1.bias": (2,), "deep": (2, 3, 2)}
seeds = st.integers(0, 2**31)


def make(diffusion: Any = "sheaf", **changes: Any) -> Hypernetwork:
    facts = {"inputs": 5, "hidden": 8, "stalk": 2, "layers": 2, "attention": True, "outputs": SHAPES}
    return Hypernetwork(diffusion=diffusion, **(facts | changes))


def common(seed: int = 0) -> dict[str, Tensor]:
    return {name: doubles(seed + i, *shape).float() for i, (name, shape) in enumerate(SHAPES.items())}


def scrambled(net: Hypernetwork, seed: int = 0) -> dict[str, Tensor]:
    """Parameters with nothing left at zero, in double precision; hidden units that all clients use."""
    params = net.start(seed, common())
    drawn = {name: 0.5 * doubles(seed + i, *value.shape) for i, (name, value) in enumerate(params.items())}
    return drawn | {
        name: value.abs() + 1.0 for name, value in drawn.items() if name.startswith("mlp") and "bias" in name
    }


def called(module: torch.nn.Module, parameters: dict[str, Tensor], *inputs: Tensor) -> Tensor:
    assert set(parameters) == {name for name, _ in module.named_parameters()}
    return torch.func.functional_call(module.double(), parameters, inputs)


def complete(count: int) -> Tensor:
    pairs = list(itertools.permutations(range(count), 2))
    return torch.tensor(pairs, dtype=torch.int64).view(-1, 2).T


# -- each part -------------------------------------------------------------------------------------


def sheaf_step(net: Hypernetwork, p: dict[str, Tensor], x: Tensor, layer: int) -> Tensor:
    """Eq. 3 to 5 pair by pair in NumPy."""
    n, d = len(x), net.stalk
    w = {part: p[f"sheaf{layer}.{part}"].numpy() for part in ("own", "other", "stalk", "channel")}
    h, weight = x.numpy(), np.concatenate([w["own"], w["other"]])
    laplacian = np.zeros((d, n, n))
    for u, v in itertools.permutations(range(n), 2):
        mine, theirs = (np.tanh(np.concatenate([h[i], h[j]]) @ weight) for i, j in ((u, v), (v, u)))
        laplacian[:, u, u] += mine**2
        laplacian[:, u, v] -= mine * theirs
    degree = np.einsum("kuu->ku", laplacian)
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0)
    mixed = np.stack([w["stalk"] @ each.reshape(d, -1) @ w["channel"] for each in h])
    flow = np.einsum("ku,kuv,kv,vkf->ukf", scale, laplacian, scale, mixed)
    return x - F.elu(torch.from_numpy(flow.reshape(n, -1)))


def gcn_step(net: Hypernetwork, p: dict[str, Tensor], x: Tensor, layer: int) -> Tensor:
    weights = {"lin.weight": p[f"conv{layer}.weight"].T, "bias": p[f"conv{layer}.bias"]}
    return F.elu(called(GCNConv(net.hidden, net.hidden), weights, x, complete(len(x))))


def gat_step(net: Hypernetwork, p: dict[str, Tensor], x: Tensor, layer: int) -> Tensor:
    weights = {
        "lin.weight": p[f"conv{layer}.weight"].T,
        "att_src": p[f"conv{layer}.source"].T.unsqueeze(0),
        "att_dst": p[f"conv{layer}.target"].T.unsqueeze(0),
        "bias": p[f"conv{layer}.bias"],
    }
    return F.elu(called(GATConv(net.hidden, net.hidden), weights, x, complete(len(x))))


STEPS = {"sheaf": sheaf_step, "gcn": gcn_step, "gat": gat_step}


def reference(net: Hypernetwork, p: dict[str, Tensor], vectors: Tensor) -> Tensor:
    x = F.elu(F.linear(vectors, p["in.weight"].T, p["in.bias"]))
    if net.diffusion != "none":
        for layer in range(net.layers):
            x = STEPS[net.diffusion](net, p, x, layer)
    if net.attention:
        query, key, value = (x @ p[f"attention.{part}"] for part in ("query", "key", "value"))
        x = x + F.scaled_dot_product_attention(query, key, value)
    for layer in range(2):
        x = torch.relu(F.linear(x, p[f"mlp{layer}.weight"].T, p[f"mlp{layer}.bias"]))
    return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_step_equals_the_reference(kind: str, count: int) -> None:
    net = make(kind)
    p, x = scrambled(net), doubles(7, count, 8)
    for layer in range(2):
        assert_near(net.step(p, x, layer), STEPS[kind](net, p, x, layer), 1e-9)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_last_layer_reads_equals_the_reference(kind: str, attention: bool, layers: int) -> None:
    net = make(kind, attention=attention, layers=layers)
    p, vectors = scrambled(net), doubles(3, 6, 5)
    found = net.represent(p, vectors)
    assert found.shape == (6, 8)
    assert_near(found, reference(net, p, vectors), 1e-9)
    assert_near(found.norm(dim=1), torch.ones(6), 1e-9)


def test_generate_is_a_linear_layer_a_weight() -> None:
    net = make()
    p, read = scrambled(net), doubles(1, 4, 8)
    found = net.generate(p, read)
    assert {name: tuple(w.shape) for name, w in found.items()} == {n: (4, *shape) for n, shape in SHAPES.items()}
    for name, w in found.items():
        flat = F.linear(read, p[f"{LAST}{name}.weight"].T, p[f"{LAST}{name}.bias"])
        assert_near(w.flatten(1), flat, 1e-9)
        assert_near(w[2].flatten(), flat[2], 1e-9)


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_those_that_are_declared(kind: str, attention: bool) -> None:
    net = make(kind, attention=attention)
    params = net.start(0, common())
    trunk = {name: tuple(value.shape) for name, value in params.items() if not name.startswith(LAST)}
    assert trunk == net.trunk_shapes()
    parts = {name.split(".")[0].rstrip("0123456789") for name in trunk} - {"in", "mlp"}
    names = {"sheaf": {"sheaf"}, "none": set()}.get(kind, {"conv"})
    assert parts == (names | {"attention"} if attention else names)
    last = {name: tuple(value.shape) for name, value in params.items() if name.startswith(LAST)}
    sizes = {name: int(np.prod(shape)) for name, shape in SHAPES.items()}
    assert last == {f"{LAST}{n}.weight": (8, size) for n, size in sizes.items()} | {
        f"{LAST}{n}.bias": (size,) for n, size in sizes.items()
    }


# -- what it is for --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_everyone_is_written_the_common_start_at_first(kind: str) -> None:
    net, start = make(kind), common()
    params = net.start(0, start)
    for vectors in (torch.zeros(3, 5), doubles(0, 3, 5).float(), 1e6 * doubles(1, 3, 5).float()):
        for name, w in net.generate(params, net.represent(params, vectors)).items():
            assert torch.equal(w, start[name].expand(3, *w.shape[1:]))
    params[f"{LAST}deep.bias"].zero_()
    assert start["deep"].all()  # the given weights are not the bias itself


def test_the_trunk_starts_from_the_seed() -> None:
    one, same, other = (make().start(seed, common()) for seed in (0, 0, 1))
    for name in make().trunk_shapes():
        assert torch.equal(one[name], same[name])
        assert torch.equal(one[name], other[name]) == name.endswith(".bias")


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, count=st.integers(1, 7))
def test_clients_may_come_in_any_order(kind: str, seed: int, count: int) -> None:
    net = make(kind)
    p, vectors = scrambled(net, seed), doubles(seed + 99, count, 5)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    straight, turned = (net.generate(p, net.represent(p, v)) for v in (vectors, vectors[order]))
    for name in SHAPES:
        assert_near(turned[name], straight[name][order], 1e-7)


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_clients_see_each_other_only_through_diffusion_and_attention(kind: str, attention: bool) -> None:
    net = make(kind, attention=attention)
    p, vectors = scrambled(net), doubles(3, 4, 5)
    before = net.represent(p, vectors)
    vectors[3] += 1.0
    after = net.represent(p, vectors)
    alone = kind == "none" and not attention
    assert torch.equal(before[:3], after[:3]) == alone
    assert not torch.allclose(before[3], after[3])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_clients_are_written_equal_weights(kind: str) -> None:
    net = make(kind, layers=1)
    p, vectors = scrambled(net), 2 * doubles(3, 4, 5)
    vectors[2] = vectors[0]
    read = net.represent(p, vectors)
    assert_near(read[2], read[0], 1e-9)
    apart = float((read[1] - read[0]).abs().max())
    # On a complete graph with self-loops, one graph convolution makes everybody equal.
    assert apart < 1e-9 if kind == "gcn" else apart > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 9])
def test_the_same_parameters_serve_any_number_of_clients(kind: str, count: int) -> None:
    net = make(kind)
    p = {name: value.float() for name, value in scrambled(net).items()}
    for vectors in (doubles(1, count, 5).float(), torch.zeros(count, 5)):
        read = net.represent(p, vectors)
        assert read.shape == (count, 8)
        assert bool(torch.isfinite(read).all())
        assert {len(w) for w in net.generate(p, read).values()} == {count}


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_every_parameter(kind: str, attention: bool) -> None:
    """Those of the trunk as soon as the last layer is not zero, and not before.

    One layer of graph attention: where all scores have one sign, what a client asks for does not change what it gets, and
    clients that one layer mixed are that close to each other.
    """
    net = make(kind, attention=attention, layers=1 if kind == "gat" else 2)
    for params in (scrambled(net), {name: value.double() for name, value in net.start(1, common()).items()}):
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        written = net.generate(leaves, net.represent(leaves, 2 * doubles(3, 6, 5)))
        sum((w - 1.0).square().sum() for w in written.values()).backward()
        for name, leaf in leaves.items():
            assert bool(torch.isfinite(leaf.grad).all()), name
            reached = name.startswith(LAST) or bool(params[f"{LAST}deep.weight"].any())
            # After a graph convolution clients are equal, and attention looks at all of them alike whatever it asks.
            indifferent = kind == "gcn" and name in ("attention.query", "attention.key")
            assert (float(leaf.grad.abs().max()) > 1e-9) == (reached and not indifferent), name


def test_gradients_pass_gradcheck() -> None:
    net = make("sheaf", hidden=4, layers=1)
    params = scrambled(net)
    names, vectors = list(net.trunk_shapes()), doubles(5, 3, 5)

    def read(*values: Tensor) -> Tensor:
        return net.represent(dict(zip(names, values, strict=True)), vectors)

    assert torch.autograd.gradcheck(read, tuple(params[name].requires_grad_() for name in names))


def test_it_writes_the_layers_of_a_client_model() -> None:
    """The shapes of a backbone: what is written has the client before everything else, as stacked weights have."""
    shapes = {name: shape for name, shape in Gcn(7, 8, 3).shapes().items() if not name.startswith("classifier.")}
    net = make(outputs=shapes)
    params = net.start(0, {name: doubles(i, *shape).float() for i, (name, shape) in enumerate(shapes.items())})
    written = net.generate(params, net.represent(params, doubles(0, 4, 5).float()))
    assert {name: tuple(w.shape) for name, w in written.items()} == {n: (4, *shape) for n, shape in shapes.items()}
