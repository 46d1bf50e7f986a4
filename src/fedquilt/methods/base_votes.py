"""The base class of methods whose clients have several networks side by side, their views, and vote on them.

A client compares its views on its validation nodes and votes on each: o_mv is 1 for its best one, and 1 less for each
VOTE_POINTS points of the metric below it, and not below 0. The server moves the average votes e_v a part of the way, STEADY,
toward everyone's of the round. Client m predicts with the mixture of views (`fedquilt.nn.views`)

    a_mv proportional to exp(s (e_v + t_m (o_mv - e_v))),   t_m = c_m / (c_m + own_votes),   s = sharpness VOTE_POINTS,

where c_m is the number of its validation nodes (edges, where the task is to predict edges). Where weights may have masks, two
more votes, for them and against them, give g_m, how much of its masks a client predicts with, in the same way. Before the
rounds DROPS views that are clearly worse than the best are dropped, before the last of them all but the best LEFT: clients do
not train or send them any more.

With one view there are no votes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import compress

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.devices.device import on_host
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RunContext, State, Update
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.quilt_settings import QuiltSettings, names_of
from fedquilt.methods.quilt_views import shares_all
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Network
from fedquilt.nn.views import (
    MIXTURE,
    Views,
    mixture_weights,
    prefix_of,
    sound,
    votes_of,
    weighted_views,
)
from fedquilt.tasks.metric import Metric

VOTES = "votes"  # an upload, and in a client's state: its own
AVERAGE_VOTES = "views"  # a download, and in the states: everyone's, and DROPPED of a view that is not trained any more
DROPPED = -1.0
MASK_SHARE = "mask share"  # in a client's state: g [M], how much of its masks it predicts with
DROPS = (30, 60)  # before these rounds views are dropped
CLEARLY = 3.0  # points of the metric that a view may be below the best one before it is dropped
ROUNDING = 1e-6  # of votes in single precision: a view exactly so far below stays
LEFT = 2  # how many views are left after the last of these rounds, and how many may have masks
VOTE_POINTS = 10.0  # points of the metric that a view may be below a client's best before its vote is zero
STEADY = 0.5  # how far everyone's votes move the average votes in a round
VOTES_UPLOAD = TensorSpec(
    VOTES,
    "For each view, how many points it is below the client's best one on its validation nodes: 1 at none, 0 at ten; "
    "the same of its model with masks and without.",
    count=True,
)
VOTES_DOWNLOAD = TensorSpec(
    AVERAGE_VOTES, "The average of the participants' votes on each view, and on masks.", shared=True
)


class VotingMethod(BackboneMethod):
    """State, where there are several views: the client's votes and everyone's, its mixture, and how much of its masks it uses.

    Attributes:
        names: the views, in the order of votes and mixture.
        several: whether there is more than one, so that there are votes.
    """

    settings: QuiltSettings
    uses_validation = "Clients compare their views on validation nodes, for the weights of the views in the mixture."

    def __init__(self, settings: QuiltSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        self.names = names_of(settings)
        super().__init__(settings, context, averaging)
        self.several = isinstance(self.model, Views)

    # -- what a method says of its weights and masks -----------------------------------------------------------------

    @property
    @abstractmethod
    def shares_weights(self) -> bool:
        """Whether clients send weights, or their gradients, so that the server can say by them which views are trained."""

    @property
    @abstractmethod
    def maskable(self) -> Sequence[str]:
        """The weights that may have masks, by their names in the model; empty: there are no votes on masks."""

    @abstractmethod
    def masks_learn(self, live: Collection[str]) -> bool:
        """Whether masks are trained, and voted on, while these views are."""

    @abstractmethod
    def effective(self, state: State, views: Collection[str], share: Tensor | None = None) -> Weights:
        """The weights of all views as they act, by their names in the model: of these views with masks, of others without.

        `share` is how much of its masks each client uses, g [M]; None: all of them.
        """

    # -- views -------------------------------------------------------------------------------------------------------

    @property
    def networks(self) -> dict[str, Network]:
        """The network of each view, by the beginning of its weights' names: empty for the only one."""
        if isinstance(self.model, Views):
            return {prefix_of(view): network for view, network in self.model.networks.items()}
        return {"": self.model}

    @property
    def options(self) -> int:
        """How many things clients vote on: the views, and for and against masks."""
        return len(self.names) + (2 if self.maskable else 0)

    def common_weights(self, clients: int, device: torch.device) -> Weights:
        """The common start; each view has the one that it would have alone."""
        if isinstance(self.model, Views):
            return self.model.start(self.context.seed, clients, device)
        return super().common_weights(clients, device)

    def split_name(self, name: str) -> tuple[str, str]:
        """The view that reads a weight, and the weight's name in its network."""
        if not self.several:
            return self.names[0], name
        _, view, inside = name.split(".", 2)
        return view, inside

    def round_kind(self, round: int) -> Hashable:
        """Each round before which views are dropped is of its own kind."""
        return ("drops", round) if self.drops(round) else None

    def drops(self, round: int) -> bool:
        """Whether views are dropped before this round; where no weights are shared, nobody is told which."""
        return self.several and self.settings.drop and self.shares_weights and round in DROPS

    # -- at the client -----------------------------------------------------------------------------------------------

    def private(self, weights: Weights) -> State:
        """Votes for all views alike, where there are several."""
        state = super().private(weights)
        if self.several:
            some = next(iter(weights.values()))
            alike, views = some.new_ones(len(some), self.options), len(self.names)
            state |= {VOTES: alike, AVERAGE_VOTES: alike.clone(), MIXTURE: alike[:, :views] / views}
            if self.maskable:
                state[MASK_SHARE] = alike[:, 0] / 2
        return state

    def personal(self, state: State) -> State:
        """The effective weights; of several views, with their mixture."""
        if not self.several:
            return self.effective(state, self.networks)
        mixture = state[MIXTURE]
        # Nothing reads the weights of a view without weight, which the host can tell where it has the values.
        views = list(compress(self.networks, weighted_views(mixture)))
        # Nor do masks act before they learn; multiplying by them takes a third of a round on a CPU.
        masked_views = views if self.masks_learn(views) or not on_host(mixture) else ()
        return self.effective(state, masked_views, state.get(MASK_SHARE)) | {MIXTURE: mixture}

    def receive(self, state: State, down: Message) -> None:
        """Copy what is shared into the state."""
        for name, value in down.items():
            state[name].copy_(dense(value))

    def live(self, down: Message) -> dict[str, Network]:
        """The views that are trained, of `networks`: those that the server sent; all before it sent any."""
        sent = {name for name in down if name.startswith(MODEL)}
        found = {p: n for p, n in self.networks.items() if any(name.startswith(MODEL + p) for name in sent)}
        return found or self.networks

    def shared_views(self, live: Collection[str]) -> list[str]:
        """Those of the views that are trained all of whose weights are shared; where there are none, all."""
        return [prefix_of(view) for view in self.names if shares_all(view) and prefix_of(view) in live] or list(live)

    def without_worse(self, down: Message, last: bool) -> Message:
        """A download without the views that are clearly worse than the best one, by the average votes in it, which the host
        reads; the last time also without all but the best LEFT. Of views with equal votes, none or all are dropped.

        The best ones are found among the views that are shared. A view whose weights stay at home leads at first, as every
        client trains it from its first step on; it is kept where it is as good as they are, and takes nobody's place.
        """
        votes = dense(down[AVERAGE_VOTES]).clone()
        views, live = votes[: len(self.names)], self.live(down)
        shared = self.shared_views(live)
        found = sorted((views[place].item() for place, p in enumerate(self.networks) if p in shared), reverse=True)
        least = found[0] - CLEARLY / VOTE_POINTS - ROUNDING
        views[views < (max(least, found[:LEFT][-1]) if last else least)] = DROPPED
        dropped = tuple(MODEL + prefix for prefix, vote in zip(self.networks, views.tolist(), strict=True) if vote < 0)
        return {name: v for name, v in down.items() if not name.startswith(dropped)} | {AVERAGE_VOTES: votes}

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Drop views where the round asks for it, and train."""
        if self.drops(round) and AVERAGE_VOTES in down:  # else no upload has arrived yet
            down = self.without_worse(down, round == DROPS[-1])
        return super().local_update(state, cohort, down, round)

    def after_training(self, state: State, cohort: Cohort, down: Message, loss: Tensor) -> Update:
        """Compare the views and vote, where there are several; then as usual.

        Without masks the clients predict with the views that they have compared, whose logits are known.
        """
        if not self.several:
            return super().after_training(state, cohort, down, loss)
        seen, live = self.task.seen(cohort, "val"), self.live(down)
        shared = self.view_logits(self.effective(state, ()), seen, live)
        self.vote(state, cohort, down, shared)
        update = super().after_training(state, cohort, down, loss)
        if self.masks_learn(live) or self.in_parts(seen):
            return update
        return replace(update, logits=self.mixed_views(seen, shared, state[MIXTURE]))

    def vote(self, state: State, cohort: Cohort, down: Message, shared: Mapping[int, Tensor]) -> None:
        """The client's votes on views and masks, and its mixture by all votes that are known, into the state.

        `shared` are the logits of the views as they are shared, by their places.
        """
        average, views = state[AVERAGE_VOTES], len(self.names)
        masks_learn = self.masks_learn(self.live(down))
        points = self.compare(state, cohort, down, shared)
        own = [votes_of(points[:, :views], average[:, :views] >= 0, VOTE_POINTS)]
        if self.maskable:
            own.append(votes_of(points[:, views:], average[:, views:] >= 0, VOTE_POINTS))
        state[VOTES].copy_(torch.cat(own, dim=1))
        checked = self.task.counts(self.task.seen(cohort, "val"), "val")
        scale = self.settings.sharpness * VOTE_POINTS
        trust = checked / (checked + self.settings.own_votes).clamp_min(1.0)
        state[MIXTURE].copy_(mixture_weights(state[VOTES][:, :views], average[:, :views], trust, scale))
        if masks_learn:
            state[MASK_SHARE].copy_(mixture_weights(state[VOTES][:, views:], average[:, views:], trust, scale)[:, 0])

    @property
    def vote_metric(self) -> Metric:
        """The run's metric, or the task's first where that is in a unit in which ten points mean nothing."""
        own = self.task.metric(self.context.metric)
        return own if own.in_points else next(iter(self.task.metrics.values()))

    @torch.no_grad()
    def compare(self, state: State, cohort: Cohort, down: Message, shared: Mapping[int, Tensor]) -> Tensor:
        """The validation metric with each view as it is shared, then of their mixture with masks and without, in points,
        higher is better: [M, V + 2], or [M, V] without masks; zeros of views that are not trained, and of both while masks do
        not learn."""
        assert isinstance(self.model, Views)
        metric, seen = self.vote_metric, self.task.seen(cohort, "val")
        scale = metric.scale if metric.higher_is_better else -metric.scale
        none, live = torch.zeros(cohort.clients, device=cohort.device), self.live(down)

        def points(outputs: Tensor) -> Tensor:
            return scale * metric.function(cohort, outputs, "val")

        found = [points(shared[place]) if place in shared else none for place in range(len(self.names))]
        if self.masks_learn(live):
            own = self.view_logits(self.effective(state, live), seen, live)
            rows = self.task.rows_of(seen, "val")
            found += [points(self.model.mixed_at(seen, outputs, state[MIXTURE], rows)) for outputs in (own, shared)]
        elif self.maskable:
            found += [none, none]
        return torch.stack(found, dim=1)

    def view_logits(self, weights: Weights, cohort: Cohort, live: Collection[str]) -> dict[int, Tensor]:
        """The logits of each of these views at every node, by its place: [R, C] each."""
        assert isinstance(self.model, Views)
        return {
            place: self.at_every_node(self.model.weights_of(view, weights), cohort, False, network).logits
            for place, (view, network) in enumerate(self.model.networks.items())
            if prefix_of(view) in live
        }

    def mixed_views(self, cohort: Cohort, logits: Mapping[int, Tensor], mixture: Tensor) -> Tensor:
        """What `Views` gives of these logits, in which the views that it computes are among others: [R, C]."""
        assert isinstance(self.model, Views)
        mixture = sound(mixture)
        counts = weighted_views(mixture)
        return self.model.mixed(cohort, {place: view for place, view in logits.items() if counts[place]}, mixture)

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The personal models' logits; of several views without putting their embeddings beside each other."""
        if not self.several or self.in_parts(cohort):
            return super().logits(personal, cohort)
        live = list(compress(self.networks, weighted_views(sound(personal[MIXTURE]))))
        return self.mixed_views(cohort, self.view_logits(personal, cohort, live), personal[MIXTURE])

    # -- at the server, and reports ----------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """The average votes, all alike, where there are several views. Nothing is sent."""
        state, message = super().server_start()
        if self.several:
            state[AVERAGE_VOTES] = torch.ones(self.options)
        return state, message

    def average_votes(self, server: State, votes: Tensor, message: Message) -> Message:
        """The average votes, moved toward everyone's of this round; a view of which nothing is sent any more is dropped."""
        average, sent = server[AVERAGE_VOTES], self.live(message)
        average.add_(votes - average, alpha=STEADY)
        for place, prefix in enumerate(self.networks):
            if prefix not in sent:
                average[place].fill_(DROPPED)  # an assignment would copy from the host, which no CUDA graph may
        return {AVERAGE_VOTES: average.clone()}

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """The weight of each view in the mixture, and of masks, by everyone's average votes."""
        if AVERAGE_VOTES not in server:
            return {}
        out: dict[str, Tensor] = {}
        scale, views = self.settings.sharpness * VOTE_POINTS, len(self.names)
        for names, votes in ((self.names, server[AVERAGE_VOTES][:views]), (["masks"], server[AVERAGE_VOTES][views:])):
            weights = mixture_weights(votes[None], votes[None], votes.new_zeros(1), scale)[0]
            out |= {f"view_{name}": weight for name, weight in zip(names, weights, strict=False)}
        return out

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """Each client's mixture of views: [M, V]."""
        return super().findings(server, clients) | ({"views": clients[MIXTURE]} if MIXTURE in clients else {})
