"""pFedHN: Shamsian et al., Personalized Federated Learning using Hypernetworks, ICML 2021.

The server keeps a short vector for each client and a network that turns a client's vector into all weights of that client's
model. A client trains what it was given and says how that changed; the server moves network and vectors so that they would
have generated what the client arrived at. Clients share through the network, and are told apart by their vectors alone, which
are learned from nothing but these changes. `generates=layers` leaves the classifier at home (pFedHN-PC).

Where the code and the paper differ, or the paper leaves it open, and why (what was measured is in `fedquilt docs fidelity`):

- *Evaluation* is of what clients arrive at, as in the other methods. The public code evaluates the generated model as it is,
  which trails by a local training; `personal=generated` does that.
- *All participants* move the network in every round; the public code trains one client after the other, thousands of times.
- *Start.* The last layer starts by writing the common start for everyone; a random one would start clients anywhere.
- *Reading.* The outputs of the network have much in common: the last layer reads how they differ from their mean over the
  clients, and what is common is in its bias (`reading=outputs`: as they are, the paper's).
- *Step.* Vectors and network follow Adam, but for the last layer, which has `width` numbers for each generated weight and
  takes plain steps: the bias by `server_step` times the mean change, the matrix by `personal_step` over the largest eigenvalue
  of what it reads, as in `fedquilt.methods.fedsheafhn`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.common.random_streams import torch_stream
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RoundSizes, RunContext, State, Update, register
from fedquilt.methods.base_adam import MODEL, gradients_of, leaves_of
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.diagnostics import effective_clients, pair_median, spread
from fedquilt.methods.fedsheafhn import FedSheafHN, bounded, inverse_spread
from fedquilt.methods.settings import BackboneSettings, Count, NonNegative, Positive
from fedquilt.nn.hypernetwork import LAST, Hypernetwork
from fedquilt.nn.layers import Weights
from fedquilt.nn.optim import FIRST, SECOND, STEP, adam_start, adam_step

UPDATE, GIVEN = "update.", "given."
NET, VECTORS, BEGAN, DIAGNOSTIC = "net.", "vectors", "began.", "diagnostic."
FIT_STEPS, FIT_RATE = 200, 0.02  # of Adam, for newcomers' vectors, which are of length one or so
NOTED = ("personal_share", "generated_distance", "effective_clients", "similarity_median")


@dataclass(frozen=True)
class PFedHNSettings(BackboneSettings):
    """The backbone's settings and pFedHN's own.

    Attributes:
        vector: width of a client's vector; by default 1 and a quarter of the clients, as in the public code.
        width: width of the server's network.
        server_lr: Adam's learning rate for the vectors and the network but for its last layer.
        server_step: share of the clients' mean change by which what is common to all generated weights moves in a round.
        personal_step: share of a client's own change by which its generated weights move away from the common ones, at most.
            With 0 everyone is generated the same weights, and the method is FedAvg with an unweighted mean.
        reading: what the last layer reads: the differences of the network's outputs from their mean, or the outputs.
        generates: the whole model, or layers (all but the classifier, which is then the client's own: pFedHN-PC).
        personal: which model is a client's own: trained (what it arrives at) or generated (what it was given).
        fresh_moments: start Adam afresh at the clients in every round.
    """

    vector: Count = 8
    width: Count = 100
    server_lr: Positive = 0.01
    server_step: Positive = 1.0
    personal_step: NonNegative = 0.1
    reading: Literal["differences", "outputs"] = "differences"
    generates: Literal["model", "layers"] = "model"
    personal: Literal["trained", "generated"] = "trained"
    fresh_moments: bool = False


@register("pfedhn")
class PFedHN(BackboneMethod):
    """The server keeps the clients' vectors [M, D], its network (``net.``), and Adam's moments of all but the last layer."""

    title = "pFedHN"
    paper = "Shamsian et al., ICML 2021"
    admits = True
    newcomers = (
        "A newcomer is given the weights that are common to all, trains them for a round, sends how that changed "
        "them, and is given what the frozen network generates from the vector that fits this change best."
    )
    baseline = True
    Settings = PFedHNSettings
    settings: PFedHNSettings
    guarded = FedSheafHN.guarded
    single_uploads = "server writes each client's weights from a vector that it learns from how the client changed them"
    searched = (*BackboneMethod.searched, "hidden", "server_lr", "personal_step")
    any_module = True
    uploads = (
        TensorSpec(
            UPDATE + "*",
            "How training changed the weights that the client was given (with generates=layers, those of the graph layers "
            "only): an attacker with it may infer properties of the client's nodes.",
            weights=True,
        ),
    )
    downloads = (TensorSpec(MODEL + "*", "The weights that the server's network generated for this client."),)

    def __init__(self, settings: PFedHNSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        whole = settings.generates == "model"
        shapes = self.model.shapes()
        self.generated = {n: shape for n, shape in shapes.items() if whole or not n.startswith("classifier.")}
        if not whole and len(self.generated) in (0, len(shapes)):
            raise FedquiltError(
                f"generates=layers leaves the weights whose names begin with 'classifier' at home; the backbone "
                f"'{settings.model}' has {', '.join(shapes)}: set generates=model."
            )
        self.net = Hypernetwork(settings.vector, settings.width, 1, 0, "none", False, self.generated)

    @classmethod
    def defaults(cls, context: RunContext) -> dict[str, Any]:
        """The vectors' width grows with the clients."""
        return super().defaults(context) | {"vector": 1 + context.clients // 4}

    def size(self, nodes: int) -> int:
        """Besides, the network that writes weights: a site makes it once, to learn what downloads look like."""
        trunk, written = (sum(map(math.prod, s.values())) for s in (self.net.trunk_shapes(), self.generated))
        return super().size(nodes) + trunk + self.settings.width * written

    def shares(self, name: str) -> bool:
        """What is generated."""
        return name in self.generated

    # -- at the client -------------------------------------------------------------------------------------------

    def private(self, weights: Weights) -> State:
        """What was generated last, where that is the personal model."""
        if self.settings.personal == "trained":
            return {}
        return {GIVEN + name: weights[name].clone() for name in self.generated}

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train what was generated, which before the first download is the common start."""
        given = down or {MODEL + name: state[MODEL + name].clone() for name in self.generated}
        return super().local_update(state, cohort, given, round)

    def receive(self, state: State, down: Message) -> None:
        """Copy the generated weights into the state, and reset Adam where `fresh_moments` is set."""
        super().receive(state, down)
        for name in self.generated if self.settings.personal == "generated" else ():
            state[GIVEN + name].copy_(state[MODEL + name])
        if self.settings.fresh_moments:
            for name in (n for n in state if n.startswith((FIRST, SECOND, STEP))):
                state[name].zero_()

    def personal(self, state: State) -> State:
        """The trained weights, or those that were generated and a classifier that is not."""
        weights = self.weights(state)
        return weights | {name: state[GIVEN + name] for name in self.generated if GIVEN + name in state}

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """Trained minus generated."""
        return {UPDATE + name: state[MODEL + name] - dense(down[MODEL + name]) for name in self.generated}

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """A network that writes the common start for everyone, and vectors drawn at random; nothing is sent."""
        s, clients = self.settings, self.context.clients
        start = {name: w[0] for name, w in self.common_weights(1, torch.device("cpu")).items()}
        params = self.net.start(self.context.seed, {name: start[name] for name in self.generated})
        drawn = torch.randn(clients, s.vector, generator=torch_stream(self.context.seed, "server", "client vectors"))
        server: State = {NET + name: value for name, value in params.items()} | {VECTORS: drawn}
        learned = {name: server[name] for name in server if not name.startswith(NET + LAST)}
        server |= {FIRST + name: torch.zeros_like(value) for name, value in learned.items()}
        server |= {SECOND + name: torch.zeros_like(value) for name, value in learned.items()} | {STEP: torch.zeros(1)}
        server |= {BEGAN + name: start[name].flatten() for name in self.generated}
        return server | {DIAGNOSTIC + name: torch.zeros(()) for name in NOTED}, {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """`width` numbers for each weight that is generated, a copy of the largest, and matrices over all pairs of clients."""
        weights = [math.prod(shape) for shape in self.generated.values()]
        network = 4 * sum(weights) * (self.settings.width + 2)
        return (
            super().server_memory(sizes) + network + 4 * sizes.receivers * max(weights) + 16 * self.context.clients**2
        )

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """Learn from how the senders' weights changed, then write the receivers'."""
        changes = {n.removeprefix(UPDATE): dense(v).flatten(1) for n, v in uploads.items()}
        self.learn(server, bounded(self.averaging, changes), senders)
        with torch.no_grad():
            read = self.read(self.parameters(server), server[VECTORS])
            written = self.net.generate(self.parameters(server), read[receivers])
            self.note(server, written, read)
        return {MODEL + name: w for name, w in written.items()}

    def parameters(self, server: State) -> Weights:
        """The network's parameters, by their names in the network."""
        return {name.removeprefix(NET): value for name, value in server.items() if name.startswith(NET)}

    def read(self, params: Weights, vectors: Tensor) -> Tensor:
        """What the last layer reads of each client: [M, D] -> [M, width]."""
        represented = self.net.represent(params, vectors)
        return represented - represented.mean(0) if self.settings.reading == "differences" else represented

    def learn(self, server: State, changes: Weights, senders: Tensor) -> None:
        """One step of network and vectors toward what the senders arrived at, by the chain rule.

        With generated weights g = r W + b of a client, loss |g - trained|^2 / 2 and change c = trained - g, the gradient of W
        is -r^T c, that of b is -c, and that of r, from which autograd goes on to network and vectors, is -c W^T.

        Args:
            changes: by name, [n, P] what the senders' training added to what was generated.
        """
        s, params = self.settings, self.parameters(server)
        leaves = leaves_of(
            {n: value for n, value in params.items() if not n.startswith(LAST)} | {VECTORS: server[VECTORS]}
        )
        read = self.read(leaves, leaves[VECTORS])[senders]
        last = {name: (params[f"{LAST}{name}.weight"], params[f"{LAST}{name}.bias"]) for name in changes}
        toward = torch.stack([change @ last[name][0].T for name, change in changes.items()]).sum(0)
        found = gradients_of(-(read * toward).sum(), leaves)
        with torch.no_grad():
            matrix, bias = self.steps_of_last_layer(read)
            for name, change in changes.items():
                last[name][0].addmm_(matrix * read.T, change)
                last[name][1].add_(change.sum(0) * bias)
        grads = {name if name == VECTORS else NET + name: grad for name, grad in found.items()}
        adam_step({name: server[name] for name in grads}, grads, server, s.server_lr, 0.0)

    def steps_of_last_layer(self, read: Tensor) -> tuple[Tensor, Tensor | float]:
        """The step sizes of the last layer's matrix and bias, for what it reads of n clients: [n, width]."""
        s = self.settings
        if s.reading == "outputs":
            both = s.server_step * inverse_spread(torch.cat([read, torch.ones_like(read[:, :1])], dim=1))
            return both, both
        return s.personal_step * inverse_spread(read), s.server_step / len(read)

    # -- clients that come after training ----------------------------------------------------------------------------

    def newcomer_sends(self) -> tuple[str, ...]:
        """How a round of training changed the weights that are common to all."""
        return (UPDATE + "*",)

    def newcomer_state(self, server: State) -> State:
        """The network and the clients' vectors."""
        return {name: value for name, value in server.items() if name.startswith(NET) or name == VECTORS}

    @torch.no_grad()
    def newcomer_greeting(self, server: State) -> Message:
        """The weights that the last layer writes from the mean of what it reads of the clients that trained."""
        params = self.parameters(server)
        written = self.net.generate(params, self.read(params, server[VECTORS]).mean(0, keepdim=True))
        return {MODEL + name: w[0] for name, w in written.items()}

    def newcomer_download(self, server: State, uploads: Message) -> Message:
        """What the network generates from the newcomers' fitted vectors."""
        params = self.parameters(server)
        read = self.read_newcomers(params, server[VECTORS], self.fit(server, uploads))
        with torch.no_grad():
            return {MODEL + name: w for name, w in self.net.generate(params, read).items()}

    def read_newcomers(self, params: Weights, trained: Tensor, vectors: Tensor) -> Tensor:
        """What the last layer reads of newcomers' vectors [n, D], beside those of the clients that trained: [n, width]."""
        represented = self.net.represent(params, vectors)
        if self.settings.reading == "outputs":
            return represented
        return represented - self.net.represent(params, trained).mean(0)

    def fit(self, server: State, uploads: Message) -> Tensor:
        """Newcomers' vectors [n, D]: by Adam from the mean vector, |generated - wanted|^2 becomes as small as it can.

        Wanted are the common weights plus a newcomer's change, which is scaled to the mean length by which what is generated
        for those who trained differs from the common weights: a single round says where to go and not how far. With generated
        r W + b, the distance is r G r^T - 2 r t and a constant, where G = W W^T and t = (wanted - b) W^T.
        """
        params, trained = self.parameters(server), server[VECTORS]
        read = self.read(params, trained)
        common = read.mean(0, keepdim=True)
        last = {name: (params[f"{LAST}{name}.weight"], params[f"{LAST}{name}.bias"]) for name in self.generated}
        change = {name: dense(uploads[UPDATE + name]).flatten(1) for name in self.generated}
        gram = torch.stack([w @ w.T for w, _ in last.values()]).sum(0)
        apart = read - common
        reach = (apart @ gram * apart).sum(1).clamp_min(0.0).sqrt().mean()
        length = torch.stack([c.square().sum(1) for c in change.values()]).sum(0).sqrt().clamp_min(1e-12)
        toward = torch.stack([c @ last[name][0].T for name, c in change.items()]).sum(0)
        target = common @ gram + (reach / length).unsqueeze(1) * toward
        fitted = {VECTORS: trained.mean(0).expand(len(target), -1).clone()}
        moments = adam_start(fitted)
        for _ in range(FIT_STEPS):
            leaves = leaves_of(fitted)
            mine = self.read_newcomers(params, trained, leaves[VECTORS])
            grads = gradients_of(((mine @ gram - 2.0 * target) * mine).sum(), leaves)
            adam_step(fitted, grads, moments, FIT_RATE, 0.0)
        return fitted[VECTORS]

    # -- what reports show -----------------------------------------------------------------------------------------

    def note(self, server: State, written: Weights, read: Tensor) -> None:
        """Store the diagnostics of the round, in place."""
        matrix, bias = self.steps_of_last_layer(read)
        share = (matrix * read @ read.T + bias).abs()
        unit = F.normalize(server[VECTORS], dim=1)
        share_of_own, distance = spread(written, {name: server[BEGAN + name] for name in written})
        found = {
            "personal_share": share_of_own,
            "generated_distance": distance,
            "effective_clients": effective_clients(share / share.sum(1, keepdim=True)),
            "similarity_median": pair_median(unit @ unit.T),
        }
        for name, value in found.items():
            server[DIAGNOSTIC + name].copy_(value)

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """Whether clients are generated weights of their own.

        personal_share       how far generated weights differ between clients, over how far they moved from the start
        generated_distance   the root mean square distance between two receivers' generated models
        effective_clients    exp(entropy) of the shares with which the clients' changes move one client's weights in a step
        similarity_median    median over pairs of clients of the cosine of their vectors
        """
        return {name: server[DIAGNOSTIC + name] for name in NOTED}

    def similarity(self, server: State) -> Tensor | None:
        """How far two clients share what is personal: the cosine of what the last layer reads of them, [M, M]."""
        with torch.no_grad():
            read = F.normalize(self.read(self.parameters(server), server[VECTORS]), dim=1)
        return read @ read.T
