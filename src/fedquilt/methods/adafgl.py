"""AdaFGL: Li et al., AdaFGL: A New Paradigm for Federated Node Classification with Topology Heterogeneity, ICDE 2024.

First clients train a common model by FedAvg: the federated knowledge extractor. Then each client trains at home, and nothing
crosses any more: what the extractor says of its nodes gives it edges between nodes of the same kind beside its own, along which
features spread. One network is read in two ways, as if the graph were homophilous (near to the extractor) and as if it were
heterophilous (features alone, and messages that attract and repel), and a client's Homophily Confidence Score says how much of
each its predictions have.

The extractor's rounds are not evaluated: its models are not this method's result, and FedAvg's own row has the same numbers.
The rounds that a run asks for are the extractor's, and `personal_rounds` come after them.

Where the code and the paper differ, and why (what was measured is in `fedquilt docs fidelity`):

- *No matrix of all pairs.* The paper's propagation matrix is alpha A + (1 - alpha) Y Y^T with the extractor's soft labels Y,
  over all pairs of nodes. Here Y has rows of unit length, so that an entry is a cosine, and both parts are normalised
  symmetrically before they are mixed: otherwise the second, with some n / C entries a row, drowns the first whatever alpha is.
  It has rank C and is never written out (`fedquilt.nn.knowledge_propagation`). The public code writes it out and keeps entries
  over 0.999.
- *Positive and negative messages.* The paper splits a learned matrix of all pairs, less its mean, into its positive and its
  negative part, and subtracts the messages along the second from those along the first. With equal gains the difference is the
  product with the matrix itself. Here the mean is what two nodes' degrees let expect (as in modularity), the two gains are
  learned, and again nothing is written out.
- *One hidden layer.* The smoothed embedding (which both readings have) and the message embedding read the same hidden layer of
  the smoothed features; the public code has one each, twice the weights.
- *Knowledge preservation.* The squared distance between the smoothed embedding's probabilities and the extractor's counts as
  much as the client's Homophily Confidence Score, since it belongs to the homophilous reading.
- *The score.* Each half of the training labels is masked in turn (the paper masks one random half), so that nothing is drawn
  and each label counts once.
- The extractor of a personal model is the last average, the same for everyone; a client that was away is sent it later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.messages.message import Message, dense
from fedquilt.methods.base import LAST_SENT, Phase, State, Update, register
from fedquilt.methods.base_adam import MODEL, gradients_of, leaves_of
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.settings import BackboneSettings, NonNegative, Share
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.homophily_confidence import HOMOPHILY_CONFIDENCE, homophily_confidence
from fedquilt.nn.knowledge_propagation import Kernel, Propagation
from fedquilt.nn.layers import Weights, linear
from fedquilt.nn.models import Shapes, activate, common_start, part
from fedquilt.nn.optim import STEP

HOME, EXTRACTOR, BEGUN = "home.", "extractor.", "home.begun"
SOFT = "soft_labels"  # what the extractor says of the client's nodes, beside the download: it never crosses
SMOOTHED, FEATURES = 0, 1  # layers of dropout
TINY = 1e-12


@dataclass(frozen=True)
class AdaFglSettings(BackboneSettings):
    """The extractor's settings and AdaFGL's own.

    Attributes:
        personal_rounds: rounds at home after those of the extractor; 0: as many as those.
        alpha: the share of the graph's own edges in the propagation matrix; the rest are nodes of which the extractor says the
            same.
        steps: how many steps features spread along it.
        beta: the share of the propagation matrix in the messages; the rest is learned.
        preserve: how strongly the homophilous reading is held near the extractor.
        reading: both, by the Homophily Confidence Score; or homophilous or heterophilous alone.
    """

    personal_rounds: Annotated[int, Field(ge=0)] = 0
    alpha: Share = 0.5
    steps: Annotated[int, Field(ge=1, le=16)] = 2
    beta: Share = 0.5
    preserve: NonNegative = 1.0
    reading: Literal["both", "homophilous", "heterophilous"] = "both"


@dataclass(frozen=True, eq=False)
class Heads:
    """The logits of the three embeddings, [R, C] each: smoothed features, features alone, messages."""

    smoothed: Tensor
    features: Tensor
    messages: Tensor


@register("adafgl")
class AdaFgl(FedAvg):
    """The extractor's weights are named as FedAvg's, those that are trained at home begin with ``home.``."""

    title = "AdaFGL"
    paper = "Li et al., ICDE 2024"
    newcomers = (
        "A newcomer is given the extractor, the last average, and trains its own network at home on what that says; "
        "it sends nothing."
    )
    baseline = True
    Settings = AdaFglSettings
    settings: AdaFglSettings
    searched = (*FedAvg.searched, "alpha", "beta")

    def phases(self, rounds: int) -> tuple[Phase, ...]:
        """The extractor's rounds, whose models are not the method's result, and those at home."""
        at_home = self.settings.personal_rounds or rounds
        return Phase("extractor", rounds, evaluated=False), Phase("personal", at_home, sends=False)

    def needs_whole_graphs(self) -> str:
        """Its readings are of soft labels at all nodes."""
        return "its readings propagate soft labels over the whole graph"

    def needs_classes(self) -> bool:
        """Nodes are alike by their class probabilities."""
        return True

    def shares(self, name: str) -> bool:
        """The extractor's weights."""
        return not name.startswith(HOME)

    def shapes(self) -> Shapes:
        """The extractor's, and those of the personal network."""
        own = {HOME + name: shape for name, shape in self.personal_network().items()}
        return super().shapes() | own

    def personal_network(self) -> Shapes:
        """The first layer of each power of the propagation matrix and of the features alone, the heads, and the gains."""
        s, context = self.settings, self.context
        head: Shapes = {"weight": (s.hidden, context.outputs), "bias": (context.outputs,)}
        return {
            "first.weight": (context.features, (s.steps + 2) * s.hidden),
            "smoothed.hidden": (s.hidden,),
            "features.hidden": (s.hidden,),
            **{
                f"{name}.{kind}": shape for name in ("smoothed", "features", "messages") for kind, shape in head.items()
            },
            "messages.gains": (2,),
        }

    def common_weights(self, clients: int, device: torch.device) -> Weights:
        """The extractor's start is FedAvg's; the gains are kept as offsets from one."""
        drawn = common_start(self.shapes(), self.context.seed, clients, device)
        return drawn | super().common_weights(clients, device) if self.one_by_one else drawn

    def private(self, weights: Weights) -> State:
        """Whether a client has begun to train at home."""
        some = next(iter(weights.values()))
        return {BEGUN: some.new_zeros(len(some))}

    def size(self, nodes: int) -> int:
        """Besides, the personal network's first layer."""
        return super().size(nodes) + nodes * (self.settings.steps + 2) * self.settings.hidden

    # -- at the client -------------------------------------------------------------------------------------------

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train the extractor as FedAvg does, or the personal network on what the extractor says; the other one rests."""
        at_home = self.phase(round)[0].name == "personal"
        self.receive(state, down)
        own = MODEL + HOME
        trained = {name: tensor for name, tensor in state.items() if MODEL not in name or (own in name) == at_home}
        if at_home:
            state[STEP].mul_(state[BEGUN])  # Adam begins anew with new weights
            state[BEGUN].fill_(1.0)
            with torch.no_grad():
                down = {SOFT: self.soft_labels(self.weights(state), cohort)}
        update = self.train(trained, cohort, down, self.steps(round))
        return Update({} if at_home else update.upload, self.personal(state), update.loss)

    def soft_labels(self, weights: Weights, cohort: Cohort) -> Tensor:
        """What the extractor says of every node: [R, C]."""
        extractor = {name: w for name, w in weights.items() if self.shares(name)}
        return self.model(cohort, extractor).logits.softmax(1)

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The extractor's, or those of the three heads' losses and the knowledge preservation; each client's loss [M]."""
        if SOFT not in down:
            return super().gradients(state, cohort, dropout, down)
        soft, training = dense(down[SOFT]), cohort.training
        leaves = leaves_of(part(self.weights(state), HOME))
        heads = self.heads(leaves, cohort, soft, dropout)
        found = [
            self.task.training_loss(cohort, logits[training.index], dropout.draws)
            for logits in (heads.smoothed, heads.features, heads.messages)
        ]
        total = torch.stack([loss for loss, _ in found]).sum()
        distance = (heads.smoothed.softmax(1) - soft).square().sum(1, keepdim=True)
        kept = cohort.node_mean(distance).squeeze(1) * self.homophily(cohort)
        grads = gradients_of(total + self.settings.preserve * kept.sum(), leaves)
        loss = torch.stack([each for _, each in found]).mean(0)
        return {MODEL + HOME + name: grad for name, grad in grads.items()}, loss

    def heads(self, w: Weights, cohort: Cohort, soft: Tensor, dropout: Dropout | None = None) -> Heads:
        """The three embeddings' logits at every node, with dropout if given."""
        s = self.settings
        spread = Propagation(cohort, Kernel.of(cohort, soft), s.alpha)
        *powers, alone = (cohort.x @ w["first.weight"]).split(s.hidden, dim=1)
        smoothed = activate(cohort, cohort.add(spread.polynomial(powers), w["smoothed.hidden"]), dropout, SMOOTHED)
        features = activate(cohort, cohort.add(alone, w["features.hidden"]), dropout, FEATURES)
        first = _head(cohort, w, "messages", smoothed)
        return Heads(
            smoothed=_head(cohort, w, "smoothed", smoothed),
            features=_head(cohort, w, "features", features),
            messages=self.messages(w, cohort, spread, first),
        )

    def messages(self, w: Weights, cohort: Cohort, spread: Propagation, first: Tensor) -> Tensor:
        """H + p (beta P + (1 - beta) K) H - q E H, with K the kernel of H itself and E what degrees let expect of it."""
        learned = Kernel.of(cohort, first.softmax(1))
        attract = torch.lerp(learned.times(cohort, first), spread @ first, self.settings.beta)
        repel = learned.expected(cohort, first)
        gains = (1.0 + w["messages.gains"])[cohort.client]
        return first + gains[:, :1] * attract - gains[:, 1:] * repel

    # -- personal models -----------------------------------------------------------------------------------------

    def homophily(self, cohort: Cohort) -> Tensor:
        """Each client's Homophily Confidence Score, [M]; where one reading alone is used, one or zero."""
        fixed = {"homophilous": 1.0, "heterophilous": 0.0}.get(self.settings.reading)
        if fixed is not None:
            return torch.full((cohort.clients,), fixed, device=cohort.device)
        found: Tensor = cohort.once(HOMOPHILY_CONFIDENCE, _scores)
        return found

    def constants(self) -> Mapping[str, Callable[[Client], float]]:
        """The Homophily Confidence Score, which only the training graph's labels can give."""
        return {HOMOPHILY_CONFIDENCE: homophily_confidence} if self.settings.reading == "both" else {}

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The logarithms of the two readings' probabilities, mixed by the Homophily Confidence Score."""
        soft = self.soft_labels(personal, cohort)
        heads = self.heads(part(personal, HOME), cohort, soft)
        smoothed = heads.smoothed.softmax(1)
        homophilous = (smoothed + soft) / 2
        heterophilous = (smoothed + heads.features.softmax(1) + heads.messages.softmax(1)) / 3
        share = self.homophily(cohort)[cohort.client].unsqueeze(1)
        return torch.lerp(heterophilous, homophilous, share).clamp_min(TINY).log()

    # -- at the server -------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """The extractor before it is trained, beside what FedAvg keeps."""
        server, down = super().server_start()
        start = {name: w[0] for name, w in self.common_weights(1, torch.device("cpu")).items() if self.shares(name)}
        return server | {EXTRACTOR + MODEL + name: w for name, w in start.items()}, down

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """FedAvg's average; once clients train at home, nothing, or the last average where one of them may not have it."""
        if not uploads:
            present = len(senders) == len(receivers) == self.context.clients
            return {} if present else self.extractor(server)
        return self.keep(server, super().aggregate(server, uploads, senders, receivers))

    def summands(self, uploads: Message) -> State:
        """FedAvg's; nothing of those who train at home."""
        return super().summands(uploads) if uploads else {}

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """The same from sums, which do not tell who sent: once clients train at home, always the last average."""
        return self.keep(server, super().aggregate_sums(server, sums, receivers)) if sums else self.extractor(server)

    def keep(self, server: State, down: Message) -> Message:
        """Note the average in the server's state."""
        for name, value in down.items():
            server[EXTRACTOR + name].copy_(dense(value))
        return down

    def newcomer_state(self, server: State) -> State:
        """The extractor, which the rounds at home left as it was."""
        return {LAST_SENT + name: dense(value) for name, value in self.extractor(server).items()}

    def extractor(self, server: State) -> Message:
        """The last average."""
        return {name.removeprefix(EXTRACTOR): w for name, w in server.items() if name.startswith(EXTRACTOR)}


def _head(rows: Rows, w: Weights, name: str, hidden: Tensor) -> Tensor:
    """A head's logits from a hidden layer: [R, H] -> [R, C]."""
    return linear(rows, hidden, w[f"{name}.weight"], w[f"{name}.bias"])


def _scores(cohort: Cohort) -> Tensor:
    """[M] each client's score."""
    each = [client.once(HOMOPHILY_CONFIDENCE, homophily_confidence) for client in cohort.members]
    return torch.tensor(each, device=cohort.device)
