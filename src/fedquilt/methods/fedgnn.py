"""FedGNN: Wu et al., FedGNN: Federated Graph Neural Network for Privacy-Preserving Recommendation, 2021.

Clients pool what they learn as in FedAvg, and expand their graphs by nodes of others: each sends the embeddings of some of its
nodes, the server finds those of different clients that look alike (cosine above `threshold`), and sends each client the ones
nearest to its own. There they are further neighbours in the last graph layer. What single nodes look like leaves the client,
which a site has to permit by name.

The paper is about a recommender, where users join who rated the same item. The papers that compare it on subgraphs, where
nobody has the same nodes, join nodes whose similarity is above 0.5; they print no code for it. Where this leaves things open,
or we differ, and why (what was measured is in `fedquilt docs fidelity`):

- *What is compared* is the output of the last but one graph layer before its ReLU, without dropout: raw features stay at home.
  What a client receives in a round was computed with the models of the round before.
- *Which nodes.* A client shares `shared_nodes` of its nodes, the same ones throughout, so that the others stay unknown for
  good. It is sent the `look_alikes` nearest embeddings of others, and joins each of *all* its nodes to at most `neighbours` of
  them that are above the threshold: so it does not matter which nodes were drawn, and a model works on any graph.
- *Weights are averaged*, as in the other methods here, where the paper pools gradients (at one local epoch of plain gradient
  descent that is the same).
- *Protection.* The paper clips gradients and adds Laplace noise to them, adds pseudo items, and has a third party match
  encrypted items. Here the server sees embeddings. `noise` adds noise to them, with rows cut to the length `bound`; protecting
  all that is sent is the business of `fedquilt docs privacy`, for every method.
- *Many clients.* The server chooses among at most 16,384 embeddings a round, drawn anew from all it knows.

Memory: shared_nodes * width numbers for each client at the server, and nodes * look_alikes similarities at a client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, advanced
from fedquilt.common.random_streams import derive
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RoundSizes, RunContext, State, Update, register
from fedquilt.methods.base_adam import CLOCK, KEYS, MODEL, gradients_of, leaves_of
from fedquilt.methods.fedavg import AVERAGE, TRAIN_NODES, WEIGHTS, FedAvg
from fedquilt.methods.settings import BackboneSettings, Count, NonNegative, Positive
from fedquilt.nn import layers
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.look_alikes import CHUNK, Joined, choose_look_alikes, expanded_gcn, expanded_sage, join
from fedquilt.nn.model import LayeredModel, activate, part
from fedquilt.nn.node_sample import NodeSample, other_rows, sample_nodes

NODES, COUNT, ALIKE = "node.embedding", "node.count", "alike"
JOINED_COUNT, JOINED_TOTAL = "joined.count", "joined.total"
KNOWN, TURN, DIAGNOSTIC = "known", "turn", "diagnostic."
NOTED = ("look_alikes", "nearest_cosine", "nodes_above_threshold")
POOL = 16_384  # embeddings among which the server chooses in a round, at most
SAMPLE_LAYER, NOISE_LAYER = 48, 49  # of the clients' random numbers


@dataclass(frozen=True)
class FedGNNSettings(BackboneSettings):
    """FedAvg's settings and FedGNN's own.

    Attributes:
        threshold: the cosine of two embeddings above which nodes look alike.
        shared_nodes: how many of its nodes a client sends embeddings of.
        look_alikes: how many embeddings of others' nodes a client is sent at most.
        neighbours: how many of them a node is joined to at most; 0: nothing of nodes is sent, which is FedAvg.
        noise: added to each number of an embedding that is sent: its scale (the standard deviation of Gaussian noise) over
            `bound`; 0: none.
        noise_kind: gaussian or laplace.
        bound: where there is noise, the length to which longer embeddings are cut before.
        shuffle: the permutation test: each node is joined to the look-alikes of another node of its client.
    """

    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    shared_nodes: Count = 64
    look_alikes: Count = 64
    neighbours: Annotated[int, Field(ge=0)] = 2
    noise: NonNegative = 0.0
    noise_kind: Literal["gaussian", "laplace"] = "gaussian"
    bound: Positive = 1.0
    shuffle: bool = False


@register("fedgnn")
class FedGNN(FedAvg):
    """State: besides FedAvg's the look-alikes that were received last (``alike``), which the personal model needs too."""

    title = "FedGNN"
    paper = "Wu et al., 2021"
    newcomers = (
        "A newcomer is given the last average, trains it for a round, sends embeddings of some of its nodes with "
        "their number, and is given embeddings of others' nodes that look like them."
    )
    baseline = True
    Settings = FedGNNSettings
    settings: FedGNNSettings
    searched = (*FedAvg.searched, "neighbours", "threshold")
    any_module = False
    single_uploads = "server compares the embeddings of single nodes of different clients"
    uploads = (
        WEIGHTS,
        TRAIN_NODES,
        TensorSpec(
            NODES,
            "For each of a fixed sample of the client's nodes (persons, where nodes are persons) a row of numbers that the "
            "model computes from the node's features and its neighbours: who has it can tell which nodes of different clients "
            "are alike or the same, and may infer a node's features and label. The server passes some on to other clients.",
            nodes=True,
        ),
        TensorSpec(COUNT, "How many nodes the sample has: all of the client's, where it has fewer.", count=True),
    )
    downloads = (
        AVERAGE,
        TensorSpec(
            ALIKE,
            "Rows that other clients sent of single nodes of theirs, those most like this client's, without saying whose they "
            "are; they stay in the client's personal model.",
        ),
    )

    def __init__(self, settings: FedGNNSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        if settings.model not in ("gcn", "sage"):
            raise FedquiltError(
                f"FedGNN joins look-alikes as neighbours in layers of model=gcn or model=sage, not {settings.model}."
            )
        if settings.layers < 2:
            raise FedquiltError("FedGNN compares what comes before the last graph layer, so it needs layers=2 or more.")
        super().__init__(settings, context, averaging)

    @property
    def expands(self) -> bool:
        """Whether graphs are expanded; else this is FedAvg."""
        return self.settings.neighbours > 0

    def needs_whole_graphs(self) -> str:
        """Clients exchange embeddings of single nodes."""
        return "clients exchange embeddings of single nodes, which a part of a graph may lack"

    def sends(self, name: str) -> bool:
        """Nothing of single nodes where none are joined."""
        return super().sends(name) and (self.expands or name not in (NODES, COUNT))

    # -- at the client -------------------------------------------------------------------------------------------

    def private(self, weights: Weights) -> State:
        """No look-alikes yet: [M, look_alikes, H] zeros."""
        if not self.expands:
            return {}
        some = next(iter(weights.values()))
        return {ALIKE: some.new_zeros(len(some), self.settings.look_alikes, self.settings.hidden)}

    def receive(self, state: State, down: Message) -> None:
        """The average, and the look-alikes."""
        super().receive(state, down)
        if ALIKE in down:
            state[ALIKE].copy_(dense(down[ALIKE]))

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Join the nodes to their look-alikes by the received model, which stays so for the round, and train."""
        self.receive(state, down)
        if self.expands:
            joined = self.joined(self.personal(state), cohort)
            down = {**down, JOINED_COUNT: joined.count, JOINED_TOTAL: joined.total}
        return self.train(state, cohort, down, self.steps(round))

    def personal(self, state: State) -> State:
        """The weights and the look-alikes."""
        return self.weights(state) | {name: state[name] for name in (ALIKE,) if name in state}

    def embedding(self, cohort: Cohort, weights: Weights, dropout: Dropout | None = None) -> Tensor:
        """What nodes are compared by: the output of all graph layers but the last, before the ReLU, [R, H]."""
        model = self.backbone
        z = model.first(cohort, part(weights, "conv1."))
        for number in range(2, model.layers):
            z = model.second(cohort, activate(cohort, z, dropout, number - 2), part(weights, f"conv{number}."))
        return z

    @property
    def backbone(self) -> LayeredModel:
        """The backbone, which is one of ours."""
        assert isinstance(self.model, LayeredModel)
        return self.model

    @torch.no_grad()
    def joined(self, personal: State, cohort: Cohort, z: Tensor | None = None) -> Joined:
        """Which look-alikes each node is joined to, by what the model says of it."""
        s = self.settings
        z = self.embedding(cohort, personal) if z is None else z
        found = join(cohort, z.detach(), personal[ALIKE].detach(), s.neighbours, s.threshold)
        if not s.shuffle:
            return found
        other = other_rows(cohort)
        return Joined(found.count[other], found.total[other])

    def outputs(
        self, cohort: Cohort, weights: Weights, z: Tensor, joined: Joined, dropout: Dropout | None, training: bool
    ) -> Tensor:
        """The logits from the embeddings z, with look-alikes in the last graph layer: at all rows, or the training rows."""
        last = self.backbone.layers
        h = activate(cohort, z, dropout, last - 2)
        layer = expanded_gcn if self.settings.model == "gcn" else expanded_sage
        z = layer(cohort, h, joined, training=training, **part(weights, f"conv{last}."))
        rows = cohort.training if training else cohort
        h = activate(rows, z, dropout, last - 1)
        return layers.linear(rows, h, weights["classifier.weight"], weights["classifier.bias"])

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradient of the task's loss on the expanded graph, and each client's loss [M]."""
        if not self.expands:
            return super().gradients(state, cohort, dropout, down)
        leaves = leaves_of(self.weights(state))
        z = self.embedding(cohort, leaves, dropout)
        joined = Joined(dense(down[JOINED_COUNT]), dense(down[JOINED_TOTAL]))
        logits = self.outputs(cohort, leaves, z, joined, dropout, training=True)
        total, each = self.task.training_loss(cohort, logits, dropout.draws)
        return {MODEL + name: grad for name, grad in gradients_of(total, leaves).items()}, each

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The outputs on the expanded graph, without dropout."""
        if not self.expands:
            return super().logits(personal, cohort)
        z = self.embedding(cohort, personal)
        return self.outputs(cohort, personal, z, self.joined(personal, cohort, z), None, training=False)

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """FedAvg's upload, and the embeddings of the sampled nodes."""
        message = super().upload(state, self.weights(state), cohort, down)
        if not self.expands:
            return message
        sample = sample_nodes(cohort, self.context.seed, self.settings.shared_nodes, SAMPLE_LAYER)
        with torch.no_grad():
            rows = self.noised(sample.of(self.embedding(cohort, personal)), sample, state)
        return message | {NODES: rows, COUNT: sample.count}

    def noised(self, rows: Tensor, sample: NodeSample, state: State) -> Tensor:
        """Embeddings [M, S, H] as they are sent: cut to `bound`, with noise of the round, where there is any."""
        s = self.settings
        if not s.noise:
            return rows
        length = torch.linalg.vector_norm(rows, dim=2, keepdim=True)
        cut = rows * (s.bound / length.clamp_min(s.bound))
        draws = Draws(advanced(state[KEYS], state[CLOCK]), 0)
        width = rows.shape[2]
        if s.noise_kind == "gaussian":
            drawn = draws.normal(sample, width, NOISE_LAYER)
        else:
            centred = draws.words(sample, width, NOISE_LAYER).float().mul_(2.0**-32)  # in [-0.5, 0.5]
            drawn = -centred.sign() * torch.log((1.0 - 2.0 * centred.abs()).clamp_min(2.0**-31))
        return torch.where(sample.real.unsqueeze(2), cut + s.noise * s.bound * drawn.view(rows.shape), 0.0)

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """No embedding known yet; nothing is sent."""
        server = self.previous_start()
        if self.expands:
            s = self.settings
            server[KNOWN] = torch.zeros(self.context.clients, s.shared_nodes, s.hidden)
            server[TURN] = torch.zeros(1, dtype=torch.int64)
            server |= {DIAGNOSTIC + name: torch.zeros(()) for name in NOTED}
        return server, {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """Besides FedAvg's, the embeddings of all, those among which it chooses, and a chunk of similarities."""
        base = super().server_memory(sizes)
        if not self.expands:
            return base
        s, clients = self.settings, self.context.clients
        known = clients * s.shared_nodes
        pool = min(known, POOL)
        size = min(sizes.receivers, max(1, CHUNK // (s.shared_nodes * pool)))
        return (
            base
            + 4 * (known + 2 * pool + 2 * sizes.receivers * s.shared_nodes) * s.hidden
            + 4 * size * s.shared_nodes * pool
        )

    @torch.no_grad()
    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """FedAvg's average, and for each receiver the look-alikes among what the others sent last."""
        averaged = super().aggregate(
            server, {n: v for n, v in uploads.items() if n not in (NODES, COUNT)}, senders, receivers
        )
        if not self.expands:
            return averaged
        rows = dense(uploads[NODES])
        real = torch.arange(rows.shape[1], device=rows.device) < dense(uploads[COUNT]).unsqueeze(1)
        server[KNOWN][senders] = torch.where(real.unsqueeze(2), rows, 0.0)
        return averaged | {ALIKE: self.choose(server, receivers)}

    def choose(self, server: State, receivers: Tensor) -> Tensor:
        """The look-alikes of each receiver: [n, look_alikes, H], zero rows where there are fewer."""
        s, known = self.settings, server[KNOWN]
        total = known.shape[0] * known.shape[1]
        pool = self.pool(server[TURN], total)
        server[TURN] += 1
        others, owners = known.flatten(0, 1), torch.arange(total, device=known.device) // known.shape[1]
        if pool is not None:
            others, owners = others[pool], owners[pool]
        count = min(s.look_alikes, len(others))
        mine = known[receivers]
        chosen, found, nearest = choose_look_alikes(mine, receivers, others, owners, count, s.threshold)
        shared = (mine != 0).any(2)
        many = shared.sum().clamp_min(1)
        values = (
            found.float().mean(),
            torch.where(shared, nearest, 0.0).sum() / many,
            (shared & (nearest > s.threshold)).sum() / many,
        )
        for name, value in zip(NOTED, values, strict=True):
            server[DIAGNOSTIC + name].copy_(value)
        return torch.nn.functional.pad(chosen, (0, 0, 0, s.look_alikes - count))

    def newcomer_sends(self) -> tuple[str, ...]:
        """The embeddings of its sampled nodes, where graphs are expanded."""
        return (NODES, COUNT) if self.expands else ()

    def newcomer_state(self, server: State) -> State:
        """The last average, and the embeddings of those who trained."""
        return super().newcomer_state(server) | {name: server[name] for name in (KNOWN,) if name in server}

    def newcomer_greeting(self, server: State) -> Message:
        """The last average."""
        return super().newcomer_download(server, {})

    def newcomer_download(self, server: State, uploads: Message) -> Message:
        """The last average, and for each newcomer the look-alikes among what those sent who trained."""
        average = super().newcomer_download(server, uploads)
        if NODES not in uploads:
            return average
        mine, known = dense(uploads[NODES]), server[KNOWN]
        real = torch.arange(mine.shape[1], device=mine.device) < dense(uploads[COUNT]).unsqueeze(1)
        others, owners = (
            known.flatten(0, 1),
            torch.arange(len(known), device=known.device).repeat_interleave(known.shape[1]),
        )
        pool = self.pool(torch.zeros(1, dtype=torch.int64, device=known.device), len(others))
        if pool is not None:
            others, owners = others[pool], owners[pool]
        count = min(self.settings.look_alikes, len(others))
        nobody = torch.full_like(owners[:1], -1).expand(len(mine))
        mine = torch.where(real.unsqueeze(2), mine, 0.0)
        chosen = choose_look_alikes(mine, nobody, others, owners, count, self.settings.threshold)[0]
        return average | {ALIKE: torch.nn.functional.pad(chosen, (0, 0, 0, self.settings.look_alikes - count))}

    def pool(self, turn: Tensor, total: int) -> Tensor | None:
        """Which of `total` embeddings the server chooses among in its turn [1]: [POOL] indices; None: all of them."""
        if total <= POOL:
            return None
        keys = torch.arange(total, device=turn.device) + derive(self.context.seed, "server", "pool")
        return Draws(advanced(keys, turn), 0).keyed(0)[0].argsort()[:POOL]

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """How many look-alikes a client was sent, the mean cosine of a shared node with the nearest, and the share above."""
        return {name: server[DIAGNOSTIC + name] for name in NOTED if DIAGNOSTIC + name in server}
