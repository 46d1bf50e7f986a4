"""The base class of methods that train with Adam at their clients, whatever the network."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedquilt.cohort.batches import Schedule, fits, steps_an_epoch
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import advanced, client_keys
from fedquilt.devices.device import is_capturing
from fedquilt.messages.message import Message, TensorSpec, declared, dense
from fedquilt.methods.base import Method, RunContext, State, Update
from fedquilt.methods.settings import AdamSettings
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Shapes, common_start
from fedquilt.nn.optim import DECAYED, LearningRate, adam_start, adam_step, clip_gradients

MODEL = "model."
PREVIOUS = "previous."  # in the server's state: what was sent before, where the averaging rule needs it
KEYS = "dropout.key"
CLOCK = "dropout.clock"
NEWCOMER_EPOCHS = 10  # that a newcomer trains what it was given, where neither the run nor the method says otherwise


class AdamMethod(Method):
    """State: the model's weights under ``model.``, Adam's moments, and the key of each client's random numbers with the number
    of its next training step, on which they depend too."""

    settings: AdamSettings
    client_settings: ClassVar[tuple[str, ...]] = ("lr", "weight_decay", "epochs")

    @classmethod
    def defaults(cls, context: RunContext) -> dict[str, Any]:
        """Local epochs are the dataset's."""
        return {"epochs": context.epochs}

    @abstractmethod
    def shapes(self) -> Shapes:
        """Every weight of the model by name, without the leading client axis."""

    def start(self, cohort: Cohort) -> State:
        """The common start, fresh Adam moments."""
        weights = self.common_weights(cohort.clients, cohort.device)
        state = {MODEL + name: w for name, w in weights.items()} | self.private(weights)
        keys = client_keys(self.context.seed, cohort)
        return state | adam_start(self.trained(state)) | {KEYS: keys, CLOCK: torch.zeros_like(keys)}

    def common_weights(self, clients: int, device: torch.device) -> Weights:
        """The model's weights before round 0, by their names in the model, the same for every client: [M, ...]."""
        return common_start(self.shapes(), self.context.seed, clients, device)

    def public_start(self) -> Message:
        """The common start of the model, and of everything else in `private` that is uploaded, except counts."""
        weights = self.common_weights(1, torch.device("cpu"))
        sent = {spec.name for spec in self.uploads if not spec.count}
        known: Message = {MODEL + name: w[0] for name, w in weights.items()}
        return known | {name: value[0] for name, value in self.private(weights).items() if name in sent}

    def previous_start(self) -> State:
        """For the server's state: the common start of what is averaged, where the rule needs the values sent before."""
        if not self.averaging.needs_previous:
            return {}
        known = {name: dense(value) for name, value in self.public_start().items()}
        model = {MODEL + name for name in self.shapes() if self.shares(name)}
        return {PREVIOUS + name: w for name, w in known.items() if name in model or self.sends(name)}

    def average_all(self, server: State, stacks: State, weight: Tensor) -> Message:
        """The average of each of the tensors [n, ...] that clients sent, with the clients' weights [n]: [...] each."""
        before = {name: server.get(PREVIOUS + name) for name in stacks}
        trust = self.trust(before, stacks, dict.fromkeys(stacks))
        down: Message = {
            name: self.averaging.average(stack, weight * trust[name] if name in trust else weight, before[name])
            for name, stack in stacks.items()
        }
        self.remember(server, down)
        return down

    def trust(
        self, before: Mapping[str, Tensor | None], stacks: State, votes: Mapping[str, Tensor | None]
    ) -> dict[str, Tensor]:
        """Which clients count in each tensor, [n] of ones and zeros; empty where all do (`Averaging.trust`)."""
        known = {name: value for name, value in before.items() if value is not None}
        if not known:
            return {}
        found = self.averaging.trust([stacks[n] for n in known], list(known.values()), [votes[n] for n in known])
        return {} if found is None else dict(zip(known, found, strict=True))

    def remember(self, server: State, down: Message) -> None:
        """Store what is sent now, in place, where `previous_start` did."""
        for name, value in down.items():
            if PREVIOUS + name in server:
                server[PREVIOUS + name].copy_(dense(value))

    def shares(self, name: str) -> bool:
        """Whether the model's weight `name` is uploaded, of those that are declared."""
        return True

    def sent_uploads(self) -> list[TensorSpec]:
        """The declared uploads that are sent; a pattern such as ``model.*`` counts where any weight that it covers is sent."""
        sent = [MODEL + name for name in self.shapes() if self.shares(name) and self.sends(MODEL + name)]
        covering = {spec.name for name in sent if (spec := declared(self.uploads, name)) is not None}
        return [spec for spec in self.uploads if self.sends(spec.name) or spec.name in covering]

    def personal_shapes(self) -> Shapes:
        """The shapes of what `personal` makes of the model's weights and `private`."""
        weights = {name: torch.empty(1, *shape, device="meta") for name, shape in self.shapes().items()}
        state = {MODEL + name: w for name, w in weights.items()} | self.private(weights)
        return {name: tuple(w.shape[1:]) for name, w in self.personal(state).items()}

    def private(self, weights: Weights) -> State:
        """Tensors that clients keep beside the model's weights, by their names in the state; weights [M, ...]."""
        return {}

    def trained(self, state: State) -> Weights:
        """The tensors of the state that Adam updates, by their names in the state."""
        return {name: tensor for name, tensor in state.items() if name.startswith(MODEL)}

    def rates(self, cohort: Cohort) -> dict[str, LearningRate]:
        """Learning rates of tensors that do not have the method's `lr`, by their names in the state: one, or one a client."""
        return {}

    def learning_rate(self, cohort: Cohort) -> LearningRate:
        """The method's `lr`, or one for each client [M] where some have their own."""
        own = cohort.own_values("lr", self.settings.lr)
        return self.settings.lr if own is None else own

    def weights(self, state: State) -> Weights:
        """The model's weights as they act, by their names in the model."""
        return {name.removeprefix(MODEL): w for name, w in state.items() if name.startswith(MODEL)}

    def receive(self, state: State, down: Message) -> None:
        """Copy what the server sent into the state: one tensor for all clients, or one a client."""
        for name, value in down.items():
            if name.startswith(MODEL):
                state[name].copy_(dense(value))

    def received(self, state: State) -> Message:
        """Copies of the model's weights as they are now: after `receive` what was sent, in round 0 the common start."""
        return {name: tensor.clone() for name, tensor in state.items() if name.startswith(MODEL)}

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Receive the download and train `epochs` epochs: a step each, or several where clients train in batches."""
        self.receive(state, down)
        return self.train(state, cohort, down, self.steps(round))

    def steps(self, round: int) -> range:
        """The training steps of a round, numbered through a client's whole training (its randomness depends on them).

        Where clients train in batches, each of them is an epoch of several steps.
        """
        count = self.steps_of(self.settings.epochs)
        return range(round * count, (round + 1) * count)

    def steps_of(self, epochs: int) -> int:
        """How many training steps a client with so many local epochs takes in a round."""
        return epochs

    def local_steps(self, round: int) -> int:
        """Those of `steps`."""
        return len(self.steps(round))

    def steps_taken(self, cohort: Cohort, steps: int) -> list[int] | None:
        """How many of `steps` training steps each client takes, of whom some may have epochs of their own; None: all of them.

        Of a straggler it is the share that it does, rounded down, and at least one.
        """
        own = cohort.own_settings("epochs", self.settings.epochs)
        if own is None and cohort.efforts is None:
            return None
        planned = [steps] * cohort.clients if own is None else [self.steps_of(int(epochs)) for epochs in own]
        if cohort.efforts is None:
            return planned
        return straggling(cohort.efforts, planned)

    def own_epochs(self, cohort: Cohort) -> Tensor | None:
        """The local epochs that each client does, [M], where a step is an epoch; None: all do the run's."""
        taken = self.steps_taken(cohort, self.settings.epochs)
        kind = torch.float64 if cohort.device.type == "cpu" else torch.float32
        return None if taken is None else torch.tensor(taken, dtype=kind, device=cohort.device)

    def keys_for(self, state: State, steps: range) -> Tensor:
        """The keys [M] of the clients' random numbers in these training steps; the clock then stands at their end."""
        clock = state[CLOCK]
        if not is_capturing(clock):  # a replayed CUDA graph goes on from the step at which the round before stopped
            clock.fill_(steps.start)
        keys = advanced(state[KEYS], clock)
        clock += len(steps)
        return keys

    def set_clock(self, state: State, cohort: Cohort, at_work: Tensor, round: int) -> None:
        """Set the clock of those at work to their first step of the round."""
        clock = state[CLOCK]
        first = self.first_steps(cohort, self.steps(round)).to(clock.device, clock.dtype, non_blocking=True)
        clock.copy_(torch.where(at_work, first, clock))

    def train(self, state: State, cohort: Cohort, down: Message, steps: range) -> Update:
        """Run these training steps; the upload, the personal models and the loss of the last one."""
        if self.context.batch_nodes and not fits(cohort, self.context.batch_nodes):
            return self._train_in_batches(state, cohort, down, steps)
        taken = self.steps_taken(cohort, len(steps))
        if taken is not None:
            return self._train_unequally(state, cohort, down, steps, taken)
        keys, loss = self.keys_for(state, steps), torch.zeros(cohort.clients)
        for epoch in range(len(steps)):
            loss = self.step(state, cohort, down, Dropout(self.settings.dropout, keys, epoch))
        return self.after_training(state, cohort, down, loss)

    def after_training(self, state: State, cohort: Cohort, down: Message, loss: Tensor) -> Update:
        """What a round gives when its training steps are done: the upload, the personal models and the loss."""
        personal = self.personal(state)
        return Update(self.upload(state, personal, cohort, down), personal, loss)

    def step(self, state: State, cohort: Cohort, down: Message, dropout: Dropout) -> Tensor:
        """One training step of all clients; each client's loss [M] before it."""
        grads, loss = self.gradients(state, cohort, dropout, down)
        self.move(state, cohort, grads, down)
        return loss

    def move(self, state: State, cohort: Cohort, grads: Weights, down: Message) -> None:
        """The second half of a training step: change the state by the gradients."""
        if self.settings.clip:
            self.clip(grads, self.settings.clip)
        trained, rates, decay = self.trained(state), self.rates(cohort.origin), self.settings.weight_decay
        trained = {name: w for name, w in trained.items() if name in grads}
        lr = self.learning_rate(cohort)
        if isinstance(lr, Tensor):
            rates = {**dict.fromkeys(trained, lr), **rates}
        own = cohort.own_values("weight_decay", decay)
        if own is not None:  # added here, as Adam's kernels know one for all
            decay = 0.0
            for name in (name for name in trained if name.startswith(DECAYED)):
                grads[name] = torch.addcmul(grads[name], along(own.float(), grads[name]), trained[name])
        self.descend(trained, grads, state, decay, rates)
        self.after_step(state, down)

    def clip(self, grads: Weights, norm: float) -> None:
        """Cut each client's gradient to this norm, in place: one norm over all that is trained."""
        clip_gradients(grads, norm)

    def descend(
        self, trained: Weights, grads: Weights, state: State, decay: float, rates: Mapping[str, LearningRate]
    ) -> None:
        """Move the weights along their gradients, in place: a step of Adam, whose moments are in the state."""
        adam_step(trained, grads, state, self.settings.lr, decay, rates)

    def _train_unequally(self, state: State, cohort: Cohort, down: Message, steps: range, taken: list[int]) -> Update:
        """As `train`, where client m takes taken[m] steps: the state of those who are done stays as it is."""
        clock, loss = state[CLOCK], torch.zeros(cohort.clients, device=cohort.device)
        counts = torch.tensor(taken, device=clock.device, dtype=clock.dtype)
        if not is_capturing(clock):
            clock.copy_(self.first_steps(cohort, steps).to(clock))
        keys = advanced(state[KEYS], clock)
        clock += counts
        for epoch in range(max(taken)):
            at_work = counts > epoch
            before = {name: tensor.clone() for name, tensor in state.items()} if epoch >= min(taken) else {}
            new = self.step(state, cohort, down, Dropout(self.settings.dropout, keys, epoch))
            loss = torch.where(at_work.to(new.device), new, loss.to(new.device))
            keep_rows(state, before, at_work)
        return self.after_training(state, cohort, down, loss)

    def _train_in_batches(self, state: State, cohort: Cohort, down: Message, epochs: range) -> Update:
        """As `train`, where an epoch has several steps on parts of the clients' graphs (`fedquilt.cohort.batches`).

        The state of a client that has taken its steps of an epoch stays as it is until the others have. A client's loss is the
        mean over the steps of its last epoch, by their training nodes.
        """
        taken = self.steps_taken(cohort, len(epochs)) or [len(epochs)] * cohort.clients
        first = self.first_steps(cohort, epochs).tolist()
        nodes, fan_out = self.context.batch_nodes, self.context.fan_out
        schedule = Schedule(cohort, nodes, self.context.seed, first, taken, fan_out)
        total, summed = torch.zeros(cohort.clients, device=cohort.device), Summed()
        for turn in schedule.turns(self.constants()):
            # Step `epoch` of these keys is the step's number in the client's training.
            keys = advanced(state[KEYS], turn.clock - turn.epoch)
            dropout = Dropout(self.settings.dropout, keys, turn.epoch)
            share = (turn.batch.train_count / cohort.train_count).index_fill(0, turn.waiting, 0.0)
            if self.context.batch_sums:
                grads, loss = self.gradients(state, turn.batch, dropout, down)
                summed.add(grads, share)
                if turn.ends:
                    with keeping(state, turn.resting):
                        self.move(state, cohort, summed.taken(), down)
            else:
                with keeping(state, turn.waiting):
                    loss = self.step(state, turn.batch, down, dropout)
            total = torch.where(turn.begins, 0.0, total) + share * loss.to(total.device)
        state[CLOCK].copy_(schedule.end)
        return self.after_training(state, cohort, down, total)

    def batches_an_epoch(self, cohort: Cohort) -> Tensor | None:
        """[M] float32: Adam's steps of an epoch of each client, where it has one for each batch; None: one each."""
        whole, nodes, fan_out = cohort.origin, self.context.batch_nodes, self.context.fan_out
        if not nodes or self.context.batch_sums or fits(whole, nodes):
            return None
        steps: Tensor = whole.once(("steps an epoch", nodes, fan_out), lambda c: steps_an_epoch(c, nodes, fan_out))
        return steps

    def first_steps(self, cohort: Cohort, steps: range) -> Tensor:
        """The number of each client's first step of a round, [M] int64; of one with epochs of its own, counted in these."""
        own = cohort.own_settings("epochs", self.settings.epochs)
        if own is None:
            return torch.full((cohort.clients,), steps.start)
        rounds = steps.start // self.steps_of(self.settings.epochs)
        return torch.tensor([rounds * self.steps_of(int(epochs)) for epochs in own])

    @abstractmethod
    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradient of the local objective by the names of `trained`, and each client's loss [M].

        What it leaves out stays as it is in this step.
        """

    def after_step(self, state: State, down: Message) -> None:
        """Change the state after each of Adam's steps; does nothing unless a method overrides it."""

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The upload after training; empty unless a method overrides it."""
        return {}

    def personal(self, state: State) -> State:
        """The effective weights."""
        return self.weights(state)

    # -- clients that come after training ----------------------------------------------------------------------------

    def standing(self, state: State, cohort: Cohort, down: Message) -> Message:
        """The upload of the state as it is."""
        return self.upload(state, self.personal(state), cohort, down)

    def newcomer_epochs(self) -> int:
        """How many local epochs a newcomer trains what it was given."""
        return self.context.newcomer_epochs or NEWCOMER_EPOCHS

    def newcomer_receive(self, state: State, down: Message) -> None:
        """Copy what a newcomer was given into its state."""
        self.receive(state, down)

    def newcomer_update(self, state: State, cohort: Cohort, down: Message) -> Update:
        """A local round of `newcomer_epochs` epochs with what was given, in the last phase of the method."""
        return self._newcomer_trainer().local_update(state, cohort, down, self._newcomer_round())

    def newcomer_steps(self) -> int:
        """Those of its rounds before it is given its model, and of the one after."""
        before = sum(len(self.steps(round)) for round in self.newcomer_rounds())
        return before + len(self._newcomer_trainer().steps(self._newcomer_round()))

    def _newcomer_trainer(self) -> AdamMethod:
        """The same method with a newcomer's epochs as local epochs."""
        settings = replace(self.settings, epochs=self.newcomer_epochs())
        return type(self)(settings, self.context, self.averaging)

    def _newcomer_round(self) -> int:
        """The second round of the last phase."""
        *before, _ = self.phases(self.context.rounds)
        return sum(phase.rounds for phase in before) + 1


def straggling(efforts: Sequence[float], planned: Sequence[int]) -> list[int]:
    """The steps that clients take who do these shares of what is planned: rounded down, and at least one."""
    return [max(1, math.floor(share * count)) for share, count in zip(efforts, planned, strict=True)]


class Summed:
    """Gradients of several batches, added up."""

    def __init__(self) -> None:
        self._total: Weights = {}

    def add(self, grads: Weights, share: Tensor) -> None:
        """Add each client's gradient times its share [M]; of one whose share is zero, nothing."""
        for name, grad in grads.items():
            part = torch.where(along(share > 0, grad), along(share, grad) * grad, 0.0)
            self._total[name] = self._total[name].add_(part) if name in self._total else part

    def taken(self) -> Weights:
        """The sums, which begin anew."""
        total, self._total = self._total, {}
        return total


@contextmanager
def keeping(state: State, places: Tensor) -> Iterator[None]:
    """After the block, the clients at these places have the state that they had before it."""
    before = {name: tensor[places] for name, tensor in state.items()} if len(places) else {}
    yield
    for name, rows in before.items():
        state[name][places] = rows


def keep_rows(state: State, before: Mapping[str, Tensor], at_work: Tensor) -> None:
    """Give the clients that are not at work, [M] bool, their rows of `before` again, in place."""
    for name, tensor in before.items():
        state[name].copy_(torch.where(along(at_work.to(tensor.device), tensor), state[name], tensor))


def along(values: Tensor, tensor: Tensor) -> Tensor:
    """Values [M] as a tensor that is broadcast over the other axes of `tensor` [M, ...]."""
    return values.view(-1, *[1] * (tensor.dim() - 1))


def leaves_of(weights: Weights) -> Weights:
    """Copies that share memory with the weights, with respect to which autograd takes gradients."""
    return {name: w.detach().requires_grad_() for name, w in weights.items()}


def gradients_of(total: Tensor, leaves: Weights) -> Weights:
    """The gradient of `total` with respect to each of the leaves, by name; contiguous, as Adam's kernel needs it."""
    grads = torch.autograd.grad(total, list(leaves.values()))
    return {name: grad.contiguous() for name, grad in zip(leaves, grads, strict=True)}
