"""FedStar: Tan et al., Federated Learning on Non-IID Graphs via Structural Knowledge Sharing, AAAI 2023.

Features of different owners may mean different things, but a hub is a hub everywhere. Every node gets a structure embedding
from its degree and from random walks, which no feature enters. A network of two channels reads both: the structure channel is
averaged over clients, the feature channel, which is given the structure channel's output at every layer, and the classifier
stay at home.

Where the code and the paper differ, or the paper leaves it open, and why (measured in `fedquilt docs fidelity`):

- *Nodes, not graphs.* The paper classifies graphs: its network sums over nodes before a layer and the classifier. Here the
  same layer and classifier read every node.
- *Layers.* The paper has three GIN layers of 64 units; the tables of the subgraph papers have two GCN layers. `model`, `layers`
  and `hidden` choose; the structure channel is a GCN with tanh, as in the paper's code.
- *Two linear maps in a row* (the join, and the layer after pooling) are one here, with a ReLU and dropout after it.
- *Isolated nodes* have no walk: their chances are zero, and their degree counts as one, as in the paper's code.
- *Edge weights*, where a graph has any, are the chances of a walk's steps.

`structure=shuffled` gives a node the structure of another one, and `none` takes it away: what the mechanism is worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.devices.offload import CHUNK_ROWS
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.base import RoundSizes, State, register
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.fedavg import TRAIN_NODES, FedAvg
from fedquilt.methods.fedhero import length, spread
from fedquilt.methods.settings import BackboneSettings, Count
from fedquilt.nn.model import LayeredModel
from fedquilt.nn.models import Model, Network, part
from fedquilt.nn.random_walks import Structure
from fedquilt.nn.two_channels import STRUCTURE, TwoChannels

START, DIAGNOSTIC = "start.", "diagnostic."  # in the server's state
SPREAD, CHANGE = "structure_spread", "structure_change"


@dataclass(frozen=True)
class FedStarSettings(BackboneSettings):
    """The backbone's settings and FedStar's own.

    Attributes:
        model: the feature channel's layers: gcn, sage, gat, gin or mlp.
        walks: random walks are followed for so many steps; a node has a number for each.
        degrees: numbers of neighbours that are told apart; more count as so many.
        structure: which structure embeddings there are: both, only walks or only degrees; shuffled among a client's nodes; or
            none, zeros in their place.
    """

    walks: Count = 16
    degrees: Count = 16
    structure: Structure = "both"


@register("fedstar")
class FedStar(FedAvg):
    """FedAvg on the structure channel only. The server keeps the common start of it, for its diagnostics."""

    title = "FedStar"
    paper = "Tan et al., AAAI 2023"
    newcomers = (
        "A newcomer is given the last average of the structure channel; its feature channel and classifier it "
        "trains at home. It sends nothing."
    )
    baseline = True
    Settings = FedStarSettings
    settings: FedStarSettings
    any_module = False
    searched = (*BackboneMethod.searched, "hidden")
    uploads = (
        TensorSpec(
            f"{MODEL}{STRUCTURE}.*",
            "The layers that read how the client's graph is linked (degrees and random walks), after training. They never see "
            "features, but what they learned of the labels may hint at how the client's classes are linked.",
            weights=True,
        ),
        TRAIN_NODES,
    )
    downloads = (
        TensorSpec(f"{MODEL}{STRUCTURE}.*", "The average of the participants' structure layers.", shared=True),
    )

    def make_model(self) -> Network:
        """Two channels, of which the feature channel has the layers that the settings name."""
        s, context = self.settings, self.context
        kind = Model.kinds.get(s.model)
        if kind is None or not issubclass(kind, LayeredModel):
            *able, last = (name for name, other in Model.kinds.items() if issubclass(other, LayeredModel))
            raise FedquiltError(
                f"FedStar joins its two channels before every graph layer, which model={s.model} does not allow; choose "
                f"{', '.join(able)} or {last}."
            )
        layer = kind(context.features, s.hidden, context.outputs, s.layers)
        return TwoChannels(layer, s.walks, s.degrees, s.structure)

    def shares(self, name: str) -> bool:
        """The structure channel."""
        return name.startswith(STRUCTURE)

    def needs_whole_graphs(self) -> str:
        """Random walks go over the whole graph."""
        return "its structure channel reads random walks over the whole graph"

    def ignores_edge_weights(self) -> str:
        """The structure channel uses them in any case."""
        return ""

    def server_start(self) -> tuple[State, Message]:
        """The common start of the structure channel, and the diagnostics; nothing is sent."""
        weights = self.common_weights(1, torch.device("cpu"))
        server = {START + name: w[0] for name, w in weights.items() if self.shares(name)}
        return server | {DIAGNOSTIC + name: torch.zeros(()) for name in (SPREAD, CHANGE)} | self.previous_start(), {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """How far some clients at a time are from the average."""
        return super().server_memory(sizes) + 4 * min(sizes.senders, CHUNK_ROWS) * sizes.upload // 5

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """sum_m n_m w_m / sum_m n_m for the structure channel."""
        down = super().aggregate(server, uploads, senders, receivers)
        self.diagnose(server, {name: dense(w) for name, w in uploads.items()}, {n: dense(w) for n, w in down.items()})
        return down

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """The same from sums; how far clients are apart is not known then."""
        down = super().aggregate_sums(server, sums, receivers)
        self.diagnose(server, None, {name: dense(w) for name, w in down.items()})
        return down

    def diagnose(self, server: State, sent: State | None, mean: State) -> None:
        """Write what `diagnostics` returns, from the clients' weights [n, ...] (None: unknown) and their mean [...]."""
        names = list(mean)
        start = {name: server[START + name.removeprefix(MODEL)] for name in names}
        moved = length(mean[name] - start[name] for name in names) / length(start.values())
        server[DIAGNOSTIC + CHANGE].copy_(moved)
        server[DIAGNOSTIC + SPREAD].copy_(torch.tensor(torch.nan) if sent is None else spread(sent, mean, names))

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """Whether what is shared moves, and whether clients agree on it.

        structure_spread   mean distance of a client's structure channel from the average, over the average's norm
        structure_change   distance of the average from the common start, over the start's norm
        """
        return part(server, DIAGNOSTIC)
