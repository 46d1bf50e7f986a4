"""FedHERO: Chen et al., FedHERO: A Federated Learning Approach for Node Classification Task on Heterophilic Graphs, 2025.

How neighbours carry labels differs from client to client, so that what one learns about its own graph does not help the others.
Each client therefore also learns which of its nodes should be neighbours: a structure learner, shared by all, builds a
latent graph from features, and on latent graphs clients see alike. Layers that work on the latent graph are averaged; layers
that work on the given graph, and the classifier, stay at home.

    Z^0 = relu(relu(X W_0) W_0')                                  projection f_0
    Z^l = relu(alpha A Z^{l-1} W_local^l + (1 - alpha) A~ Z^{l-1} W_global^l)    two channels a layer (eq. 5), two layers
    y   = softmax([X, Z^0, Z^1, Z^2] W_c)                         eq. 6
    loss = cross-entropy + lambda mean_u sum_v A~_uv |x_u - x_v|^2 + mu mean_u sum_v A~_uv^2    (eq. 7, 8)

Where the code and the paper differ, or the paper leaves it open, and why (measured in `fedquilt docs fidelity`; no public
code was found):

- *Values.* The printed A~ is zero or one and has no gradient. Here the kept scores, made positive and divided by their sum,
  are the edges' weights, so that gradient reaches the learner. `latent_weights=equal` gives all k the same weight, as printed,
  with the gradient of the scores.
- *Propagation.* A Z is a GCN's, D^-1/2 (A + I) D^-1/2. A~ Z is a mean over latent neighbours: rows sum to one, and there is no
  self-loop, but a node is as a rule its own best latent neighbour. `latent_operator=gcn` makes A~ symmetric and adds
  self-loops.
- *Projection.* The text says MLP, the appendix "a feature projection layer". Two layers are better on validation on all five
  graphs that were tried (`projection_layers`). The paper does not say to which channel f_0 belongs. It is averaged: layers can
  only be averaged if what they read means the same everywhere (`share_projection=false` keeps it at home).
- *The learner* reads the features themselves (g_L(X, A) of eq. 2), through one graph convolution of 64 units without an
  activation (`learner_activation` adds a ReLU).
- *Dropout*, of which the paper says nothing, acts on Z^0, Z^1, Z^2 and inside f_0; not on X, nor in the learner (`dropout=0`).
- *Features* are used as the dataset has them; `row_normalise` divides a node's by their sum.
- *Means.* The sums of eq. 7 over all pairs swamp the cross-entropy; they are means over nodes. Distances between features are
  relative to the mean distance of two nodes of the client, so that lambda means the same on every graph. Over more than
  64 features they are those of a random projection to 64, which keeps them on average: exact ones would cost more than all
  the rest of a round.
- *Own features.* On graphs whose features identify nodes the classifier learns its training nodes by heart from X and Z^0. With
  `own_dropout` a node is, while training, now and then classified without them. Off by default, as in the paper.
- *Bernoulli* latent graphs (Table 9) are drawn at inference, as there, each node having k neighbours on average.
- *Equal scores.* Of nodes that score the same the first are taken. Scores that differ by rounding only may be ordered otherwise
  in a cohort of another size; that is the one way in which results depend on it.

Latent graphs that are not learned (`learner=knn`, `random` or `self`, or `train_learner=false`) say what the learned one is
worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, client_keys
from fedquilt.cohort.rows import Rows
from fedquilt.common.random_streams import torch_stream
from fedquilt.devices.offload import CHUNK_ROWS
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RoundSizes, RunContext, State, register
from fedquilt.methods.base_adam import MODEL, AdamMethod, gradients_of, leaves_of
from fedquilt.methods.settings import AdamSettings, Count, NonNegative, Positive, Rate
from fedquilt.methods.sums import mean_of_sums, weighted_summands
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights, linear
from fedquilt.nn.models import Shapes, activate, part
from fedquilt.nn.structure import SAMPLED, Form, Latent, Learner, learn, learner_shapes, sample, start_metric

LEARNER, GLOBAL, LOCAL, PROJECTION = "learner.", "global", "local", "projection."
LAYERS = (1, 2)
START, DIAGNOSTIC = "start.", "diagnostic."  # in the server's state
WEIGHT_NORM, LAYER_SPREAD, LEARNER_SPREAD, LEARNER_CHANGE = (
    "weight_norm",
    "layer_spread",
    "learner_spread",
    "learner_change",
)
NODES = "nodes"
OWN_LAYER = 3  # which of a step's random numbers drop a node's own features
HIDDEN_LAYER = 4  # and those of the hidden layer of a projection of two
SKETCH = 64  # features up to which distances are exact, and the width of their projection beyond


@dataclass(frozen=True)
class FedHEROSettings(AdamSettings):
    """Adam's settings and FedHERO's own.

    Attributes:
        lr: Adam's learning rate.
        hidden: width of the projection and of the layers.
        learner: the structure learner (Table 4): heads (eq. 3), cosine, attention, gat, glcn or gaug; or a latent graph that is
            not learned: knn (nearest features), random, or self (a node is its only neighbour).
        learner_hidden: width of the structure learner's graph convolution.
        heads: N_H, heads of eq. 3.
        k: latent neighbours a node, at least 2: a single one has all the weight, and the learner nothing to learn.
        latent: how latent neighbours are chosen at inference (Table 9): top-k, or bernoulli (drawn, k on average).
        alpha: weight of the given graph's channel, below 1; the latent graph's has the rest.
        smoothness: lambda, how strongly latent neighbours are made to have like features.
        concentration: mu, how strongly a node's weight is spread over its latent neighbours.
        share: what is averaged (Table 5): global (the latent graph's channel and the learner), gcn (both channels' layers), all
            or none.
        share_projection: whether the projection is averaged with the latent graph's channel.
        channels: 2, or 1: given and latent graph go through the same layers (Table 5).
        own_dropout: chance that a node is classified without its own features (X and Z^0) in a training step.
        projection_layers: dense layers of the projection f_0.
        row_normalise: whether a node's features are divided by their sum.
        learner_activation: whether a ReLU follows the structure learner's graph convolution.
        train_learner: whether the structure learner is trained, or stays as it was drawn.
        latent_weights: weights of a node's latent neighbours: their scores, or equal ones as eq. 4 prints them, with the
            gradient of the scores.
        latent_operator: how the latent graph's channel propagates: a mean over latent neighbours, or a GCN (the latent graph
            made symmetric, with self-loops, normalised by D^-1/2 on both sides).
    """

    lr: Positive = 0.005
    hidden: Count = 128
    learner: Learner = "heads"
    learner_hidden: Count = 64
    heads: Count = 4
    k: Annotated[int, Field(ge=2)] = 20
    latent: Literal["top-k", "bernoulli"] = "top-k"
    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.2
    smoothness: NonNegative = 0.1
    concentration: NonNegative = 0.1
    share: Literal["global", "gcn", "all", "none"] = "global"
    share_projection: bool = True
    channels: Literal[1, 2] = 2
    own_dropout: Rate = 0.0
    projection_layers: Literal[1, 2] = 2
    row_normalise: bool = False
    learner_activation: bool = False
    train_learner: bool = True
    latent_weights: Literal["scores", "equal"] = "scores"
    latent_operator: Literal["mean", "gcn"] = "mean"


@register("fedhero")
class FedHERO(AdamMethod):
    """State: the model, of which the latent graph's channel is averaged."""

    title = "FedHERO"
    paper = "Chen et al., 2025"
    admits = True
    newcomers = (
        "A newcomer is given the last average of the structure learner and the latent graph's channel; the given "
        "graph's channel and the classifier it trains at home. It sends nothing."
    )
    Settings = FedHEROSettings
    settings_before = MappingProxyType({"projection_layers": 1})
    searched = (*AdamMethod.searched, "alpha", "smoothness", "concentration")
    settings: FedHEROSettings
    uploads = (
        TensorSpec(
            MODEL + "*",
            "The layers that work on the latent graph, the structure learner and the projection after training (or what "
            "`share` says): an attacker with them may infer properties of the client's nodes.",
            weights=True,
        ),
        TensorSpec(NODES, "How many nodes the client has.", count=True),
    )
    downloads = (TensorSpec(MODEL + "*", "The average of the participants' shared weights.", shared=True),)
    single_uploads = ""

    def __init__(self, settings: FedHEROSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        if settings.latent == "bernoulli" and settings.learner not in SAMPLED:
            raise FedquiltError(
                f"The scores of learner={settings.learner} are no chances; with latent=bernoulli use learner=heads or cosine."
            )

        self.form = Form(
            k=settings.k,
            activation=settings.learner_activation,
            row_normalise=settings.row_normalise,
            binary=settings.latent_weights == "equal",
            symmetric=settings.latent_operator == "gcn",
        )

    def needs_whole_graphs(self) -> str:
        """Its latent graph may join any two nodes."""
        return "its latent graph may join any two nodes of a client"

    def shapes(self) -> Shapes:
        """Projection, learner, the layers of one or two channels, and a classifier of X and all layers."""
        s, context = self.settings, self.context
        learner = learner_shapes(s.learner, context.features, s.learner_hidden, s.heads)
        shapes: Shapes = {PROJECTION + "weight": (context.features, s.hidden), PROJECTION + "bias": (s.hidden,)}
        if s.projection_layers == 2:
            shapes |= {PROJECTION + "second.weight": (s.hidden, s.hidden), PROJECTION + "second.bias": (s.hidden,)}
        shapes |= {LEARNER + name: shape for name, shape in learner.items()}
        for channel in (GLOBAL, LOCAL)[: s.channels]:
            for layer in LAYERS:
                shapes |= {f"{channel}{layer}.weight": (s.hidden, s.hidden), f"{channel}{layer}.bias": (s.hidden,)}
        return shapes | {
            "classifier.raw": (context.features, context.outputs),
            "classifier.weight": ((1 + len(LAYERS)) * s.hidden, context.outputs),
            "classifier.bias": (context.outputs,),
        }

    def common_weights(self, clients: int, device: torch.device) -> Weights:
        """The usual ones, the metric around a plain cosine."""
        weights = super().common_weights(clients, device)
        start_metric(self.settings.learner, part(weights, LEARNER))
        return weights

    def sends(self, name: str) -> bool:
        """What is shared, and the number of nodes where anything is."""
        if name == NODES:
            return self.settings.share != "none"
        return super().sends(name) and self.shares(name.removeprefix(MODEL))

    def shares(self, name: str) -> bool:
        """Whether the weight `name` is averaged."""
        s = self.settings
        if s.share in ("all", "none"):
            return s.share == "all"
        if s.share == "gcn":
            return name.startswith((GLOBAL, LOCAL))
        return name.startswith((GLOBAL, LEARNER)) or (s.share_projection and name.startswith(PROJECTION))

    def averages(self) -> bool:
        """What is shared, if anything is."""
        return self.settings.share != "none"

    # -- at the client -------------------------------------------------------------------------------------------

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The personal models' logits, without dropout."""
        if self.settings.latent == "bernoulli":
            latent = sample(self.settings.learner, cohort, part(personal, LEARNER), self.form, self.draws(cohort))
        else:
            latent = self.latent(personal, cohort)
        return self.outputs(personal, cohort, latent)

    def outputs(self, personal: State, cohort: Cohort, latent: Latent) -> Tensor:
        """Eq. 5 and 6 over this latent graph, without dropout: [R, C]."""
        layers = self.layers(personal, cohort, latent, None)
        z = linear(cohort, torch.cat(layers, dim=1), personal["classifier.weight"], personal["classifier.bias"])
        return z + self.form.own(cohort) @ personal["classifier.raw"]

    def latent(self, w: Weights, cohort: Cohort) -> Latent:
        """The latent graph of the k best neighbours, differentiable in a learner that is trained."""
        learner = part(w, LEARNER)
        if not self.settings.train_learner:
            learner = {name: tensor.detach() for name, tensor in learner.items()}
        draws = self.draws(cohort) if self.settings.learner == "random" else None
        return learn(self.settings.learner, cohort, learner, self.form, draws)

    def draws(self, cohort: Cohort) -> Draws:
        """The random numbers of drawn latent graphs, the same in every round."""
        found: Draws = cohort.once(
            ("latent draws", self.context.seed), lambda c: Draws(client_keys(self.context.seed, c), 0)
        )
        return found

    def representation(self, personal: State, cohort: Cohort) -> Tensor:
        """What the uploaded weights alone make of nodes: [R, H], the second layer's output with alpha = 0, before its ReLU."""
        latent = self.latent(personal, cohort)
        z = self.project(personal, cohort, None)
        for layer in LAYERS:
            shared = part(personal, f"{GLOBAL}{layer}.")
            z = linear(cohort, latent.propagate(cohort, torch.relu(z)), shared["weight"], shared["bias"])
        return z

    def project(self, w: Weights, cohort: Cohort, dropout: Dropout | None) -> Tensor:
        """f_0 before its last ReLU: [R, H]."""
        z = linear(cohort, self.form.own(cohort), w[PROJECTION + "weight"], w[PROJECTION + "bias"])
        if self.settings.projection_layers == 1:
            return z
        z = activate(cohort, z, dropout, HIDDEN_LAYER)
        return cohort.affine(z, w[PROJECTION + "second.weight"], w[PROJECTION + "second.bias"])

    def layers(
        self, w: Weights, cohort: Cohort, latent: Latent, dropout: Dropout | None, training: bool = False
    ) -> list[Tensor]:
        """Z^0, Z^1, Z^2, each [R, H]; with `training` at the training nodes only, [T, H]: the last layer is computed there."""
        z = activate(cohort, self.project(w, cohort, dropout), dropout, 0)
        out = [z]
        for layer in LAYERS:
            rows: Rows = cohort
            if training and layer == LAYERS[-1]:
                rows, out = cohort.training, [z.index_select(0, cohort.training.index) for z in out]
                given, learned = cohort.training.gcn @ z, latent.propagate_training(cohort, z)
            else:
                given, learned = cohort.gcn @ z, latent.propagate(cohort, z)
            z = activate(rows, self.both_channels(w, layer, rows, given, learned), dropout, layer)
            out.append(z)
        return out

    def both_channels(self, w: Weights, layer: int, rows: Rows, given: Tensor, learned: Tensor) -> Tensor:
        """Eq. 5 before its ReLU, of A Z and A~ Z at some rows: [R, H] each -> [R, H]."""
        alpha, shared, own = self.settings.alpha, part(w, f"{GLOBAL}{layer}."), part(w, f"{LOCAL}{layer}.")
        if not own:
            return rows.affine(alpha * given + (1.0 - alpha) * learned, shared["weight"], shared["bias"])
        bias = alpha * own["bias"] + (1.0 - alpha) * shared["bias"]
        z = rows.affine(given, alpha * own["weight"], bias)
        return rows.multiply_add(z, learned, (1.0 - alpha) * shared["weight"])

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """Eq. 8."""
        leaves = leaves_of(self.trained(state))
        error, each, penalty = self.losses(self.weights(leaves), cohort, dropout)
        if self.settings.train_learner:
            return gradients_of(error + penalty, leaves), each
        frozen = {name: torch.zeros_like(w) for name, w in leaves.items() if name.startswith(MODEL + LEARNER)}
        return gradients_of(error + penalty, {n: w for n, w in leaves.items() if n not in frozen}) | frozen, each

    def losses(self, w: Weights, cohort: Cohort, dropout: Dropout) -> tuple[Tensor, Tensor, Tensor]:
        """The two terms of eq. 8, summed over clients, and between them each client's classification loss [M]."""
        rows, rate = cohort.training, self.settings.own_dropout
        latent = self.latent(w, cohort)
        layers = self.layers(w, cohort, latent, dropout, training=True)
        raw = (self.form.own(cohort) @ w["classifier.raw"])[rows.index]
        if rate:
            kept = Dropout(rate, dropout.keys, dropout.step).mask(rows, 1, OWN_LAYER)
            layers[0], raw = layers[0] * kept, raw * kept
        logits = linear(rows, torch.cat(layers, dim=1), w["classifier.weight"], w["classifier.bias"])
        total, each = self.task.training_loss(cohort, logits + raw, dropout.draws)
        return total, each, self.penalty(cohort, latent)

    def penalty(self, cohort: Cohort, latent: Latent) -> Tensor:
        """lambda mean_u sum_v A~_uv d_uv + mu mean_u sum_v A~_uv^2, summed over clients (eq. 7)."""
        s, (links, a) = self.settings, (latent.links, latent.weight)
        apart = distances(cohort, latent)
        each = s.smoothness * a * apart + s.concentration * a.square()
        return cohort.node_mean(links.total(each).unsqueeze(1)).sum()

    # -- messages ------------------------------------------------------------------------------------------------

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The shared weights and the number of nodes, or nothing."""
        message: Message = {MODEL + name: w for name, w in personal.items() if self.shares(name)}
        return message | {NODES: cohort.node_count.float()} if message else {}

    def server_start(self) -> tuple[State, Message]:
        """The common start of the learner, where it is shared, and the diagnostics; nothing is sent."""
        weights = self.common_weights(1, torch.device("cpu"))
        shared = {name for name in weights if self.shares(name)}
        server = {START + name: weights[name][0] for name in shared if name.startswith(LEARNER)}
        found = ([WEIGHT_NORM, LAYER_SPREAD] if shared else []) + ([LEARNER_SPREAD, LEARNER_CHANGE] if server else [])
        return server | {DIAGNOSTIC + name: torch.zeros(()) for name in found} | self.previous_start(), {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """How far some clients at a time are from the average."""
        return super().server_memory(sizes) + 3 * min(sizes.senders, CHUNK_ROWS) * sizes.upload // 5

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """sum_m n_m w_m / sum_m n_m with n_m the nodes of client m."""
        sent = {name: dense(value) for name, value in uploads.items() if name != NODES}
        down = self.average_all(server, sent, dense(uploads[NODES])) if sent else {}
        if sent:
            self.diagnose(server, sent, {name: dense(w) for name, w in down.items()})
        return down

    def summands(self, uploads: Message) -> State:
        """n_m w_m for every shared weight, and n_m."""
        return weighted_summands(uploads, NODES) if uploads else {}

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """sum_m n_m w_m / sum_m n_m; how far clients are from it is not known then."""
        mean = mean_of_sums(sums, NODES)
        self.diagnose(server, None, mean)
        return {**mean}

    def diagnose(self, server: State, sent: State | None, mean: State) -> None:
        """Write what `diagnostics` returns, from the clients' weights [M', ...] (None: unknown) and their mean [...]."""
        layers = [name for name in mean if name.startswith((MODEL + GLOBAL, MODEL + LOCAL))]
        learner = [name for name in mean if name.startswith(MODEL + LEARNER)]
        unknown = torch.tensor(torch.nan)
        layer_spread = unknown if sent is None else spread(sent, mean, layers)
        found = {WEIGHT_NORM: length(mean.values()), LAYER_SPREAD: layer_spread}
        if learner:
            start = {name: server[START + name.removeprefix(MODEL)] for name in learner}
            moved = length(mean[name] - start[name] for name in learner)
            learner_spread = unknown if sent is None else spread(sent, mean, learner)
            found |= {LEARNER_SPREAD: learner_spread, LEARNER_CHANGE: moved / length(start.values())}
        for name, value in found.items():
            server[DIAGNOSTIC + name].copy_(value)

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """Whether what is shared moves, and whether clients agree on it.

        weight_norm      norm of the average of all shared weights
        layer_spread     mean distance of a client's shared layers from their average, over the average's norm
        learner_spread   the same of the structure learner
        learner_change   distance of the average learner from the common start, over the start's norm
        """
        return part(server, DIAGNOSTIC)


def length(tensors: Iterable[Tensor]) -> Tensor:
    """The norm of all entries of some tensors: a scalar."""
    return torch.stack([tensor.square().sum() for tensor in tensors]).sum().sqrt()


def spread(sent: State, mean: State, names: Sequence[str]) -> Tensor:
    """mean_m |w_m - w| / |w| over the weights `names` of M' clients [M', ...] and their mean w: a scalar."""
    apart = torch.stack([_apart(sent[name], mean[name]) for name in names]).sum(0).sqrt()
    return apart.mean() / length(mean[name] for name in names).clamp_min(1e-12)


def _apart(stack: Tensor, mean: Tensor) -> Tensor:
    """|w_m - w|^2 of each client, some clients at a time: [M', ...] and [...] -> [M']."""
    return torch.cat([(some - mean).square().flatten(1).sum(1) for some in stack.split(CHUNK_ROWS)])


@torch.no_grad()
def distances(cohort: Cohort, latent: Latent) -> Tensor:
    """|x_u - x_v|^2 of every latent pair, relative to the mean over all pairs of nodes of the client: [E]."""
    x: Tensor = cohort.once("sketch", sketch)
    length: Tensor = cohort.once("sketch lengths", lambda c: x.square().sum(1))
    u, v = latent.links.source, latent.links.target
    return (length[u] + length[v] - 2.0 * latent.links.dot(x, x)).clamp_min_(0.0)


@torch.no_grad()
def sketch(cohort: Cohort) -> Tensor:
    """Features, or a random projection of them (the same for everyone), in which two nodes are 1 apart on average: [R, d].

    The mean of |x_u - x_v|^2 over all pairs is twice the mean of |x_u - mean|^2.
    """
    width = min(cohort.features, SKETCH)
    turn = torch.eye(cohort.features)
    if width < cohort.features:
        turn = torch.randn(cohort.features, width, generator=torch_stream(0, "sketch")) / width**0.5
    x = cohort.x @ turn.to(cohort.device).expand(cohort.clients, -1, -1).contiguous()
    x = x - cohort.node_mean(x)[cohort.client]
    spread = 2.0 * cohort.node_mean(x.square().sum(1, keepdim=True))
    return x / spread.clamp_min(1e-12).sqrt()[cohort.client]
