"""FedTAD: Zhu et al., FedTAD: Topology-aware Data-free Knowledge Distillation for Subgraph Federated Learning, IJCAI 2024.

An average of models forgets what single clients know well. Each client says how reliable its knowledge of each class is: how
alike its training nodes of the class and their neighbours are, in features and in random walks. After averaging, the server
makes up a graph by a generator, on which the average (the student) and the clients' models (the teachers) disagree most, and
trains the student to agree with each teacher on the classes that it knows. No data is needed for it.

    reliability_mc = sum over training nodes i of class c of mean_j cos([x_i, s_i], [x_j, s_j]), over neighbours j and i itself
    r_mc           = reliability_mc / sum_m reliability_mc,  applied to the pseudo nodes of class c
    generator      min  semantic CE(teachers, classes) - divergence + diversity exp(-mean(noise apart x features apart))
    student        min  divergence = sum_mc r_mc mean over pseudo nodes of c of |student - teacher_m|_1 / C

Where the code and the paper differ, or the paper leaves it open, and why (measured in `fedquilt docs fidelity`):

- *Start.* The paper distils in every round. Teachers that have hardly trained teach nothing: for `start_rounds` rounds the
  server only averages, and clients need not send their reliability.
- *Walks* are the exact chances of a return, as the paper's formula says; its public code draws walks and uses the numbers of
  the nodes that they pass as features.
- *Dropout* is off at the server; in the public code it is on, teachers included.
- *Once for all teachers.* Pseudo nodes are made once for all teachers, not once for each, and their outputs are computed once
  for all steps of the student on the same graph: the values are the same, dropout aside. The diversity term counts once.
- *Neighbours* of a pseudo node are `neighbours` others; the public code counts the node itself among its five.
- *Evaluation* is of what clients arrive at after local training, as in the other methods; the public code evaluates what the
  server sends.

`reliability=equal` and `shuffled` (everyone has the next client's) say what the reliability is worth, `student_steps=0` what
distillation is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, advanced
from fedquilt.cohort.rows import Rows
from fedquilt.common.random_streams import derive
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import Phase, RoundSizes, RunContext, State, Update, register
from fedquilt.methods.base_adam import MODEL, gradients_of, leaves_of
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.fedavg import TRAIN_NODES, WEIGHTS
from fedquilt.methods.fedhero import length
from fedquilt.methods.settings import BackboneSettings, Count, NonNegative, Positive
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import common_start, part
from fedquilt.nn.optim import adam_start, adam_step, clip_gradients
from fedquilt.nn.pseudo_graph import PseudoGraph, PseudoNodes, generate, generator_shapes, nearest, sameness
from fedquilt.nn.reliability import class_reliability

AVERAGING, DISTILLATION = "averaging", "distillation"  # phases
RELIABILITY = "reliability"
GENERATOR, GENERATOR_ADAM, STUDENT_ADAM = "generator.", "of_generator.", "of_student."  # in the server's state
KEY, TURN, LABELS, DIAGNOSTIC = "noise.key", "noise.turn", "labels", "diagnostic."
BEFORE, AFTER, AGREEMENT = "divergence_before", "divergence_after", "pseudo_accuracy"
CHANGE, TEACHERS = "student_change", "effective_teachers"
LONGEST = 100.0  # of a gradient at the server; teachers that are noise give longer ones
SMOOTH = 0.01  # differences of logits below which the absolute value is rounded off
NOTHING = 1e-12


@dataclass(frozen=True)
class FedTADSettings(BackboneSettings):
    """The backbone's settings and FedTAD's own.

    Attributes:
        start_rounds: rounds of averaging before the first distillation; at most all rounds but one.
        walks: steps of the random walks that the reliability reads.
        reliability: by what teachers are weighted: their topology, equal (all the same), or shuffled (the next client's).
        pseudo_nodes: nodes of the pseudo graph, as many of each class; at least as many as there are classes.
        neighbours: with how many others a pseudo node is joined; less than pseudo_nodes.
        noise: width of the noise from which pseudo nodes are made.
        distillations: how often a round the generator and the student are trained in turn.
        generator_steps, student_steps: steps of each at a time.
        generator_lr, student_lr: Adam's learning rates at the server.
        semantic: weight of the term by which teachers recognise pseudo nodes.
        diversity: weight of the term by which pseudo nodes differ.
    """

    start_rounds: Annotated[int, Field(ge=0)] = 1
    walks: Count = 5
    reliability: Literal["topology", "equal", "shuffled"] = "topology"
    pseudo_nodes: Count = 100
    neighbours: Count = 5
    noise: Count = 32
    distillations: Count = 3
    generator_steps: Annotated[int, Field(ge=0)] = 1
    student_steps: Annotated[int, Field(ge=0)] = 5
    generator_lr: Positive = 0.001
    student_lr: Positive = 0.001
    semantic: NonNegative = 1.0
    diversity: NonNegative = 1.0


@register("fedtad")
class FedTAD(BackboneMethod):
    """The server keeps the generator, Adam's moments of it and of the student, and how often it has drawn noise."""

    title = "FedTAD"
    paper = "Zhu et al., IJCAI 2024"
    admits = True
    newcomers = "A newcomer is given the last average after distillation, and trains it further; it sends nothing."
    baseline = True
    Settings = FedTADSettings
    settings: FedTADSettings
    searched = (*BackboneMethod.searched, "hidden", "student_lr")
    single_uploads = "server compares each client's own model with their average"
    uploads = (
        WEIGHTS,
        TRAIN_NODES,
        TensorSpec(
            RELIABILITY,
            "A number for each class: how many training nodes of it the client has, each counting the less, the less it is "
            "like its neighbours. It tells which classes the client has labels of, and roughly how many.",
        ),
    )
    downloads = (TensorSpec(MODEL + "*", "The average of the participants' models, after distillation.", shared=True),)

    def __init__(self, settings: FedTADSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        if settings.pseudo_nodes < context.outputs:
            raise FedquiltError(
                f"FedTAD makes pseudo nodes of every class, and pseudo_nodes={settings.pseudo_nodes} is less than the "
                f"{context.outputs} classes; choose at least as many."
            )
        if settings.neighbours >= settings.pseudo_nodes:
            raise FedquiltError(
                f"A pseudo node cannot be joined with neighbours={settings.neighbours} others where there are "
                f"pseudo_nodes={settings.pseudo_nodes} in all; choose fewer neighbours."
            )
        self._layouts: dict[tuple[int, torch.device], Rows] = {}

    def needs_whole_graphs(self) -> str:
        """Reliability is that of all training nodes and their neighbours."""
        return "how reliable a class is follows from random walks over the whole graph"

    def needs_classes(self) -> bool:
        """Reliability and pseudo nodes are by class."""
        return True

    def phases(self, rounds: int) -> tuple[Phase, ...]:
        """Averaging, then distillation."""
        start = min(self.settings.start_rounds, rounds - 1)
        after = (Phase(DISTILLATION, rounds - start),)
        return (Phase(AVERAGING, start), *after) if start else after

    # -- at the client -------------------------------------------------------------------------------------------

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train the student on; where the server distils, say how reliable the model is."""
        update = super().local_update(state, cohort, down, round)
        if self.phase(round)[0].name == DISTILLATION:
            update.upload[RELIABILITY] = class_reliability(cohort, self.settings.walks, self.context.outputs)
        return update

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The model and the number of training nodes."""
        message: Message = {MODEL + name: w for name, w in personal.items()}
        return message | {TRAIN_NODES.name: cohort.train_count}

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """A generator that was not trained, and the classes of pseudo nodes; nothing is sent."""
        s, context, seed = self.settings, self.context, self.context.seed
        shapes = generator_shapes(s.noise, context.outputs, context.features)
        generator = common_start(shapes, derive(seed, "server", "generator"), 1, torch.device("cpu"))
        student = self.common_weights(1, torch.device("cpu"))
        labels = torch.arange(s.pseudo_nodes) * context.outputs // s.pseudo_nodes
        server: State = {GENERATOR + name: w for name, w in generator.items()}
        server |= {GENERATOR_ADAM + name: value for name, value in adam_start(generator).items()}
        server |= {STUDENT_ADAM + name: value for name, value in adam_start(student).items()}
        server |= {KEY: torch.tensor([derive(seed, "server", "noise")]), TURN: torch.zeros(1, dtype=torch.int64)}
        server[LABELS] = F.one_hot(labels, context.outputs).float()
        found = (BEFORE, AFTER, AGREEMENT, CHANGE, TEACHERS)
        return server | {DIAGNOSTIC + name: torch.zeros(()) for name in found} | self.previous_start(), {}

    def size(self, nodes: int) -> int:
        """Besides, the generator: a site makes it once, to learn what downloads look like."""
        shapes = generator_shapes(self.settings.noise, self.context.outputs, self.context.features)
        return super().size(nodes) + sum(torch.Size(shape).numel() for shape in shapes.values())

    def server_memory(self, sizes: RoundSizes) -> int:
        """The generator and both optimisers, and the outputs of all teachers on the pseudo graph, layer by layer."""
        s, context = self.settings, self.context
        shapes = generator_shapes(s.noise, context.outputs, context.features)
        numbers = 4 * sum(torch.Size(shape).numel() for shape in shapes.values())
        rows = 4 * s.pseudo_nodes * (sizes.senders + 1) * (3 * s.layers * s.hidden // 2 + 8 * context.outputs)
        return super().server_memory(sizes) + 5 * numbers + 4 * sizes.upload + rows + sizes.senders * sizes.upload

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """The average; where clients said how reliable they are, after distillation of their models into it."""
        teachers = {name: dense(value) for name, value in uploads.items() if name.startswith(MODEL)}
        down = self.average_all(server, teachers, dense(uploads[TRAIN_NODES.name]))
        if RELIABILITY not in uploads:
            return down
        mean = {name.removeprefix(MODEL): dense(w) for name, w in down.items()}
        student = {name: w.unsqueeze(0).clone() for name, w in mean.items()}
        share = self.shares_of(dense(uploads[RELIABILITY]))
        self.distil(server, student, {name.removeprefix(MODEL): w for name, w in teachers.items()}, share)
        sent: Message = {MODEL + name: w[0] for name, w in student.items()}
        moved = length(student[name][0] - w for name, w in mean.items()) / length(mean.values()).clamp_min(NOTHING)
        server[DIAGNOSTIC + CHANGE].copy_(moved)
        server[DIAGNOSTIC + TEACHERS].copy_(effective_teachers(share))
        return sent

    def shares_of(self, reliability: Tensor) -> Tensor:
        """r_mc from what n clients said, [n, C] -> [n, C]; columns sum to one, or to zero where nobody knows the class."""
        known = reliability.nan_to_num(0.0, 0.0, 0.0).clamp_min(0.0)
        if self.settings.reliability == "equal":
            return torch.full_like(known, 1.0 / len(known))
        share = known / known.sum(0).clamp_min(NOTHING)
        return share.roll(1, 0) if self.settings.reliability == "shuffled" else share

    def distil(self, server: State, student: Weights, teachers: Weights, share: Tensor) -> None:
        """Train the generator and the student in turn, in place: student [1, ...], teachers [n, ...], share [n, C]."""
        s, labels = self.settings, server[LABELS]
        generator = part(server, GENERATOR)
        moments, own_moments = part(server, GENERATOR_ADAM), part(server, STUDENT_ADAM)
        weight = (
            share @ (labels / labels.sum(0)).T
        )  # [n, Q]: a pseudo node counts as much as its class, over the class's nodes
        keys = advanced(server[KEY], server[TURN])
        server[TURN].add_(s.distillations)
        one, many = self.layout(1, share.device), self.layout(len(share), share.device)
        for epoch in range(s.distillations):
            noise = Draws(keys, epoch).normal(one, s.noise, 0)
            leaves, nodes = self.pseudo(generator, noise, labels)
            taught = self.outputs(many, nodes, teachers)
            before = self.teach(student, own_moments, nodes.detached(), taught.detach(), weight)
            after = before
            for turn in range(s.generator_steps):
                if turn:
                    leaves, nodes = self.pseudo(generator, noise, labels)
                    taught = self.outputs(many, nodes, teachers)
                apart = divergence(self.outputs(one, nodes, student)[0], taught.detach(), weight)
                after = after if turn else apart.detach()
                same = sameness(noise, nodes.x.features)
                loss = s.semantic * recognition(taught, labels, weight) + s.diversity * same - apart
                bounded_step(generator, gradients_of(loss, leaves), moments, s.generator_lr)
        right = (taught.argmax(2) == labels.argmax(1)).float()
        server[DIAGNOSTIC + BEFORE].copy_(before)
        server[DIAGNOSTIC + AFTER].copy_(after)
        server[DIAGNOSTIC + AGREEMENT].copy_((weight * right).sum() / weight.sum().clamp_min(NOTHING))

    def pseudo(self, generator: Weights, noise: Tensor, labels: Tensor) -> tuple[Weights, PseudoNodes]:
        """A pseudo graph, and the generator's weights as the leaves by which its features can be differentiated."""
        leaves = leaves_of(generator)
        x = generate({name: w[0] for name, w in leaves.items()}, noise, labels)
        return leaves, PseudoNodes(x, nearest(x, self.settings.neighbours))

    def teach(self, student: Weights, moments: State, nodes: PseudoNodes, taught: Tensor, weight: Tensor) -> Tensor:
        """Train the student toward its teachers on one pseudo graph, in place; what they differed by before."""
        one = self.layout(1, taught.device)
        first = torch.zeros((), device=taught.device)
        for step in range(self.settings.student_steps):
            leaves = leaves_of(student)
            loss = divergence(self.outputs(one, nodes, leaves)[0], taught, weight)
            first = first if step else loss.detach()
            bounded_step(student, gradients_of(loss, leaves), moments, self.settings.student_lr)
        return first

    def layout(self, models: int, device: torch.device) -> Rows:
        """The rows of pseudo nodes for so many models, made once: a CUDA graph cannot make them."""
        if (models, device) not in self._layouts:
            self._layouts[models, device] = Rows([self.settings.pseudo_nodes] * models, device)
        return self._layouts[models, device]

    def outputs(self, rows: Rows, nodes: PseudoNodes, weights: Weights) -> Tensor:
        """The logits of models [n, ...] on one pseudo graph: [n, Q, C]."""
        graph = cast(Cohort, PseudoGraph(rows, nodes))
        return self.model(graph, weights).logits.view(rows.clients, self.settings.pseudo_nodes, -1)

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """Whether there is something to distil, and whether the student learns it; zero before the first distillation.

        divergence_before    what the student and its teachers differ by on the last pseudo graph of the round
        divergence_after     the same after the student's steps on it
        pseudo_accuracy      share of pseudo nodes whose class teachers recognise, by their reliability for it
        student_change       distance of the student from the average that it began as, over the average's norm
        effective_teachers   number of clients that a class is effectively learned from, the mean over classes
        """
        return part(server, DIAGNOSTIC)


def bounded_step(weights: Weights, grads: Weights, moments: State, lr: float) -> None:
    """One step of Adam at the server, in place, with gradients of bounded length."""
    clip_gradients(grads, LONGEST)
    adam_step(weights, grads, moments, lr, 0.0)


def effective_teachers(share: Tensor) -> Tensor:
    """exp(-sum_m r_mc log r_mc), the mean over the classes that anybody knows: [n, C] -> scalar."""
    each = torch.exp(-torch.special.xlogy(share, share).sum(0))
    known = (share.sum(0) > 0).float()
    return (known * each).sum() / known.sum().clamp_min(1.0)


def recognition(taught: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """sum_mq weight_mq CE(taught_mq, class of q): taught [n, Q, C], labels [Q, C] one-hot, weight [n, Q] -> scalar."""
    return -(weight * (F.log_softmax(taught, dim=2) * labels).sum(2)).sum()


def divergence(learned: Tensor, taught: Tensor, weight: Tensor) -> Tensor:
    """sum_mq weight_mq |learned_q - taught_mq|_1 / C: learned [Q, C], taught [n, Q, C], weight [n, Q] -> scalar.

    |d| is sqrt(d^2 + s^2) - s with a small s. Where models agree, the sign of d is rounding, of which Adam makes a whole step.
    """
    apart = (learned - taught).square().add(SMOOTH**2).sqrt() - SMOOTH
    return (weight * apart.mean(2)).sum()
