"""A hypernetwork: it maps client vectors to the weights of the clients' models, for all clients at once.

    client vectors [N, D] -> diffusion on the collaboration graph -> attention over clients -> MLP -> weights of N clients

Like the models, it declares shapes and computes functions of its parameters; it holds no state. It depends on no other input
than the vectors, so the same parameters work for any number of clients, known or new.

Memory: the last layer dominates, with hidden x P numbers for P generated weights per client (Cora: 100 MB).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.common.random_streams import derive
from fedquilt.nn.layers import SLOPE, Weights
from fedquilt.nn.models import Shapes, common_start
from fedquilt.nn.routing import unit
from fedquilt.nn.sheaf import diffuse, normalised, restriction_maps, sheaf_laplacian

Diffusion = Literal["sheaf", "gcn", "gat", "none"]
LAST = "out."  # prefix of the names of the last layer's parameters


@dataclass(frozen=True)
class Hypernetwork:
    """Generates weights from client vectors.

    Attributes:
        inputs: D, the width of a client vector.
        hidden: the width of the hidden layers.
        stalk: d, the dimension of the sheaf's stalks; divides `hidden`.
        layers: diffusion steps.
        diffusion: how clients exchange information on the complete collaboration graph.
        attention: whether an attention layer follows.
        outputs: the shapes of the generated weights, by name.
    """

    inputs: int
    hidden: int
    stalk: int
    layers: int
    diffusion: Diffusion
    attention: bool
    outputs: Shapes

    def trunk_shapes(self) -> Shapes:
        """The shapes of the parameters of all layers but the last."""
        h, d = self.hidden, self.stalk
        shapes: Shapes = {"in.weight": (self.inputs, h), "in.bias": (h,)}
        for layer in range(self.layers):
            if self.diffusion == "sheaf":
                shapes |= {f"sheaf{layer}.own": (h, d), f"sheaf{layer}.other": (h, d)}
                shapes |= {f"sheaf{layer}.stalk": (d, d), f"sheaf{layer}.channel": (h // d, h // d)}
            elif self.diffusion != "none":
                shapes |= {f"conv{layer}.weight": (h, h), f"conv{layer}.bias": (h,)}
            if self.diffusion == "gat":
                shapes |= {f"conv{layer}.source": (h, 1), f"conv{layer}.target": (h, 1)}
        if self.attention:
            shapes |= {f"attention.{part}": (h, h) for part in ("query", "key", "value")}
        for layer in range(2):
            shapes |= {f"mlp{layer}.weight": (h, h), f"mlp{layer}.bias": (h,)}
        return shapes

    def start(self, seed: int, generated: Weights) -> Weights:
        """Return initial parameters that generate the weights `generated` (no client axis) for every client vector.

        The last layer's matrix is zero and its bias is `generated`. So all clients start with the same weights, as in the other
        methods, and the first step has the scale of a step of local training.
        """
        # Uses its own random stream: the clients' model draws from (seed, "model").
        trunk = common_start(self.trunk_shapes(), derive(seed, "server", "hypernetwork"), 1, torch.device("cpu"))
        params = {name: w[0] for name, w in trunk.items()}
        for name, w in generated.items():
            params[f"{LAST}{name}.weight"] = torch.zeros(self.hidden, w.numel())
            params[f"{LAST}{name}.bias"] = w.flatten().clone()
        return params

    def represent(self, params: Weights, vectors: Tensor) -> Tensor:
        """Compute the input of the last layer, with rows of length one: [N, D] -> [N, hidden]."""
        return self.output(params, self.diffused(params, self.enter(params, vectors)))

    def output(self, params: Weights, x: Tensor) -> Tensor:
        """Apply attention and the MLP to what diffusion gave, and scale rows to length one: [N, hidden] -> [N, hidden]."""
        if self.attention:
            query, key, value = (x @ params[f"attention.{part}"] for part in ("query", "key", "value"))
            x = x + torch.softmax(query @ key.T / self.hidden**0.5, dim=1) @ value
        for layer in range(2):
            x = torch.relu(x @ params[f"mlp{layer}.weight"] + params[f"mlp{layer}.bias"])
        return unit(x)

    def enter(self, params: Weights, vectors: Tensor) -> Tensor:
        """Apply the first layer: [N, D] -> [N, hidden]."""
        return F.elu(vectors @ params["in.weight"] + params["in.bias"])

    def diffused(self, params: Weights, x: Tensor) -> Tensor:
        """Apply all steps of diffusion: [N, hidden] -> [N, hidden]."""
        for layer in range(self.layers if self.diffusion != "none" else 0):
            x = self.step(params, x, layer)
        return x

    def step(self, params: Weights, x: Tensor, layer: int) -> Tensor:
        """Apply one step of diffusion on the complete graph: [N, hidden] -> [N, hidden]."""
        if self.diffusion == "sheaf":
            p = {part: params[f"sheaf{layer}.{part}"] for part in ("own", "other", "stalk", "channel")}
            laplacian = normalised(sheaf_laplacian(restriction_maps(x, p["own"], p["other"])))
            return diffuse(x.view(len(x), self.stalk, -1), laplacian, p["stalk"], p["channel"]).flatten(1)
        z = x @ params[f"conv{layer}.weight"]
        if self.diffusion == "gcn":  # with self-loops, a complete graph's normalised adjacency is 1 / N everywhere
            mixed = z.mean(0, keepdim=True).expand_as(z)
        else:
            score = (z @ params[f"conv{layer}.target"]) + (z @ params[f"conv{layer}.source"]).T
            mixed = torch.softmax(F.leaky_relu(score, SLOPE), dim=1) @ z
        return F.elu(mixed + params[f"conv{layer}.bias"])

    def generate(self, params: Weights, represented: Tensor) -> Weights:
        """Apply the last layer: [N, hidden] -> the weights of N clients by name, leading axis the client."""
        return {
            name: torch.addmm(params[f"{LAST}{name}.bias"], represented, params[f"{LAST}{name}.weight"]).view(
                -1, *shape
            )
            for name, shape in self.outputs.items()
        }
