"""Quilt: the method of fedquilt, 2026; `fedquilt docs quilt` says more.

What features and labels *mean* is common to all data owners; *how the graph carries it* is not, and no single look at a graph
is right for every owner. So a client looks at its graph in several ways side by side, its views: at a node's own features
(`mlp`), through graph filters of its own (`fedquilt.nn.filters`), at what neighbours' features say of a node's class (`gpr`,
`fedquilt.nn.gpr`), at the same of those neighbours that seem to be of its class (`attention`), at a node beside the mean of
its neighbours (`sage`), and as it would alone (`private`). Each view but the last shares its weights with the same view of the
other clients; the views that do best on validation nodes decide.

- *Shared weights* W. Clients send gradients; the server takes a step of Adam along their mean, weighted by training nodes
  (FedSGD with Adam; Reddi et al., Adaptive Federated Optimization, 2021). Adam scales the step of each weight by itself, so
  that a feature that few clients have is learned from those who have it, at full speed.
- *Features of one length.* A client multiplies its features by s_m, which brings them to the root mean square length
  `feature_length`. Adam's steps do not know how long features are: short ones are learned slowly, long ones in jumps.
- *Private parts.* Filters never leave a client, nor does s_m, nor do the weights of `private`, which is `gpr` but for that: of
  it only s is shared, how much each distance counts. It is for clients whose features mean something else than the others'.
- *Mixture.* A client compares its views on its validation nodes and sends its votes, a number from 0 to 1 for each. It
  predicts with the mixture of views (`fedquilt.nn.views`) by exponential weights of everyone's average votes, and of its own
  the more the more validation nodes it has. Before the rounds DROPS views that are clearly worse than the best are dropped,
  before the last of them all but the best two: clients do not train or send them any more.

With `masks` a client has a mask O_m too, from when two views are left: it trains W (1 + O_m), and its mask learns at the rate
lr n_m / (n_m + reach), where n_m is the number of its training nodes: who has many labels can afford to differ. It predicts
with W (1 + g_m O_m), where g_m from 0 to 1 comes from votes for masks and against them.

With `average=weights` clients take the steps of Adam and the server averages weights, patch by patch over those who have
*evidence* for it: the weights of a feature by how many of a client's training nodes have it, themselves or in a neighbour, the
classifier's weights of a class by how many training nodes are of that class: W[f] = sum_m e_mf W_m[f] / sum_m e_mf. Quilt's
first version is model=filter hidden=128 average=weights order=4 groups=5 basis=scaled feature_dropout=0 feature_length=0
lr=0.01 weight_decay=0 masks=true reach=200.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Places
from fedquilt.cohort.features import root_mean_square_length
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RoundSizes, RunContext, State, Update, register
from fedquilt.methods.base_adam import MODEL, PREVIOUS, AdamMethod, along
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.base_evidence import (
    CLASSES_SEEN,
    EVIDENCE,
    EVIDENCE_UPLOADS,
    FEATURES_SEEN,
    EvidenceMethod,
)
from fedquilt.methods.base_votes import AVERAGE_VOTES, LEFT, VOTES, VOTES_DOWNLOAD, VOTES_UPLOAD, VotingMethod
from fedquilt.methods.fedavg import AVERAGE, TRAIN_NODES, WEIGHTS
from fedquilt.methods.quilt_settings import QuiltSettings, check_together
from fedquilt.methods.quilt_views import among_others, is_shared, network_of
from fedquilt.methods.sums import mean_of_sums, weighted_summands
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.filters import FILTER, IDENTITY, FilterNet, of_each_once, unit_factors
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Network, matrices
from fedquilt.nn.optim import LearningRate, adam_start, adam_step
from fedquilt.nn.views import Views
from fedquilt.tasks import LINK, NODE_REGRESSION
from fedquilt.tasks.base import find_task

MASK, GRADIENT = "mask.", "gradient."
SCALE = "feature scale"  # in a client's state: by what it multiplies its features, [M]
# Chosen on validation, on Cora and CiteSeer in ten parts (`fedquilt docs link-prediction`).
FOR_LINKS: dict[str, Any] = {"lr": 0.003}
FEW_FEATURES = 100  # with fewer each one matters, and none are dropped by default
FEATURE_LAYER = 2  # the `layer` of the draws that drop features; see `Draws`


@register("quilt")
class Quilt(VotingMethod, EvidenceMethod):
    """State: the shared weights (``model.``), their gradients since the round began (``gradient.``), or Adam's moments, masks
    (``mask.``), coefficients and the table of identities; of several views, votes and mixture (`VotingMethod`)."""

    title = "Quilt"
    paper = "fedquilt, 2026"
    compute_version = 5
    kind_versions = MappingProxyType({LINK: 3, NODE_REGRESSION: 3})
    admits = True
    newcomers = (
        "A newcomer is given the shared layers of the views that are left and everyone's votes on them, and trains them with "
        "graph filters of its own; it sends nothing."
    )
    Settings = QuiltSettings
    settings_before = MappingProxyType(
        {
            **{"model": "filter", "average": "weights", "feature_dropout": 0.0, "lr": 0.01, "reach": 200.0},
            **{"hidden": 128, "order": 4, "groups": 5, "basis": "scaled", "feature_length": 0.0},
            **{"weight_decay": 0.0, "masks": True},
        }
    )
    searched = (*BackboneMethod.searched, "hidden", "node_dropout", "feature_dropout", "filter_lr", "reach")
    settings: QuiltSettings
    client_settings = ("weight_decay", "epochs")
    uploads = (
        TensorSpec(
            GRADIENT + "*",
            "How the client's loss changes with the shared weights: as a model after training, it may reveal properties of its "
            "nodes.",
            weights=True,
            gradient=True,
        ),
        WEIGHTS,
        TensorSpec(
            FILTER,
            "The coefficients of the client's graph filters; only if you ask for it with share=filter.",
            weights=True,
        ),
        *EVIDENCE_UPLOADS,
        VOTES_UPLOAD,
        TRAIN_NODES,
    )
    downloads = (
        AVERAGE,
        TensorSpec(FILTER, "The average of the participants' coefficients.", shared=True),
        VOTES_DOWNLOAD,
    )
    single_uploads = ""

    def __init__(self, settings: QuiltSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        self.shared = {part.strip() for part in settings.share.split(",") if part.strip()}
        check_together(settings, self.shared)
        super().__init__(settings, context, averaging)

    @classmethod
    def defaults(cls, context: RunContext) -> dict[str, Any]:
        """Local epochs are the dataset's; without classes no units are dropped, of few features no features."""
        own: dict[str, Any] = {} if find_task(context.task, context.task_settings).has_classes else {"dropout": 0.0}
        own |= FOR_LINKS if context.task == LINK else {}
        if context.features < FEW_FEATURES:
            own["feature_dropout"] = 0.0
        return super().defaults(context) | own

    def make_model(self) -> Network:
        """The network of the only view, or all of them."""
        made = partial(network_of, context=self.context, backbone=self.network)
        if len(self.names) == 1:
            return made(self.names[0], self.settings)
        networks = {name: made(name, among_others(name, self.settings)) for name in self.names}
        return Views(networks, {"filter": (FILTER, IDENTITY)}, self.task.mixture)

    @property
    def sends_gradients(self) -> bool:
        """Whether the server takes the steps."""
        return self.settings.average == "gradients"

    def sends_gradient_of(self, name: str) -> bool:
        """Whether the server takes the steps of the weight `name`."""
        return self.sends_gradients and self.shares(name)

    @property
    def shares_weights(self) -> bool:
        """Whether layers or heads are shared."""
        return bool(self.shared & {"layer", "head"})

    def shares(self, name: str) -> bool:
        """Whether the weight `name` is shared with the others."""
        view, inside = self.split_name(name)
        return is_shared(view, inside) and ("head" if inside.startswith("classifier.") else "layer") in self.shared

    def sends(self, name: str) -> bool:
        """Gradients or weights, and coefficients, are sent where they are shared; evidence and votes where they are used."""
        by_evidence = self.settings.evidence and not self.sends_gradients
        if name.startswith((MODEL, GRADIENT)):
            return self.shares_weights and name.startswith(GRADIENT) == self.sends_gradients
        asked = {
            FILTER: "filter" in self.shared,
            FEATURES_SEEN: by_evidence and "layer" in self.shared,
            CLASSES_SEEN: by_evidence and "head" in self.shared and self.task.has_classes,
            VOTES: self.several and bool(self.shared),
            TRAIN_NODES.name: bool(self.shared),
        }
        return asked.get(name, super().sends(name))

    def needs_whole_graphs(self) -> str:
        """A table of identities has a row for each node of the whole graph."""
        return "identity has rows for the nodes of the whole graph; set identity=0" if self.settings.identity else ""

    def averages(self) -> bool:
        """What is shared, if anything is."""
        return bool(self.shared)

    # -- at the client -------------------------------------------------------------------------------------------

    @cached_property
    def readers(self) -> Sequence[str]:
        """The weights that read features which are brought to one length, by their names in the model."""
        return getattr(self.model, "feature_weights", ()) if self.settings.feature_length else ()

    def start(self, cohort: Cohort) -> State:
        """The common start, with s_m W for the weights that read features, see `receive`."""
        state = super().start(cohort)
        if self.readers:
            state[SCALE] = self.scales(cohort).clone()
            for name in self.readers:
                state[MODEL + name] *= along(state[SCALE], state[MODEL + name])
        return state

    def scales(self, cohort: Cohort) -> Tensor:
        """s_m, by what each client multiplies its features to bring them to `feature_length`: [M]."""
        lengths: Tensor = cohort.once("feature lengths", lambda c: of_each_once(c, "feature lengths", feature_lengths))
        return self.settings.feature_length / lengths

    def receive(self, state: State, down: Message) -> None:
        """Copy what is shared into the state.

        Of the weights W that read features it has s_m W, which on the client's features x gives what W gives on s_m x. So
        nothing else has to know s_m, but what is sent.
        """
        readers = {MODEL + name for name in self.readers}
        super().receive(state, {name: value for name, value in down.items() if name not in readers})
        for name in readers & down.keys():
            torch.mul(dense(down[name]), along(state[SCALE], state[name]), out=state[name])

    def private(self, weights: Weights) -> State:
        """Gradients; masks of ones, stored as offsets from one; filters that pass one distance each; a table of zeros for
        identities; votes for all views alike."""
        state = {MASK + name: torch.zeros_like(weights[name]) for name in self.maskable}
        if self.sends_gradients:
            state |= {GRADIENT + name: torch.zeros_like(w) for name, w in weights.items() if self.shares(name)}
        for prefix, network in self.networks.items():
            if isinstance(network, FilterNet):
                state |= network.private_start(weights[f"{prefix}hidden.bias"])
        return state | super().private(weights)

    def own(self, state: State) -> Weights:
        """The coefficients and the table of identities."""
        return {name: state[name] for name in (FILTER, IDENTITY) if name in state}

    def trained(self, state: State) -> Weights:
        """The masks, the coefficients and the table of identities, and the weights whose gradients are not sent."""
        model = super().trained(state)
        if self.sends_gradients:
            model = {name: w for name, w in model.items() if not self.shares(name.removeprefix(MODEL))}
        return model | {MASK + name: state[MASK + name] for name in self.maskable} | self.own(state)

    def rates(self, cohort: Cohort) -> dict[str, LearningRate]:
        """The coefficients' own, each client's for its mask, lr n / (n + reach), and lr s for the weights s W."""
        nodes, lr = cohort.train_count, self.learning_rate(cohort)
        own = lr * nodes / (nodes + self.settings.reach).clamp_min(1.0)
        scaled = {name: lr * self.scales(cohort) for name in self.readers if not self.sends_gradient_of(name)}
        return (
            {FILTER: self.settings.filter_lr}
            | {MASK + name: own for name in self.maskable}
            | {MODEL + name: rate for name, rate in scaled.items()}
        )

    @cached_property
    def maskable(self) -> Sequence[str]:
        """The matrices, if there are masks, but those that stay at home."""
        found = matrices(self.model.shapes()) if self.settings.masks else ()
        return [name for name in found if is_shared(*self.split_name(name))]

    def masks_learn(self, live: Collection[str]) -> bool:
        """Whether masks are trained: while many views compete, they are compared by what clients share."""
        return bool(self.maskable) and (len(self.shared_views(live)) <= LEFT or not self.settings.drop)

    def effective(self, state: State, views: Collection[str], share: Tensor | None = None) -> Weights:
        """The effective weights: W (1 + g O) where there is a mask, W of the views that are not among these.

        `share` is g [M]; None: one.
        """
        used, weights = tuple(views), self.weights(state)
        for name in self.maskable:
            if used and name.startswith(used):
                w, mask = weights[name], state[MASK + name]
                part = None if share is None else along(share, mask) * mask  # the result is written to the same memory
                weights[name] = torch.addcmul(w, w, mask if part is None else part, out=part)
        return weights | self.own(state)

    def train(self, state: State, cohort: Cohort, down: Message, steps: range) -> Update:
        """Forget the gradients of the round before where several are added up, and train."""
        if self.sends_gradients and not self.one_step(cohort):
            for name in self.sent_names(down):
                state[GRADIENT + name].zero_()
        return super().train(state, cohort, down, steps)

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """Of each view's loss at V = W (1 + O): dW = dV (1 + O) and dO = dV W; each client's mean loss over views."""
        out: Weights = {}
        live = self.live(down)
        learn = self.masks_learn(live)
        losses, effective = [], self.effective(state, live if learn else ())
        kept = cache(partial(self.kept_features, cohort, dropout))  # views with as many groups drop the same features
        waiting = self.waiting_gradients(state, cohort)
        for prefix, network in live.items():
            own = self.own(state) if isinstance(network, FilterNet) else {}
            weights = {name: effective[prefix + name] for name in network.shapes()}
            factors = self.feature_factors(network, kept)
            for inside, factor in factors.items():
                w, made = weights[inside], learn and prefix + inside in self.maskable  # by `effective`, for this step
                weights[inside] = torch.mul(w, factor, out=w if made else None)
            grads, loss = self.effective_gradients(weights | own, cohort, dropout, network)
            losses.append(loss)
            out |= {name: grads.pop(name) for name in own}
            for inside, factor in self.with_scales(prefix, factors, state).items():
                grads[inside] = torch.mul(grads[inside], factor, out=waiting.get(prefix + inside, grads[inside]))
            for inside, grad in grads.items():
                name = prefix + inside
                if learn and name in self.maskable:
                    out[MASK + name] = grad * state[MODEL + name]
                    grad.addcmul_(grad, state[MASK + name])
                out[MODEL + name] = grad
        return out, losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)

    def waiting_gradients(self, state: State, cohort: Cohort) -> Weights:
        """Where gradients wait to be sent as they are, so that they can be written there at once; empty where several are
        added up."""
        at_once = self.sends_gradients and self.one_step(cohort) and cohort is cohort.origin
        return {n.removeprefix(GRADIENT): t for n, t in state.items() if at_once and n.startswith(GRADIENT)}

    def feature_factors(self, network: Network, kept: Callable[[int], Tensor]) -> Weights:
        """The factors by which features are dropped in a training step, by the weights that read them: [M, F, H] or [M, F, 1].

        `kept` gives them for so many groups of units, as `kept_features` does.
        """
        if not self.settings.feature_dropout:
            return {}
        groups, shapes = network.groups if isinstance(network, FilterNet) else 1, network.shapes()
        return {name: unit_factors(kept(groups), shapes[name][-1]) for name in getattr(network, "feature_weights", ())}

    def with_scales(self, prefix: str, factors: Weights, state: State) -> Weights:
        """The factors of the gradients of a view's weights: those of the weights, times s_m where dW is sent."""
        out = dict(factors)
        for name in self.readers:
            if name.startswith(prefix) and self.sends_gradient_of(name):
                inside, scale = name.removeprefix(prefix), state[SCALE].view(-1, 1, 1)
                out[inside] = scale * factors[inside] if inside in factors else scale
        return out

    def kept_features(self, cohort: Cohort, dropout: Dropout, groups: int) -> Tensor:
        """The factor of each feature in a training step, zero or 1 / (1 - feature_dropout), for each group: [M, F, G]."""
        rows = Places(self.context.features, cohort.device, cohort.clients)
        mask = Dropout(self.settings.feature_dropout, dropout.keys, dropout.step).mask(rows, groups, FEATURE_LAYER)
        return mask.view(cohort.clients, self.context.features, groups)

    def move(self, state: State, cohort: Cohort, grads: Weights, down: Message) -> None:
        """Add the gradients that are sent to those of the round, and take a step of Adam along the others."""
        decay = cohort.own_values("weight_decay", self.settings.weight_decay)
        for name in self.readers:
            if MODEL + name in grads and not self.sends_gradient_of(
                name
            ):  # Adam adds the decay of s W, this that of W / s
                rate = self.settings.weight_decay if decay is None else decay.float()
                grads[MODEL + name].addcmul_(
                    along(rate * (state[SCALE] ** -2 - 1), grads[MODEL + name]), state[MODEL + name]
                )
        if not self.sends_gradients:
            return super().move(state, cohort, grads, down)
        if self.settings.clip:
            self.clip(grads, self.settings.clip)
        own, steps, once = self.own_epochs(cohort), self.batches_an_epoch(cohort), self.one_step(cohort)
        for name in self.sent_names(down):
            grad, total = grads.pop(MODEL + name), state[GRADIENT + name]
            if decay is not None:  # the server's step has that of all
                more = (decay - self.settings.weight_decay).float()
                more = more / state[SCALE] if name in self.readers else more  # of W, not of s W
                grad.addcmul_(along(more, grad), state[MODEL + name])
            if once:
                total.copy_(grad)
                continue
            count = self.settings.epochs if own is None else along(own.float(), grad)
            total.add_(grad / (count if steps is None else count * along(steps, grad)))
        if grads:
            super().move(state, cohort, grads, down)
        return None

    def one_step(self, cohort: Cohort) -> bool:
        """Whether every client takes one step a round."""
        return self.settings.epochs == 1 and self.own_epochs(cohort) is None and self.batches_an_epoch(cohort) is None

    def sent_names(self, down: Message) -> list[str]:
        """The shared weights of the views that are trained."""
        live = tuple(self.live(down))
        return [name for name in self.shapes() if self.shares(name) and name.startswith(live)]

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The gradients, or the weights without the mask, of the views that are trained; the evidence for them; votes."""
        prefix = GRADIENT if self.sends_gradients else MODEL
        message: Message = {prefix + name: state[prefix + name] for name in self.sent_names(down)}
        for name in self.readers if prefix == MODEL else ():
            if prefix + name in message:
                message[prefix + name] = state[prefix + name] / along(state[SCALE], state[prefix + name])
        if self.sends(FILTER):
            message[FILTER] = state[FILTER]
        message |= self.evidence(cohort)
        if self.sends(TRAIN_NODES.name):
            message[TRAIN_NODES.name] = cohort.train_count
        if self.sends(VOTES):
            message[VOTES] = state[VOTES]
        return message

    def public_start(self) -> Message:
        """The common start of what is sent: no gradient."""
        known = super().public_start()
        sent = {name.removeprefix(MODEL): dense(w) for name, w in known.items() if name.startswith(MODEL)}
        return known | {GRADIENT + name: torch.zeros_like(w) for name, w in sent.items() if self.shares(name)}

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """The shared weights with Adam's moments, where the server takes the steps; the average votes; what the averaging
        rule needs. Nothing is sent."""
        state = {n: w for n, w in self.previous_start().items() if not n.startswith(PREVIOUS + GRADIENT)}
        if self.sends_gradients:
            start = self.common_weights(1, torch.device("cpu"))
            shared = {MODEL + name: w for name, w in start.items() if self.shares(name)}
            state = {n: w for n, w in state.items() if n.removeprefix(PREVIOUS) not in shared} | shared
            state |= adam_start(shared)
        votes, message = super().server_start()
        return state | votes, message

    def server_memory(self, sizes: RoundSizes) -> int:
        """Adam's moments and a mean gradient, or evidence with its floor and its share of all clients'."""
        evidence = 12 * sizes.senders * max(self.context.features, self.context.outputs)
        return super().server_memory(sizes) + (4 * sizes.upload if self.sends_gradients else evidence)

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """A step of Adam along the mean gradient, or each patch averaged over those who have evidence for it."""
        if not self.shared:
            return {}
        nodes = dense(uploads[TRAIN_NODES.name])
        sent = {n: dense(v) for n, v in uploads.items() if n not in EVIDENCE and n != TRAIN_NODES.name}
        votes = sent.pop(VOTES).clamp(0.0, 1.0) if VOTES in sent else None
        gradients = {n: sent.pop(n) for n in list(sent) if n.startswith(GRADIENT)}
        seen = {n: dense(uploads[n]) for n in EVIDENCE if n in uploads}
        readers = {GRADIENT + name for name in getattr(self.model, "feature_weights", ())}
        message = self.server_step(server, self.mean_gradients(gradients, nodes, readers)) if gradients else {}
        message |= self.averaged(server, sent, seen, nodes) if sent else {}
        if votes is None:
            return message
        return message | self.average_votes(
            server, self.averaging.average(votes, nodes, server[AVERAGE_VOTES]), message
        )

    def server_step(self, server: State, gradients: State) -> Message:
        """A step of Adam of the shared weights; what is sent then."""
        grads = {name.replace(GRADIENT, MODEL, 1): grad.unsqueeze(0) for name, grad in gradients.items()}
        weights = {name: server[name] for name in grads}
        adam_step(weights, grads, server, self.settings.lr, self.settings.weight_decay)
        return {name: w[0].clone() for name, w in weights.items()}

    def summands(self, uploads: Message) -> State:
        """n_m times what is sent, and n_m; of weights e_mp W_m[p] for every patch p, and the evidence."""
        return weighted_summands(uploads, TRAIN_NODES.name) if self.sends_gradients else self.evidence_summands(uploads)

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """A step along the mean gradient; or sum_m e_mp W_m[p] / sum_m e_mp, where the denominator is that of the summed
        evidence, in which e is linear."""
        mean = mean_of_sums(sums, TRAIN_NODES.name) if self.sends_gradients else self.averaged_sums(sums)
        votes = mean.pop(VOTES).clamp(0.0, 1.0) if VOTES in mean else None
        gradients = {name: mean.pop(name) for name in list(mean) if name.startswith(GRADIENT)}
        message: Message = self.server_step(server, gradients) if gradients else {}
        message |= mean
        return message if votes is None else message | self.average_votes(server, votes, message)

    def evidence_of(self, name: str) -> tuple[str, int] | None:
        """What the weight `name` is averaged by: its first axis is features, or its last classes, or neither."""
        if not self.settings.evidence or not name.startswith(MODEL):
            return None
        inside = name.removeprefix(MODEL)
        if self.split_name(inside)[1].startswith("classifier."):
            return (CLASSES_SEEN, -1) if self.task.has_classes else None  # else by training nodes
        return (FEATURES_SEEN, 0) if inside in getattr(self.model, "feature_weights", ()) else None

    # -- clients that come after training, and reports ---------------------------------------------------------------

    def newcomer_update(self, state: State, cohort: Cohort, down: Message) -> Update:
        """Train all that was given with Adam, as nobody else does it."""
        trainer = self._newcomer_trainer()
        moments = adam_start(trainer.trained(state))
        state |= {name: tensor for name, tensor in moments.items() if name not in state}
        return trainer.local_update(state, cohort, down, self._newcomer_round())

    def _newcomer_trainer(self) -> AdamMethod:
        """The same method with a newcomer's epochs, which takes the steps at the client."""
        settings = replace(self.settings, epochs=self.newcomer_epochs(), average="weights")
        return type(self)(settings, self.context, self.averaging)

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """Each client's coefficients by distance, the mean over its groups: [M, K + 1]; its mixture of views: [M, V]."""
        found = {"coefficients": clients[FILTER].mean(1)} if FILTER in clients else {}
        return found | super().findings(server, clients)


def feature_lengths(clients: Sequence[Client]) -> np.ndarray:
    """The root mean square length of each client's features: [M]."""
    return np.array([root_mean_square_length(client.graph.x) for client in clients])
