"""FedSage+: Zhang et al., Subgraph Federated Learning with Missing Neighbor Generation, NeurIPS 2021.

Cutting a graph into subgraphs loses the edges between them. In a first phase every client trains a generator of missing
neighbours: it hides some of its nodes, predicts for the others how many neighbours are gone and what their features were, and
lets other clients say how what it generates differs from the nearest of their nodes. In a second phase each client mends its
graph by the generator, and all train one GraphSAGE on the mended graphs, as in FedSage.

Where we differ, or the paper leaves it open, and why (what was measured is in `fedquilt docs fidelity`):

- *Exchange.* In the paper a client sends its encoded nodes and its feature generator to all others, and they answer with
  gradients. Here it happens in rounds, through the server: a client sends `shared_nodes` encoded nodes and its generator's last
  two layers, the server passes them on to one other client, another one in every round, which answers in the next round; the
  answer's gradient is added to the client's own in the round after that, in all of its steps.
- *Features* are generated as `code` numbers times a basis that is learned, without the paper's tanh at the end: F = 3,703
  features for five neighbours of each node would be 74 kB a node. See `fedquilt.nn.neighbour_generator`.
- *Noise* is added to encoded nodes while the generator learns, as in the paper, and not when it mends: a model gives the same
  outputs each time.
- *Losses.* The number (smooth L1, of at most `generated` hidden neighbours) and the nearest feature, relative to the mean
  square of the client's features. The paper also lets the classifier's loss on the mended graph train the generator; here
  generators see no labels.
- *Impaired graphs.* The paper hides nodes once; a generator then learns the hidden ones by heart. Here it learns from
  `impairments` draws in turn, and its quality is measured on another one.
- *Partial participation.* The server keeps the question that a client asked last, which stays right while it sits out, since
  its generator rests; and the answer, until it is back. Who sat out the whole first phase mends nothing.
- *The first phase* takes `generator_rounds` rounds before the rounds that the run asks for; they are not evaluated.

A personal model holds the generator, by which any graph is mended as the training graph was. The generated neighbours are
computed at the start of each round, and are in no state. With generated=0 this is FedSage.

Memory: at a client about generated * (code + hidden) numbers for each node beside FedSage's, and the generator with Adam's
moments, 3 (2 encoder + code) F numbers; at the server two generators' last layers for each client, 2 code F numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, advanced
from fedquilt.common.random_streams import derive
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.base import Phase, RoundSizes, State, Update, register
from fedquilt.methods.base_adam import MODEL, gradients_of, keep_rows, leaves_of, straggling
from fedquilt.methods.fedavg import AVERAGE, TRAIN_NODES, WEIGHTS
from fedquilt.methods.fedsage import FedSage, FedSageSettings
from fedquilt.methods.settings import Count, NonNegative, Positive
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.mended_sage import mended_sage
from fedquilt.nn.models import Shapes, common_start, part
from fedquilt.nn.neighbour_generator import (
    BASIS,
    CODES,
    Generated,
    Impaired,
    encode,
    generate,
    generator_shapes,
    impair,
    local_losses,
    peer_loss,
    square_mean,
)
from fedquilt.nn.node_sample import other_rows, sample_nodes
from fedquilt.nn.optim import FIRST, SECOND, STEP, adam_start, adam_step

GENERATOR = "generator."
OWN_STEP = "generator-step"  # Adam's, as the generator's steps are not the model's
MADE_CODES, MADE_COUNT = "made.codes", "made.count"
# Uploads: what a client asks another one about, and what it answers; downloads: the same of others.
ASK, ANSWER, PEER, REPLY = "ask.", "answer.", "peer.", "reply."
ROWS, COUNT, QUALITY = "rows", "count", "quality"
ASKED, TURN, DIAGNOSTIC = "asked", "turn", "diagnostic."
NOTED = ("number_loss", "feature_loss", "number_correlation")
SHARED_LAYERS = (CODES + "weight", CODES + "bias", BASIS)
BASIS_STEP = 5.0  # Adam's step of the basis over that of other weights, in units of a typical feature
CALM = 0.001  # of the generator's gradients: where terms cancel, rounding is then small beside Adam's epsilon
SAMPLE_LAYER, NOISE_LAYER = 48, 49  # of the clients' random numbers


@dataclass(frozen=True)
class FedSagePlusSettings(FedSageSettings):
    """FedSage's settings and those of the generator.

    Attributes:
        generated: the most neighbours that are generated for a node; 0: none, and no generator, which is FedSage.
        generator_rounds: rounds in which generators are trained, before the rounds of the run.
        generator_epochs: steps of the generator in each of them.
        generator_lr: Adam's learning rate for them.
        hidden_share: share of a client's nodes that are hidden while its generator learns.
        impairments: from how many draws of hidden nodes the generator learns, in turn.
        encoder: width of the generator's layers.
        code: how many numbers a generated neighbour is made of.
        cross: weight of what other clients answer; 0: nothing of nodes is sent, and each generator learns at home.
        shared_nodes: how many of its encoded nodes a client sends to another one, and among how many of its own that one
            looks for the nearest.
        noise: standard deviation of the noise on encoded nodes while the generator learns.
        shuffle: the permutation test: each node is mended by what was generated for another node of its client.
    """

    generated: Annotated[int, Field(ge=0, le=5)] = 2
    generator_rounds: Count = 10
    generator_epochs: Count = 5
    generator_lr: Positive = 0.01
    hidden_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    impairments: Annotated[int, Field(ge=1, le=20)] = 5
    encoder: Count = 32
    code: Count = 32
    cross: NonNegative = 1.0
    shared_nodes: Count = 64
    noise: NonNegative = 0.1
    shuffle: bool = False


@register("fedsageplus")
class FedSagePlus(FedSage):
    """State: besides FedSage's the generator (``generator.``) with Adam's moments of its own."""

    title = "FedSage+"
    paper = "Zhang et al., NeurIPS 2021"
    newcomers = (
        "A newcomer trains a generator of missing neighbours at home, without answers of others, and is given the "
        "last average, which it trains further on its mended graph; it sends nothing."
    )
    baseline = True
    Settings = FedSagePlusSettings
    settings: FedSagePlusSettings
    searched = (*FedSage.searched, "generated", "hidden_share", "cross")
    client_settings = ("lr", "weight_decay")  # epochs are counted from the generator's steps on
    single_uploads = (
        "server passes each client's generator and some of its nodes on to another client, and the answer back"
    )
    uploads = (
        WEIGHTS,
        TRAIN_NODES,
        TensorSpec(
            ASK + ROWS,
            "For each of a fixed sample of the client's nodes (persons, where nodes are persons) a row of numbers that its "
            "generator computes from the node's features and its neighbours. The server passes them on to another client: "
            "both may infer a node's features, and what its neighbours look like.",
            nodes=True,
        ),
        TensorSpec(ASK + COUNT, "How many nodes the sample has: all of the client's, where it has fewer.", count=True),
        TensorSpec(
            ASK + CODES + "*",
            "A layer of the client's generator of missing neighbours, which the server passes on to another client.",
            weights=True,
        ),
        TensorSpec(
            ASK + BASIS,
            "The last layer of the client's generator: with the rows it gives the features that it generates as neighbours of "
            "each sampled node, so that the server and another client learn what these neighbours look like.",
            nodes=True,
        ),
        TensorSpec(
            ANSWER + "*",
            "How another client's generator should change so that what it generates is nearer to single nodes of this client: "
            "a sum of these nodes' features, from which they may be inferred. The server passes it on to that client.",
            nodes=True,
        ),
        TensorSpec(
            QUALITY,
            "Three numbers about how well the client's generator predicts nodes that were hidden from it: the error of their "
            "number and of their features, and the correlation of the number.",
        ),
    )
    downloads = (
        AVERAGE,
        TensorSpec(
            PEER + "*", "Another client's generator and some of its encoded nodes, without saying whose they are."
        ),
        TensorSpec(
            REPLY + "*",
            "How another client's nodes would have this client's generator change: a sum of features of single nodes of that "
            "client.",
        ),
    )

    # -- phases --------------------------------------------------------------------------------------------------------

    @property
    def mends(self) -> bool:
        """Whether neighbours are generated; else this is FedSage."""
        return self.settings.generated > 0

    @property
    def crosses(self) -> bool:
        """Whether clients ask one another: it takes three rounds from a question to the use of the answer."""
        s = self.settings
        return self.mends and s.cross > 0 and s.generator_rounds > 2

    def phases(self, rounds: int) -> tuple[Phase, ...]:
        """The generator's rounds, which are not evaluated, and the run's."""
        first = (Phase("generator", self.settings.generator_rounds, evaluated=False),) if self.mends else ()
        return (*first, *super().phases(rounds))

    def generates(self, round: int) -> bool:
        """Whether the round belongs to the generator's phase."""
        return self.mends and round < self.settings.generator_rounds

    def asks(self, round: int) -> bool:
        """Whether a question of this round can still be answered in the next and be of use in the one after that."""
        return self.crosses and round < self.settings.generator_rounds - 2

    def answers(self, round: int) -> bool:
        """Whether an answer of this round can be of use in the next."""
        return self.crosses and 0 < round < self.settings.generator_rounds - 1

    def round_kind(self, round: int) -> tuple[bool, bool]:
        """Whether the round asks, and whether it answers."""
        return self.asks(round), self.answers(round)

    def needs_whole_graphs(self) -> str:
        """Neighbours are hidden, generated and mended over the whole graph."""
        return "it mends the whole graph with generated neighbours"

    def sends(self, name: str) -> bool:
        """Questions and answers where clients ask one another; nothing of a generator where there is none."""
        if name.startswith((ASK, ANSWER)):
            return super().sends(name) and self.crosses
        return super().sends(name) and (name != QUALITY or self.mends)

    def steps(self, round: int) -> range:
        """The generator's steps, then `epochs` a round."""
        s = self.settings
        if self.generates(round):
            return range(round * s.generator_epochs, (round + 1) * s.generator_epochs)
        before = s.generator_rounds if self.mends else 0
        first = before * s.generator_epochs + (round - before) * s.epochs
        return range(first, first + s.epochs)

    # -- at the client -------------------------------------------------------------------------------------------------

    def generator_shapes(self) -> Shapes:
        """The generator's weights, by name."""
        s = self.settings
        return generator_shapes(self.context.features, s.encoder, s.code, s.generated)

    def private(self, weights: Weights) -> State:
        """The generator at its common start."""
        if not self.mends:
            return {}
        some = next(iter(weights.values()))
        seed = derive(self.context.seed, "generator")
        start = common_start(self.generator_shapes(), seed, len(some), some.device)
        start[BASIS].zero_()  # whatever the scale of features
        return {GENERATOR + name: w for name, w in start.items()}

    def start(self, cohort: Cohort) -> State:
        """FedSage's state, and the generator's moments."""
        state = super().start(cohort)
        own = {name: w for name, w in state.items() if name.startswith(GENERATOR)}
        if own:
            moments = adam_start(own)
            state |= {OWN_STEP: moments.pop(STEP), **moments}
        return state

    def personal(self, state: State) -> State:
        """The weights and the generator."""
        return self.weights(state) | {name: w for name, w in state.items() if name.startswith(GENERATOR)}

    def size(self, nodes: int) -> int:
        """Besides, the generated neighbours in the widest layer."""
        s = self.settings
        return super().size(nodes) + nodes * s.generated * (s.code + s.hidden)

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train the generator in its phase; then mend the graph and train the model."""
        if self.generates(round):
            return self.generator_update(state, cohort, down, round)
        self.receive(state, down)
        if self.mends:
            made = self.mended(self.personal(state), cohort)
            down = {**down, MADE_CODES: made.codes, MADE_COUNT: made.count}
        return self.train(state, cohort, down, self.steps(round))

    def mended(self, personal: State, cohort: Cohort) -> Generated:
        """The generated neighbours of every node."""
        with torch.no_grad():
            made = known(cohort, generate(cohort, part(personal, GENERATOR)), personal[GENERATOR + BASIS])
            if not self.settings.shuffle:
                return made
            other = other_rows(cohort)
            return Generated(made.codes[other], made.count[other])

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradient of the task's loss on the mended graph, and each client's loss [M]."""
        if not self.mends:
            return super().gradients(state, cohort, dropout, down)
        leaves = leaves_of(self.weights(state))
        made = Generated(dense(down[MADE_CODES]), dense(down[MADE_COUNT]))
        basis, depth = state[GENERATOR + BASIS], self.settings.layers
        logits = mended_sage(cohort, leaves, made, basis, depth, dropout, training=True)
        total, each = self.task.training_loss(cohort, logits, dropout.draws)
        return {MODEL + name: grad for name, grad in gradients_of(total, leaves).items()}, each

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The outputs on the mended graph, without dropout."""
        if not self.mends:
            return super().logits(personal, cohort)
        made = self.mended(personal, cohort)
        return mended_sage(cohort, personal, made, personal[GENERATOR + BASIS], self.settings.layers)

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """FedSage's: the generator stays at home."""
        return super().upload(state, self.weights(state), cohort, down)

    # -- the generator's phase, at the client ----------------------------------------------------------------------------

    def generator_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Steps of the generator on the impaired graph, with what another client answered; then ask, and answer."""
        s, steps = self.settings, self.steps(round)
        own = {name: w for name, w in state.items() if name.startswith(GENERATOR)}
        moments = {name: state[name] for name in state if name.startswith((FIRST + GENERATOR, SECOND + GENERATOR))}
        moments[STEP] = state[OWN_STEP]
        taken = None if cohort.efforts is None else straggling(cohort.efforts, [len(steps)] * cohort.clients)
        keys = self.keys_for(state, steps)
        graphs = [impair(cohort, self.context.seed, s.hidden_share, s.generated, v) for v in range(s.impairments + 1)]
        rates = {GENERATOR + BASIS: s.generator_lr * BASIS_STEP * typical(cohort)}
        loss = torch.zeros(cohort.clients)
        for epoch in range(len(steps)):
            kept = {} if taken is None else {name: w.clone() for name, w in (own | moments).items()}
            leaves = leaves_of(own)
            noise = s.noise * Draws(keys, epoch).normal(cohort, s.encoder, NOISE_LAYER) if s.noise else None
            losses = local_losses(cohort, part(leaves, GENERATOR), graphs[epoch % s.impairments], noise)
            loss = losses.number + losses.features
            grads = gradients_of(CALM * loss.sum(), leaves)
            for name in SHARED_LAYERS:
                if epoch == 0 and REPLY + name in down:
                    grads[GENERATOR + name].add_(dense(down[REPLY + name]), alpha=CALM * s.cross)
            adam_step(own, grads, moments, s.generator_lr, 0.0, rates)
            if taken is not None:
                keep_rows(own | moments, kept, torch.tensor(taken) > epoch)
        message: Message = {QUALITY: self.quality(part(own, GENERATOR), cohort, graphs[-1])}
        if self.asks(round):
            message |= self.question(part(own, GENERATOR), cohort)
        if self.answers(round) and PEER + BASIS in down:
            message |= self.answer(cohort, down)
        return Update(message, self.personal(state), loss.detach())

    @torch.no_grad()
    def quality(self, own: Weights, cohort: Cohort, graph: Impaired) -> Tensor:
        """[M, 3] the losses and the correlation on a graph from which other nodes are hidden than in training."""
        losses = local_losses(cohort, own, graph)
        return torch.stack([losses.number, losses.features, losses.correlation], dim=1)

    @torch.no_grad()
    def question(self, own: Weights, cohort: Cohort) -> Message:
        """Encoded nodes of the client's sample, and the layers that make neighbours of them."""
        sample = sample_nodes(cohort, self.context.seed, self.settings.shared_nodes, SAMPLE_LAYER)
        rows = sample.of(encode(cohort, own, cohort.mean, cohort.mean_x))
        message: Message = {ASK + ROWS: rows, ASK + COUNT: sample.count}
        return message | {ASK + name: own[name].clone() for name in SHARED_LAYERS}

    def answer(self, cohort: Cohort, down: Message) -> Message:
        """The gradient of how far the asking client's generated neighbours are from one's own nodes; zero if none asked."""
        leaves = leaves_of({name: dense(down[PEER + name]) for name in SHARED_LAYERS})
        rows = dense(down[PEER + ROWS])
        real = torch.arange(rows.shape[1], device=rows.device) < dense(down[PEER + COUNT]).unsqueeze(1)
        sample = sample_nodes(cohort, self.context.seed, self.settings.shared_nodes, SAMPLE_LAYER)
        apart = peer_loss(cohort, leaves, rows, real, sample)
        return {ANSWER + name: grad for name, grad in gradients_of(apart.sum(), leaves).items()}

    # -- clients that come after training --------------------------------------------------------------------------------

    def newcomer_rounds(self) -> tuple[int, ...]:
        """Those of the generator, at home."""
        return tuple(range(self.settings.generator_rounds)) if self.mends else ()

    def newcomer_steps(self) -> int:
        """Those of the model."""
        return self.newcomer_epochs()

    # -- at the server ---------------------------------------------------------------------------------------------------

    def shared_shapes(self) -> Shapes:
        """What a question consists of."""
        s, shapes = self.settings, self.generator_shapes()
        return {ROWS: (s.shared_nodes, s.encoder), COUNT: ()} | {name: shapes[name] for name in SHARED_LAYERS}

    def server_start(self) -> tuple[State, Message]:
        """No question and no answer yet; nothing is sent."""
        server = self.previous_start()
        if self.mends:
            server |= {DIAGNOSTIC + name: torch.zeros(()) for name in NOTED}
        if self.crosses:
            clients = self.context.clients
            shapes = self.shared_shapes()
            server |= {ASK + name: torch.zeros(clients, *shape) for name, shape in shapes.items()}
            server |= {REPLY + name: torch.zeros(clients, *shapes[name]) for name in SHARED_LAYERS}
            server[ASKED] = torch.arange(clients)
            server[TURN] = torch.zeros(1, dtype=torch.int64)
        return server, {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """Besides FedAvg's, the questions of all clients, and an answer to each."""
        base = super().server_memory(sizes)
        if not self.crosses:
            return base
        numbers = {name: torch.Size(shape).numel() for name, shape in self.shared_shapes().items()}
        each = sum(numbers.values()) + sum(numbers[name] for name in SHARED_LAYERS)
        return base + 4 * each * self.context.clients

    @torch.no_grad()
    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """Pass questions and answers on in the generator's phase; then average as FedAvg does."""
        if QUALITY not in uploads:
            return super().aggregate(server, uploads, senders, receivers)
        for name, value in zip(NOTED, dense(uploads[QUALITY]).mean(0), strict=True):
            server[DIAGNOSTIC + name].copy_(value)
        message: Message = {}
        if ANSWER + BASIS in uploads:
            owner = server[ASKED][senders]
            for name in SHARED_LAYERS:
                kept = server[REPLY + name]
                kept[owner] = dense(uploads[ANSWER + name])
                message[REPLY + name] = kept[receivers]
                # An answer is used once; `kept[receivers] = 0` would copy a number of the host, which no capture can.
                kept.index_fill_(0, receivers, 0.0)
        if ASK + BASIS in uploads:
            peer = cycle(self.context.clients, self.context.seed, server[TURN])
            server[TURN] += 1
            server[ASKED].copy_(peer)
            for name in (ROWS, COUNT, *SHARED_LAYERS):
                server[ASK + name][senders] = dense(uploads[ASK + name])
                message[PEER + name] = server[ASK + name][peer[receivers]]
            alone = peer[receivers] == receivers
            message[PEER + COUNT] = torch.where(alone, 0.0, dense(message[PEER + COUNT]))
        return message

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """The clients' mean losses of the generator, and the correlation of the predicted number with the true one."""
        return {name: server[DIAGNOSTIC + name] for name in NOTED if DIAGNOSTIC + name in server}


def known(cohort: Cohort, made: Generated, basis: Tensor) -> Generated:
    """The generated neighbours of clients whose generators were trained; of the others none.

    A basis [M, D, F] is zero before the first step. A client that sat out the whole first phase has such a one: neighbours
    without features would only dilute its own.
    """
    trained = (basis != 0).flatten(1).any(1)[cohort.client]
    return Generated(torch.where(trained.view(-1, 1, 1), made.codes, 0.0), torch.where(trained, made.count, 0.0))


def typical(cohort: Cohort) -> Tensor:
    """[M] the root mean square of a client's features, by which the basis's steps are scaled."""
    return (square_mean(cohort) / cohort.features).sqrt()


def cycle(clients: int, seed: int, turn: Tensor) -> Tensor:
    """For each client whose question it is sent, [clients] int64: one cycle through all, another one in every turn [1]."""
    keys = torch.arange(clients, device=turn.device) + derive(seed, "server", "questions")
    drawn = Draws(advanced(keys, turn), 0).keyed(0)[0].argsort()
    return torch.empty_like(drawn).scatter_(0, drawn, drawn.roll(1))
