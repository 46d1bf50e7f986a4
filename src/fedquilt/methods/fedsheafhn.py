"""FedSheafHN: Liang et al., FedSheafHN: Personalized Federated Learning on Graph-structured Data, 2024.

The server does not average models, it writes them: a hypernetwork turns a description of each client into the weights of that
client's graph layers. A client is described by the mean of its nodes' embeddings after a short training of its own. The
server joins all clients in a collaboration graph, lets sheaf diffusion and attention pass between their descriptions, and
generates all models at once. Clients train what they are given and say how it changed; the server moves its networks so
that they would have written what the clients arrived at. A client that comes later needs one exchange to get its model.

What is private does the work: clients keep their classifier and train several epochs a round. With `personal_step=0`, where
everyone is generated the same graph layers, this is FedPer with an unweighted mean, as accurate. `fedquilt docs fidelity` has
what the generated differences add to that, and the permutation test (`shuffle`).

Where the code and the paper differ, or the paper leaves it open, and why (what was measured is in `fedquilt docs fidelity`):

- *Direction.* The paper calls trained - generated the gradient and descends along it, away from what clients learned. Here
  generated - trained is back-propagated, so that generated weights move toward trained ones.
- *Attention* is computed from the descriptions, as everything before it: a free N x N matrix could not serve newcomers.
- *Reading.* The outputs of the networks have much in common. The last layer reads how they differ from the mean of those who
  train; what is common is in its bias, which has a step of its own. Reading them as they are, as the paper does, is
  `reading=outputs`.
- *Step.* The networks before the last layer follow Adam. The last layer has 128 numbers for each generated weight, for which
  Adam's moments would triple the server's memory and time; it takes plain gradient steps. The bias moves by `server_step`
  times the mean change; the matrix by `personal_step` over the largest eigenvalue of what it reads, so that along the
  direction in which clients differ most they move by that share of their own change.
- *Start.* The last layer starts by writing the common start for everyone; the paper's random one would start clients
  anywhere.
- *Scale.* Embeddings are scaled to one length at the server: what tells clients apart is their direction, and a client that
  sends a huge one gains nothing. `scaling` has two other choices, one of them the paper's.
- *Moments.* Clients start Adam afresh in every round, as the weights they train are new; on the larger graphs, where more
  epochs follow, they keep its moments.
- *Evaluation* is of what clients arrive at, as in the other methods; round 0 is the warm-up.
- *Newcomers* are evaluated with the generated layers as they are, as in the paper, and after `newcomer_epochs` of training.
  Those that are admitted together also see each other's descriptions, as clients that train do.
- *Partial participation.* A client is described by the embedding that it sent last; one that has not sent any yet by the mean
  of the others. It sends one in the next round with embeddings in which it takes part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, advanced
from fedquilt.common.random_streams import derive
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import EMBEDDING, RoundSizes, RunContext, State, Update, register
from fedquilt.methods.base_adam import MODEL, gradients_of, leaves_of
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.diagnostics import pair_median
from fedquilt.methods.settings import BackboneSettings, Count, NonNegative, Positive
from fedquilt.nn.hypernetwork import LAST, Diffusion, Hypernetwork
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import common_start
from fedquilt.nn.optim import FIRST, SECOND, STEP, adam_step

UPDATE = "update."
NOTHING = 1e-12  # clients that differ by less are alike
ROUNDING = 1e-5  # vectors of length one that differ by less are alike
SQUARINGS, TINY = 24, 1e-300
NET, VECTORS, HEARD = "net.", "vectors", "heard"
BEGAN, TURN, ORDER, PERSONAL_SHARE = "began.", "turn", "order", "diagnostic.personal_share"
# The paper trains "between 1 and 15" local epochs a round, "tailored to each dataset"; chosen on validation, as is whether
# Adam starts afresh in every round.
TAILORED: dict[str, dict[str, Any]] = {
    "cora": {"epochs": 3},
    "citeseer": {"epochs": 3},
    "pubmed": {"epochs": 5, "fresh_moments": False},
    "amazon-photo": {"epochs": 15, "fresh_moments": False},
    "amazon-computers": {"epochs": 15, "fresh_moments": False},
}


@dataclass(frozen=True)
class FedSheafHNSettings(BackboneSettings):
    """The backbone's settings and FedSheafHN's own.

    Attributes:
        warmup: epochs from the common start before the first embedding.
        refresh: rounds between embeddings; 0: only in round 0 (Table 3: without dynamic embedding), and who sat that one out is
            described by the mean of the others for good.
        client_vector: what describes a client to the server: its embedding, or its one-hot number (Table 3: hypernetwork only;
            then there is no warm-up).
        diffusion: what passes between clients on the collaboration graph (Table 4): sheaf, gcn, gat or none.
        diffusion_steps: T_s, how often.
        stalk: dimension of the sheaf's stalks; divides `width`.
        attention: attention over clients after the diffusion (Table 3).
        width: width of the server's networks.
        server_lr: Adam's learning rate for the server's networks but for the last layer.
        server_step: share of the clients' mean change by which what is common to all generated weights moves in a round.
        personal_step: share of a client's own change by which its generated weights move away from the common ones, at most.
            With 0 everyone is generated the same weights, and the method is FedPer with an unweighted mean (FedAvg, where
            the classifier is generated too).
        reading: what the last layer reads: the differences of the networks' outputs from their mean, or the outputs as they
            are, as in the paper.
        scaling: what becomes of embeddings at the server: scaled to one length (unit), that and taken relative to the mean of
            those who train (centred), or left as they are, as in the paper (none).
        shuffle: the permutation test: the server gives every client the vector of another one, the same other one throughout
            (once), or another one in every round, so that nothing about a client can be learned (every-round).
        generates: the graph layers, as in the paper, or the whole model, so that no weight is private.
        fresh_moments: start Adam afresh at the clients in every round.
        newcomer_epochs: epochs a newcomer trains what it was given.
    """

    warmup: Count = 10
    refresh: Annotated[int, Field(ge=0)] = 5
    client_vector: Literal["embedding", "one-hot"] = "embedding"
    diffusion: Diffusion = "sheaf"
    diffusion_steps: Count = 2
    stalk: Count = 4
    attention: bool = True
    width: Count = 128
    server_lr: Positive = 0.001
    server_step: Positive = 1.0
    personal_step: NonNegative = 0.1
    reading: Literal["differences", "outputs"] = "differences"
    scaling: Literal["unit", "none", "centred"] = "unit"
    shuffle: Literal["never", "once", "every-round"] = "never"
    generates: Literal["layers", "model"] = "layers"
    fresh_moments: bool = True
    newcomer_epochs: Count = 10


@register("fedsheafhn")
class FedSheafHN(BackboneMethod):
    """The server keeps its networks (``net.``), Adam's moments of all but their last layer, and the clients' embeddings."""

    guarded = (
        "Its server learns to generate weights from what clients' training added to them; there is no average to be made "
        "robust. With aggregation=guarded what a client added is shortened to the median length, and left out where it is more "
        "than three times as long or goes against what the others added."
    )
    title = "FedSheafHN"
    paper = "Liang et al., 2024"
    Settings = FedSheafHNSettings
    single_uploads = (
        "server writes each client's weights from its own embedding, and learns from how each client changed them"
    )
    searched = (*BackboneMethod.searched, "hidden", "server_lr", "personal_step")
    client_settings = ("lr", "weight_decay")  # epochs are counted from the warm-up on
    settings: FedSheafHNSettings
    admits = True
    newcomers = (
        "A newcomer warms up alone, sends its embedding, and is given the layers that the frozen networks write "
        "for it, beside those who trained; it trains them with a classifier of its own."
    )
    uploads = (
        TensorSpec(
            UPDATE + "*",
            "How training changed the weights that the client was given, which are the graph layers (with generates=model, the "
            "classifier too): an attacker with it may infer properties of the client's nodes.",
            weights=True,
        ),
        TensorSpec(EMBEDDING, "The mean over the client's nodes of what its last graph layer gives, every few rounds."),
    )
    downloads = (TensorSpec(MODEL + "*", "The weights that the server wrote for this client."),)

    def __init__(self, settings: FedSheafHNSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        if settings.diffusion == "sheaf" and settings.width % settings.stalk:
            raise FedquiltError(
                f"stalk={settings.stalk} does not divide width={settings.width}; choose one that does, such as 4."
            )
        self.generated = {
            n: shape
            for n, shape in self.model.shapes().items()
            if settings.generates == "model" or not n.startswith("classifier.")
        }
        self.net = Hypernetwork(
            inputs=settings.hidden if settings.client_vector == "embedding" else context.clients,
            hidden=settings.width,
            stalk=settings.stalk,
            layers=settings.diffusion_steps,
            diffusion=settings.diffusion,
            attention=settings.attention,
            outputs=self.generated,
        )

    def size(self, nodes: int) -> int:
        """Besides, the networks that write weights: a site makes them once, to learn what downloads look like."""
        trunk, written = (sum(map(math.prod, s.values())) for s in (self.net.trunk_shapes(), self.generated))
        return super().size(nodes) + trunk + self.settings.width * written

    @classmethod
    def defaults(cls, context: RunContext) -> dict[str, Any]:
        """What was chosen for this method on the dataset, else the dataset's local epochs."""
        return super().defaults(context) | TAILORED.get(context.dataset, {})

    # -- at the client -------------------------------------------------------------------------------------------

    def sends(self, name: str) -> bool:
        """Embeddings where they describe clients."""
        return super().sends(name) and (name != EMBEDDING or self.settings.client_vector == "embedding")

    def steps(self, round: int) -> range:
        """The warm-up in round 0 (without embeddings there is none), then `epochs` a round."""
        s = self.settings
        first = s.warmup if self.sends(EMBEDDING) else s.epochs
        return range(first) if round == 0 else range(first + (round - 1) * s.epochs, first + round * s.epochs)

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train the generated weights (at first, the common start); every `refresh` rounds also send the embedding."""
        update = super().local_update(state, cohort, down, round)
        if (self.round_kind(round) or not down) and self.sends(EMBEDDING):  # without a download it was a warm-up
            update.upload[EMBEDDING] = self.embed(update.personal, cohort)
        return update

    def round_kind(self, round: int) -> bool:
        """Whether the round sends embeddings."""
        refresh = self.settings.refresh
        return round == 0 or (refresh > 0 and round % refresh == 0)

    def receive(self, state: State, down: Message) -> None:
        """Copy the generated weights into the state, and reset Adam where `fresh_moments` is set."""
        super().receive(state, down)
        if self.settings.fresh_moments:
            for name in (n for n in state if n.startswith((FIRST, SECOND, STEP))):
                state[name].zero_()

    @torch.no_grad()
    def embed(self, weights: Weights, cohort: Cohort) -> Tensor:
        """Eq. 2: the node mean of the last graph layer's output before its ReLU, [M, H]."""
        return cohort.node_mean(self.at_every_node(weights, cohort).embedding)

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """Trained minus generated, for all but the warm-up; before the server wrote anything it would have been the start."""
        if not down and self.sends(EMBEDDING):
            return {}
        given = down or {
            MODEL + n: w
            for n, w in common_start(self.shapes(), self.context.seed, cohort.clients, cohort.device).items()
        }
        return {UPDATE + n: personal[n] - dense(given[MODEL + n]) for n in self.generated}

    def newcomer_update(self, state: State, cohort: Cohort, down: Message) -> Update:
        """Train the generated weights for `newcomer_epochs`, since the classifier is not trained for these layers."""
        warmup = self.settings.warmup
        self.receive(state, down)
        return self.train(state, cohort, down, range(warmup, warmup + self.newcomer_epochs()))

    def newcomer_epochs(self) -> int:
        """Where the run does not say, the setting's."""
        return self.context.newcomer_epochs or self.settings.newcomer_epochs

    def newcomer_steps(self) -> int:
        """Those of round 0 and of the last step."""
        return len(self.steps(0)) + self.newcomer_epochs()

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """Networks that write the common start, and no embedding yet; nothing is sent before the warm-up."""
        start = common_start(self.shapes(), self.context.seed, 1, torch.device("cpu"))
        params = self.net.start(self.context.seed, {name: start[name][0] for name in self.generated})
        server: State = {NET + name: value for name, value in params.items()} | {STEP: torch.zeros(1)}
        for name, value in params.items():
            if not name.startswith(LAST):
                server |= {FIRST + NET + name: torch.zeros_like(value), SECOND + NET + name: torch.zeros_like(value)}
        server[VECTORS] = torch.zeros(self.context.clients, self.settings.hidden)
        server[HEARD] = torch.zeros(self.context.clients, dtype=torch.bool)
        server |= {BEGAN + name: start[name][0].flatten() for name in self.generated}
        server[PERSONAL_SHARE] = torch.zeros(())
        if self.settings.shuffle != "never":
            server[TURN] = torch.zeros(1, dtype=torch.int64)
            server[ORDER] = shuffled(self.context.clients, self.context.seed, server[TURN])
        return server, {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """`width` numbers for each weight that is generated, and matrices over all pairs of clients in every layer."""
        s, clients = self.settings, self.context.clients
        weights = sum(math.prod(shape) for shape in self.generated.values())
        maps = {"sheaf": 5 * s.stalk * s.diffusion_steps, "gat": 4 * s.diffusion_steps}.get(s.diffusion, 0)
        pairs = 4 * clients**2 * (maps + 4 * s.attention + 4)
        return super().server_memory(sizes) + 4 * weights * (s.width + 2) + pairs

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """Learn from how the senders' weights changed, take in new embeddings, write the receivers' weights."""
        changes = {n.removeprefix(UPDATE): dense(v).flatten(1) for n, v in uploads.items() if n.startswith(UPDATE)}
        if changes:
            self.learn(server, bounded(self.averaging, changes), senders)
        if EMBEDDING in uploads:
            sent = dense(uploads[EMBEDDING])
            sent = sent if self.settings.scaling == "none" else F.normalize(sent, dim=1)
            server[VECTORS].index_copy_(0, senders, sent)
            server[HEARD].index_fill_(0, senders, True)
            heard = server[HEARD].unsqueeze(1)
            mean = torch.where(heard, server[VECTORS], 0.0).sum(0) / heard.sum()
            server[VECTORS].copy_(torch.where(heard, server[VECTORS], mean))
        if self.settings.shuffle == "every-round":
            server[TURN].add_(1)
            server[ORDER].copy_(shuffled(self.context.clients, self.context.seed, server[TURN]))
        down = self.write(self.parameters(server), self.vectors(server), receivers)
        began = {name: server[BEGAN + name.removeprefix(MODEL)] for name in down}
        server[PERSONAL_SHARE].copy_(personal_share({name: dense(w) for name, w in down.items()}, began))
        return down

    def vectors(self, server: State) -> Tensor:
        """The vectors from which the clients' weights are generated, [M, D]; shuffled where the settings say so."""
        found = self.described(server[VECTORS])
        return found[server[ORDER]] if ORDER in server else found

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """Whether anything personal is generated, from what, and what passes between clients.

        personal_share      how far generated weights differ between clients, over how far they moved (`personal_share`)
        similarity_median   median over pairs of clients of the cosine of their vectors, as the networks get them
        output_similarity   the same of the networks' outputs; near 1, a layer that reads them writes the same for everyone
        diffusion_change    |X_T - X_0| / |X_0| (Frobenius) of all diffusion steps
        """
        params, vectors = self.parameters(server), self.vectors(server)
        entered = self.net.enter(params, vectors)
        diffused = self.net.diffused(params, entered)
        cosines = [F.normalize(x, dim=1) for x in (vectors, self.net.output(params, diffused))]
        return {
            "personal_share": server[PERSONAL_SHARE],
            "similarity_median": pair_median(cosines[0] @ cosines[0].T),
            "output_similarity": pair_median(cosines[1] @ cosines[1].T),
            "diffusion_change": (diffused - entered).norm() / entered.norm().clamp_min(NOTHING),
        }

    def parameters(self, server: State) -> Weights:
        """The networks' parameters, by their names in the networks."""
        return {name.removeprefix(NET): value for name, value in server.items() if name.startswith(NET)}

    def described(self, embeddings: Tensor) -> Tensor:
        """The client vectors: embeddings scaled as the settings say, or one-hot numbers (newcomers have none: zeros).

        With u_i = x_i / |x_i| and H entries, unit: sqrt(H) u_i; centred: sqrt(H) (u_i - u) / s, where u is the mean of u_i and
        s^2 that of |u_i - u|^2 over those who train.
        """
        if self.settings.client_vector == "one-hot":
            return torch.eye(len(embeddings), self.net.inputs, device=embeddings.device)
        if self.settings.scaling == "none":
            return embeddings
        found = F.normalize(embeddings, dim=1)
        if self.settings.scaling == "centred":
            found = found - found[:1]  # first, so that equal embeddings differ by nothing, not by rounding
            found = found - found[: self.context.clients].mean(0)
            length = found[: self.context.clients].square().sum(1).mean().sqrt()
            found = found / length.clamp_min(ROUNDING)
        return found * embeddings.shape[1] ** 0.5

    def learn(self, server: State, changes: Weights, senders: Tensor) -> None:
        """Eq. 9 to 11: one step of the networks toward what the senders arrived at, by the chain rule.

        With generated weights g = r W + b of a client, loss |g - trained|^2 / 2 and change c = trained - g, the gradient of W
        is -r^T c, that of b is -c, and that of r, from which autograd goes on to the other parameters, is -c W^T.

        Args:
            changes: by name, [n, P] what the senders' training added to what was generated.
        """
        s, params = self.settings, self.parameters(server)
        trunk = leaves_of({name: value for name, value in params.items() if not name.startswith(LAST)})
        read = self.read(trunk, self.vectors(server))[senders]
        last = {name: (params[f"{LAST}{name}.weight"], params[f"{LAST}{name}.bias"]) for name in changes}
        toward = torch.stack([change @ last[name][0].T for name, change in changes.items()]).sum(0)
        grads = gradients_of(-(read * toward).sum(), trunk)
        with torch.no_grad():
            matrix, bias = self.steps_of_last_layer(read)
            for name, change in changes.items():
                last[name][0].addmm_(matrix * read.T, change)
                last[name][1].add_(change.sum(0) * bias)
        named = {NET + name: params[name] for name in trunk}
        adam_step(named, {NET + name: grad for name, grad in grads.items()}, server, s.server_lr, 0.0)

    def steps_of_last_layer(self, read: Tensor) -> tuple[Tensor | float, Tensor | float]:
        """The step sizes of the last layer's matrix and bias, for what it reads of n senders, [n, width].

        Where it reads the outputs as they are, both are `server_step` over the largest eigenvalue of the Gram matrix of what it
        reads and a one for the bias.
        """
        s = self.settings
        if s.reading == "outputs":
            both = s.server_step * inverse_spread(torch.cat([read, torch.ones_like(read[:, :1])], dim=1))
            return both, both
        return s.personal_step * inverse_spread(read), s.server_step / len(read)

    def read(self, params: Weights, vectors: Tensor) -> Tensor:
        """What the last layer reads of each client, [N, D] -> [N, width]: how it differs from the mean of those who train.

        With reading = outputs, the networks' outputs as they are.
        """
        represented = self.net.represent(params, vectors)
        if self.settings.reading == "outputs":
            return represented
        return represented - represented[: self.context.clients].mean(0)

    @torch.no_grad()
    def write(self, params: Weights, vectors: Tensor, receivers: Tensor) -> Message:
        """Eq. 6 to 8: the weights of the receivers, from the vectors of everybody."""
        read = self.read(params, vectors)[receivers]
        return {MODEL + name: w for name, w in self.net.generate(params, read).items()}

    def similarity(self, server: State) -> Tensor | None:
        """How far two clients share what is personal: the cosine of what the last layer reads of them, in [-1, 1], [M, M]."""
        with torch.no_grad():
            read = F.normalize(self.read(self.parameters(server), self.vectors(server)), dim=1)
        return read @ read.T

    # -- newcomers -------------------------------------------------------------------------------------------------

    def newcomer_sends(self) -> tuple[str, ...]:
        """All that clients send in round 0: the embedding, or where there is none, the change."""
        return (EMBEDDING,) if self.sends(EMBEDDING) else (UPDATE + "*",)

    def newcomer_state(self, server: State) -> State:
        """The networks and the embeddings of those who trained."""
        return {n: value for n, value in server.items() if n.startswith(NET) or n == VECTORS}

    def newcomer_download(self, server: State, uploads: Message) -> Message:
        """The newcomers' weights, from their embeddings beside those of the clients that trained."""
        trained = server[VECTORS]
        count = len(dense(next(iter(uploads.values()))))
        theirs = dense(uploads.get(EMBEDDING, trained.new_zeros(count, trained.shape[1])))
        newcomers = torch.arange(len(trained), len(trained) + count, device=trained.device)
        return self.write(self.parameters(server), self.described(torch.cat([trained, theirs])), newcomers)


def bounded(averaging: Averaging, changes: Weights) -> Weights:
    """What the senders' training added, as far as the averaging rule lets it count: by name, [n, P]."""
    stacks = list(changes.values())
    trust = averaging.trust(stacks, [torch.zeros_like(each[0]) for each in stacks], [None] * len(stacks))
    limited = [averaging.limited(each) for each in stacks]
    if trust is not None:
        limited = [each * who.unsqueeze(1) for each, who in zip(limited, trust, strict=True)]
    return dict(zip(changes, limited, strict=True))


def shuffled(clients: int, seed: int, turn: Tensor) -> Tensor:
    """Another client for each client, [clients] int64: one cycle through all of them, drawn anew for every `turn` [1]."""
    keys = torch.arange(clients, device=turn.device) + derive(seed, "server", "shuffle")
    drawn = Draws(advanced(keys, turn), 0).keyed(0)[0].argsort()
    return torch.empty_like(drawn).scatter_(0, drawn, drawn.roll(1))


def personal_share(written: Weights, began: Weights) -> Tensor:
    """How personal generated weights are: sqrt(mean_i |w_i - w|^2) / |w - w_0|, over all weights; a scalar.

    w_i are the weights of client i, w their mean over the clients and w_0 the common start; 0 where nobody's moved.

    Args:
        written: by name, [n, ...]. began: by the same names, [P].
    """
    apart, moved = [], []
    for name, w in written.items():
        flat = w.flatten(1)
        beside = flat - flat[:1]  # so that equal weights differ by nothing, not by rounding
        mean = beside.mean(0)
        apart.append((beside - mean).square().sum() / len(flat))
        moved.append((flat[0] + mean - began[name]).square().sum())
    return (torch.stack(apart).sum() / torch.stack(moved).sum().clamp_min(NOTHING)).sqrt()


def inverse_spread(read: Tensor) -> Tensor:
    """One over the largest eigenvalue of read^T read, [n, d] -> scalar; 0 where nothing differs from anything.

    With G = read read^T of trace one, G^p for p = 2^SQUARINGS by squaring, and the eigenvalue as tr(G^(p+1)) / tr(G^p). What
    that lacks is at most (n - 1) / (e p). It takes no solver, which would make the accelerator wait.
    """
    gram = (read @ read.T).double()
    total = gram.trace()
    gram = gram / total.clamp_min(NOTHING)
    power = gram
    for _ in range(SQUARINGS):
        power = power @ power
        power = power / power.trace().clamp_min(TINY)
    largest = (power @ gram).trace() / power.trace().clamp_min(TINY)
    spread = torch.where(total > NOTHING, 1.0 / (total * largest).clamp_min(TINY), 0.0)
    return spread.to(read.dtype)
