"""PyTorch Geometric's own layers, in double precision, run client by client with the client's own weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from support.clients import dense_features, edge_index

Weights = dict[str, Tensor]
Layer = Callable[[Client, Tensor, Weights], Tensor]


def call(module: torch.nn.Module, parameters: Weights, *arguments: Tensor) -> Tensor:
    """The module's output with these tensors in place of its parameters, so that gradients reach them."""
    assert set(parameters) == {name for name, _ in module.named_parameters()}
    return torch.func.functional_call(module.double(), parameters, arguments)


def linear(client: Client, h: Tensor, w: Weights) -> Tensor:
    module = torch.nn.Linear(*w["weight"].shape)
    return call(module, {"weight": w["weight"].T, "bias": w["bias"]}, h)


def gcn(client: Client, h: Tensor, w: Weights) -> Tensor:
    module = GCNConv(*w["weight"].shape)
    return call(module, {"lin.weight": w["weight"].T, "bias": w["bias"]}, h, edge_index(client))


def sage(client: Client, h: Tensor, w: Weights) -> Tensor:
    module = SAGEConv(*w["weight"].shape, aggr="mean")
    parameters = {"lin_l.weight": w["weight"].T, "lin_l.bias": w["bias"], "lin_r.weight": w["root"].T}
    return call(module, parameters, h, edge_index(client))


def gat(client: Client, h: Tensor, w: Weights) -> Tensor:
    heads, out = w["source"].shape
    module = GATConv(w["weight"].shape[0], out, heads=heads)
    parameters = {
        "lin.weight": w["weight"].T,
        "att_src": w["source"].unsqueeze(0),
        "att_dst": w["target"].unsqueeze(0),
        "bias": w["bias"],
    }
    return call(module, parameters, h, edge_index(client))


def gin(client: Client, h: Tensor, w: Weights) -> Tensor:
    inside, out = w["weight"].shape
    norm = torch.nn.LayerNorm(out, elementwise_affine=False)
    mlp = torch.nn.Sequential(torch.nn.Linear(inside, out), norm, torch.nn.ReLU(), torch.nn.Linear(out, out))
    parameters = {
        "nn.0.weight": w["weight"].T,
        "nn.0.bias": w["bias"],
        "nn.3.weight": w["second.weight"].T,
        "nn.3.bias": w["second.bias"],
    }
    return call(GINConv(mlp), parameters, h, edge_index(client))


LAYERS: dict[str, Layer] = {"mlp": linear, "gcn": gcn, "sage": sage, "gat": gat, "gin": gin}


def model(
    kind: str, client: Client, w: Weights, keeps: tuple[Tensor, Tensor] | None = None, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Logits and embedding of one client: two layers and a classifier, with dropout masks if given."""

    def part(prefix: str) -> Weights:
        return {name.removeprefix(prefix): t for name, t in w.items() if name.startswith(prefix)}

    layer = LAYERS[kind]
    first, second = (1.0, 1.0) if keeps is None else (keep.double() * scale for keep in keeps)
    h = torch.relu(layer(client, features(client), part("conv1."))) * first
    z = layer(client, h, part("conv2."))
    return linear(client, torch.relu(z) * second, part("classifier.")), z


def features(client: Client) -> Tensor:
    return torch.from_numpy(dense_features(client)).double()


def random_weights(shapes: dict[str, tuple[int, ...]], clients: int, seed: int) -> Weights:
    """Stacked float32 weights [M, ...] that differ from client to client, biases too."""
    stream = torch.Generator().manual_seed(seed)
    return {name: torch.randn(clients, *shape, generator=stream) / 2 for name, shape in shapes.items()}


def leaves(weights: Weights) -> Weights:
    return {name: w.clone().requires_grad_() for name, w in weights.items()}


def of_client(weights: Weights, m: int) -> Weights:
    """Client m's own weights, double precision, to differentiate by."""
    return {name: w[m].detach().double().requires_grad_() for name, w in weights.items()}


def random_rows(cohort: Cohort, width: int, seed: int, fill: float) -> tuple[Tensor, list[Tensor]]:
    """Random rows [R, width] with `fill` in the padding, and each client's part of them."""
    stream = torch.Generator().manual_seed(seed)
    parts = [torch.randn(n, width, generator=stream) for n in cohort.sizes]
    return cohort.rows_of(parts, fill), parts
