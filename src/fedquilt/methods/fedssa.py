"""FedSSA: Yu et al., Heterogeneity-Aware Knowledge Sharing for Graph Federated Learning, 2026.

Weights never leave a client. What crosses is what its classes look like and what its structure is like:

- *Semantic.* A label-conditioned variational graph autoencoder gives a Gaussian for each class at each client. For each
  class the server clusters the clients, matches the moments of each cluster (eq. 4 to 6), and every client draws its classes
  toward those of their cluster (eq. 7).
- *Structural.* The model is a spectral GNN, sum_k w_k H_k, then an MLP. The server clusters the clients by the subspaces
  of their spectral energies (eq. 9 to 13), and every client draws its coefficients toward the cluster's mean (eq. 14, 15).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.clustering import k_means
from fedquilt.cohort import Cohort
from fedquilt.methods.adam import MODEL, AdamMethod
from fedquilt.methods.contract import State, Task, register
from fedquilt.methods.settings import AdamSettings, Count, NonNegative, Positive, Rate
from fedquilt.nn.decoder import Pairs, reconstruction
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.gaussians import kl_diagonal, kl_full, kl_mixture, matched
from fedquilt.nn.layers import Weights, linear
from fedquilt.nn.models import Shapes
from fedquilt.nn.objective import training_loss
from fedquilt.nn.spectral import Bases
from fedquilt.privacy.crossing import Crossing, Message, dense
from fedquilt.randomness import derive, torch_stream

LABEL_FILTER = "label_filter"
FILTER, CLUSTER_FILTER, CLUSTER_SIZE = "filter", "cluster.filter", "cluster.size"
ENERGY, SEED = "energy", "projection_seed"
CLASS_MEAN, CLASS_COVARIANCE, CLASS_COUNT, CLASS_WEIGHT = (
    "class.mean",
    "class.covariance",
    "class.count",
    "class.weight",
)
NOISE_LAYER, PAIR_LAYER = 60, 61
RANK_TOLERANCE = 1e-2


@dataclass(frozen=True)
class FedSSASettings(AdamSettings):
    """Adam's settings and FedSSA's own.

    Attributes:
        hidden: width of the MLP's hidden layer.
        basis: the polynomial basis.
        order: K, the highest order of the basis.
        mix: share of the homophily basis A^k X in UniFilter's.
        filter_lr: Adam's learning rate for the coefficients.
        input_dropout: share of filtered features dropped while training.
        latent: width of the latent variables.
        elbo: weight of the autoencoder's negative evidence lower bound.
        semantic_weight: weight of the semantic alignment (eq. 7).
        structural_weight: weight of the structural alignment (eq. 15).
        l1, l2: lambda1 and lambda2 of the elastic net on the coefficients (eq. 16).
        node_clusters: clusters of clients a class.
        structure_clusters: clusters of clients by structure.
        components: Gaussians a cluster's class is described with (Table 9).
        energy: width of the spectral energies.
        encoder: train, all or smooth.
        labels: x
        visible: x
        semantic: share what classes look like (Table 8).
        structural: share what the structure is like (Table 8).
    """

    weight_decay: NonNegative = 5e-4
    hidden: Count = 128
    basis: Literal["unifilter", "monomial", "chebyshev", "bernstein"] = "unifilter"
    order: Count = 10
    mix: float = 0.5
    filter_lr: Positive = 0.05
    input_dropout: Rate = 0.0
    latent: Count = 16
    elbo: NonNegative = 1.0
    semantic_weight: NonNegative = 0.1
    structural_weight: NonNegative = 1.0
    l1: NonNegative = 0.01
    l2: NonNegative = 0.01
    node_clusters: Count = 3
    structure_clusters: Count = 3
    components: Count = 1
    energy: Count = 32
    encoder: Literal["train", "all", "smooth"] = "all"
    labels: bool = True
    visible: float = 0.5
    semantic: bool = True
    structural: bool = True


@register("fedssa")
class FedSSA(AdamMethod):
    """State beside the model: the filter's coefficients and the class-wise Gaussians inferred last."""

    title = "FedSSA"
    paper = "Yu et al., 2026"
    Settings = FedSSASettings
    settings: FedSSASettings
    uploads = (
        Crossing(FILTER, "The coefficients of the client's graph filter: whether its graph is homophilous, roughly."),
        Crossing(ENERGY, "The mean of the client's filtered features in each spectral band, projected to a few dimensions."),
        Crossing(CLASS_MEAN, "The mean of each class in a latent space whose encoder stays at the client."),
        Crossing(CLASS_COVARIANCE, "How each class spreads in that latent space."),
        Crossing(CLASS_COUNT, "How many training nodes of each class the client has."),
    )
    downloads = (
        Crossing(SEED, "The seed of the projection of spectral energies; it tells nothing about anyone.", shared=True),
        Crossing(CLUSTER_FILTER, "The mean coefficients of the clients whose structure resembles this one's."),
        Crossing(CLUSTER_SIZE, "How many clients these are."),
        Crossing(CLASS_MEAN, "For each class, its mean over the clients where it looks like here."),
        Crossing(CLASS_COVARIANCE, "For each class, its spread over these clients."),
        Crossing(CLASS_WEIGHT, "The weights of the Gaussians by which these clients are described; zero: no such class."),
    )

    @property
    def orders(self) -> int:
        """K + 1, the number of coefficients."""
        return self.settings.order + 1

    @property
    def energy_width(self) -> int:
        """Width of the energies: that of the features where it is less."""
        return min(self.settings.energy, self.task.features)

    def shapes(self) -> Shapes:
        """The MLP, and the encoder's layers that are not the MLP's."""
        s, task = self.settings, self.task
        return {
            "hidden.weight": (task.features, s.hidden),
            "hidden.bias": (s.hidden,),
            "classifier.weight": (s.hidden, task.classes),
            "classifier.bias": (task.classes,),
            "hidden.label": (task.classes, s.hidden),
            "encoder.mean.weight": (s.hidden, s.latent),
            "encoder.mean.bias": (s.latent,),
            "encoder.logvar.weight": (s.hidden, s.latent),
            "encoder.logvar.bias": (s.latent,),
        }

    # -- at the client -------------------------------------------------------------------------------------------

    def private(self, weights: Weights) -> State:
        """Equal coefficients (as UniFilter starts), and no Gaussians yet."""
        some = weights["hidden.bias"]
        clients, classes, width = len(some), self.task.classes, self.settings.latent
        return {
            FILTER: some.new_full((clients, self.orders), 1.0 / self.orders),
            LABEL_FILTER: some.new_full((clients, self.orders), 1.0 / self.orders),
            CLASS_MEAN: some.new_zeros(clients, classes, width),
            CLASS_COVARIANCE: some.new_zeros(clients, classes, width, width),
            CLASS_COUNT: some.new_zeros(clients, classes),
        }

    def trained(self, state: State) -> Weights:
        """The model and the coefficients."""
        return super().trained(state) | {FILTER: state[FILTER], LABEL_FILTER: state[LABEL_FILTER]}

    def rates(self) -> dict[str, float]:
        """Coefficients have a learning rate of their own: there are few of them, and they have a long way to go."""
        return {FILTER: self.settings.filter_lr, LABEL_FILTER: self.settings.filter_lr}

    def personal(self, state: State) -> State:
        """The coefficients and the MLP, without the encoder's own layers."""
        mlp = {name: w for name, w in self.weights(state).items() if not name.startswith("encoder.")}
        return mlp | {FILTER: state[FILTER], LABEL_FILTER: state[LABEL_FILTER]}

    def bases(self, cohort: Cohort) -> Bases:
        """The cohort's signals, computed once."""
        s = self.settings
        made: Bases = cohort.once(("bases", s.basis, s.order, s.mix), lambda c: Bases(c, s.basis, s.order, s.mix))
        return made

    @torch.no_grad()
    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The personal models' logits."""
        p = self.bases(cohort).everywhere.combine(personal[FILTER])
        h = linear(cohort, p, personal["hidden.weight"], personal["hidden.bias"])
        if self.settings.labels:
            spread = cohort.once(("spread", self.settings.order), lambda c: spread_labels(c, self.settings.order, torch.ones_like(c.train_weight)))
            h = h + cohort.multiply(torch.einsum("ro,roc->rc", personal[LABEL_FILTER][cohort.client], spread), personal["hidden.label"])
        h = torch.relu(h)
        return linear(cohort, h, personal["classifier.weight"], personal["classifier.bias"])

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """Eq. 41 without the terms on the coefficients, which are steps of their own."""
        s, rows = self.settings, cohort.training
        leaves = {name: w.detach().requires_grad_() for name, w in self.trained(state).items()}
        w = {name.removeprefix(MODEL): leaf for name, leaf in leaves.items()}
        p = self.bases(cohort).training.combine(w[FILTER])
        if s.input_dropout:
            p = p * Dropout(s.input_dropout, dropout.keys, dropout.step).mask(rows, p.shape[1], 1)
        h = linear(rows, p, w["hidden.weight"], w["hidden.bias"])
        if s.labels:
            word = dropout.draws.words(rows, 1, 59)[rows.real, 0]
            shown = (word.float() * 2.0**-32 + 0.5 < s.visible).float()
            spread = spread_labels(cohort, s.order, shown / s.visible).index_select(0, rows.index)
            h = h + rows.multiply(torch.einsum("ro,roc->rc", w[LABEL_FILTER][rows.client], spread), w["hidden.label"])
            logits = linear(rows, dropout(rows, h, 0), w["classifier.weight"], w["classifier.bias"])
            each = F.cross_entropy(logits[rows.real], cohort.y[cohort.train], reduction="none")
            owner = cohort.client[cohort.train]
            hidden = 1.0 - shown
            count = torch.zeros(cohort.clients, device=h.device).index_add_(0, owner, hidden)
            hidden = torch.where(count[owner] > 0, hidden, 1.0)
            count = torch.zeros(cohort.clients, device=h.device).index_add_(0, owner, hidden)
            total = (each * hidden / count[owner]).sum()
            each = cohort.mean_over(each.detach(), cohort.train)
        else:
            logits = linear(rows, dropout(rows, h, 0), w["classifier.weight"], w["classifier.bias"])
            total, each = training_loss(cohort, logits)
        if s.semantic or s.elbo:
            total = total + self.autoencode(w, h, cohort, dropout, state, down)
        grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        return {n: torch.zeros_like(leaves[n]) if g is None else g for n, g in zip(leaves, grads, strict=True)}, each

    def autoencode(
        self, w: Weights, h: Tensor, cohort: Cohort, dropout: Dropout, state: State, down: Message
    ) -> Tensor:
        s = self.settings
        label = w["hidden.label"][cohort.client[cohort.train], cohort.y[cohort.train]]
        if s.encoder == "train":
            rows, train = cohort.training, cohort.training.real
            pre = h
        else:
            rows, train = cohort, cohort.train
            if s.encoder == "smooth":
                pre = linear(cohort, cohort.smoothed, w["hidden.weight"], w["hidden.bias"])
            else:
                pre = linear(cohort, self.bases(cohort).everywhere.combine(w[FILTER]), w["hidden.weight"], w["hidden.bias"])
        a = torch.relu(pre.index_add(0, train, label))
        mean = linear(rows, a, w["encoder.mean.weight"], w["encoder.mean.bias"])
        logvar = linear(rows, a, w["encoder.logvar.weight"], w["encoder.logvar.bias"])
        total = mean.new_zeros(())
        if s.elbo:
            z = mean + (0.5 * logvar).exp() * dropout.draws.normal(rows, mean.shape[1], NOISE_LAYER)
            apart = kl_diagonal(mean, logvar, torch.zeros_like(mean), 1.0).mean(1)
            if s.encoder == "train":
                total = total + s.elbo * (apart[train] * cohort.train_weight).sum()
            else:
                pairs: Pairs = cohort.once("pairs", Pairs)
                total = total + s.elbo * (reconstruction(pairs, z, dropout.draws, PAIR_LAYER) + cohort.node_mean(apart.unsqueeze(1)).sum())
        if s.semantic:
            m, cov, count = class_gaussians(cohort, mean[train], logvar[train])
            with torch.no_grad():
                for name, value in ((CLASS_MEAN, m), (CLASS_COVARIANCE, cov), (CLASS_COUNT, count)):
                    state[name].copy_(value)
            if CLASS_MEAN in down and s.semantic_weight:
                total = total + s.semantic_weight * self.semantic_loss(m, cov, count, down)
        return total

    def semantic_loss(self, mean: Tensor, covariance: Tensor, count: Tensor, down: Message) -> Tensor:
        """Eq. 7 summed over clients and classes."""
        weight = dense(down[CLASS_WEIGHT])  # [M, C, J]
        both = (count > 0) & (weight.sum(-1) > 0)
        m, cov = mean[both], covariance[both]
        other, spread, share = dense(down[CLASS_MEAN])[both], dense(down[CLASS_COVARIANCE])[both], weight[both]
        apart = kl_full(m.unsqueeze(1), cov.unsqueeze(1), other, spread)
        return kl_mixture(apart, share).sum()

    def after_step(self, state: State, down: Message) -> None:
        """The proximal steps of eq. 15 and 16 on the coefficients."""
        s, w = self.settings, state[FILTER]
        if s.structural and CLUSTER_FILTER in down:
            target = dense(down[CLUSTER_FILTER])
            known = (dense(down[CLUSTER_SIZE]) > 0).unsqueeze(1)
            gap = w - target
            pulled = target + F.softshrink(gap, s.filter_lr * s.structural_weight)
            w.copy_(torch.where(known, pulled, w))
        if s.l1 or s.l2:
            w.copy_(F.softshrink(w, s.filter_lr * s.l1) / (1.0 + s.filter_lr * s.l2))

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """Coefficients and energies, and class-wise Gaussians."""
        message: Message = {}
        if self.settings.structural:
            message |= {FILTER: state[FILTER], ENERGY: self.energies(state[FILTER], cohort, down)}
        if self.settings.semantic:
            message |= {name: state[name] for name in (CLASS_MEAN, CLASS_COVARIANCE, CLASS_COUNT)}
        return message

    def energies(self, coefficients: Tensor, cohort: Cohort, down: Message) -> Tensor:
        """Eq. 9, 10: w_k times the node mean of H_k, projected: [M, O, d]."""
        means = self.bases(cohort).means
        if self.energy_width < self.task.features:
            generator = torch.Generator().manual_seed(int(dense(down[SEED]).item()))
            projection = torch.randn(self.task.features, self.energy_width, generator=generator)
            means = means @ (projection / math.sqrt(self.energy_width)).to(means.device)
        return coefficients.unsqueeze(2) * means

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """Nobody known yet; the seed of the projection."""
        s, task = self.settings, self.task
        m, c, d = task.clients, task.classes, s.latent
        seed = torch.tensor([derive(task.seed, "server", "projection")], dtype=torch.int64)
        server = {
            SEED: seed,
            "known": torch.zeros(m, dtype=torch.bool),
            "round": torch.zeros(1, dtype=torch.int64),
            FILTER: torch.zeros(m, self.orders),
            ENERGY: torch.zeros(m, self.orders, self.energy_width),
            "cluster": torch.full((m,), -1),
            CLUSTER_FILTER: torch.zeros(m, self.orders),
            CLASS_MEAN: torch.zeros(m, c, d),
            CLASS_COVARIANCE: torch.zeros(m, c, d, d),
            CLASS_COUNT: torch.zeros(m, c),
        }
        return server, {SEED: seed}

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """Cluster all clients known so far, by class and by structure, and tell each receiver about its clusters."""
        message: Message = {SEED: server[SEED]}
        if not uploads:  # both kinds of sharing are off
            return message
        device = dense(next(iter(uploads.values()))).device
        for name, value in uploads.items():
            server[name][senders] = dense(value).cpu()
        server["known"][senders] = True
        server["round"] += 1
        if self.settings.structural:
            message |= self.structural_clusters(server, receivers)
        if self.settings.semantic:
            message |= self.semantic_clusters(server, receivers)
        return {name: dense(value).to(device) if name != SEED else value for name, value in message.items()}

    def structural_clusters(self, server: State, receivers: Tensor) -> Message:
        """Eq. 11 to 14."""
        known = torch.nonzero(server["known"]).ravel()
        q = projectors(server[ENERGY][known].transpose(1, 2))
        stream = torch_stream(self.task.seed, "server", "structure", int(server["round"]))
        everyone = torch.ones(1, len(known), dtype=torch.bool)
        label = k_means(q.flatten(1).unsqueeze(0), everyone, self.settings.structure_clusters, stream)[0]
        member = F.one_hot(label, int(label.max()) + 1).float()
        size = member.sum(0)
        mean = (member.T @ server[FILTER][known]) / size.clamp_min(1).unsqueeze(1)
        server["cluster"][known] = label
        server[CLUSTER_FILTER][known] = mean[label]
        sizes = torch.zeros(self.task.clients)
        sizes[known] = size[label]
        return {CLUSTER_FILTER: server[CLUSTER_FILTER][receivers], CLUSTER_SIZE: sizes[receivers]}

    def semantic_clusters(self, server: State, receivers: Tensor) -> Message:
        """Eq. 4 to 6, all classes at once."""
        s = self.settings
        mean, covariance, count = (server[n].transpose(0, 1) for n in (CLASS_MEAN, CLASS_COVARIANCE, CLASS_COUNT))
        present = count > 0  # [C, M]
        stream = torch_stream(self.task.seed, "server", "semantic", int(server["round"]))
        noise = torch.randn(mean.shape, generator=stream)
        root = torch.linalg.cholesky(torch.where(present[..., None, None], covariance, torch.eye(s.latent)))
        points = mean + (root @ noise.unsqueeze(-1)).squeeze(-1)
        label = k_means(points, present, s.node_clusters, stream)  # [C, M]
        clusters = min(s.node_clusters, self.task.clients)
        member = F.one_hot(label.clamp_min(0), clusters).float() * present.unsqueeze(-1)  # [C, M, k]
        parts = min(s.components, self.task.clients)
        if parts > 1:
            inside = member.permute(0, 2, 1).reshape(-1, self.task.clients) > 0  # [C k, M]
            sub = k_means(points.repeat_interleave(clusters, 0), inside, parts, stream)
            sub_member = F.one_hot(sub.clamp_min(0), parts).float() * inside.unsqueeze(-1)  # [C k, M, J]
            groups = sub_member.view(len(mean), clusters, self.task.clients, parts).permute(0, 1, 3, 2)  # [C, k, J, M]
        else:
            groups = member.permute(0, 2, 1).unsqueeze(2)
        weight = (groups * count[:, None, None, :]).flatten(1, 2)  # [C, k J, M]
        centre, spread = matched(mean, covariance, weight)
        total = weight.sum(-1).view(len(mean), clusters, parts)
        share = total / total.sum(-1, keepdim=True).clamp_min(1e-30)
        d = s.latent
        centre, spread = centre.view(len(mean), clusters, parts, d), spread.view(len(mean), clusters, parts, d, d)
        empty = total <= 0
        spread = torch.where(empty[..., None, None], torch.eye(d), spread)
        index = label[:, receivers].clamp_min(0)  # [C, r]
        classes = torch.arange(len(mean)).unsqueeze(1)
        own = present[:, receivers].float()
        return {
            CLASS_MEAN: centre[classes, index].transpose(0, 1),
            CLASS_COVARIANCE: spread[classes, index].transpose(0, 1),
            CLASS_WEIGHT: (share[classes, index] * own.unsqueeze(-1)).transpose(0, 1),
        }

    def similarity(self, server: State) -> Tensor | None:
        """How far the subspaces of two clients' energies coincide."""
        if not self.settings.structural:
            return None
        q = projectors(server[ENERGY].transpose(1, 2)).flatten(1)
        overlap = q @ q.T
        size = overlap.diagonal()
        return overlap / torch.maximum(size.unsqueeze(0), size.unsqueeze(1)).clamp_min(1e-12)

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """Filters beside their cluster's, and what classes look like at each client."""
        found = {"coefficients": clients[FILTER]}
        if self.settings.structural:
            found |= {"cluster_coefficients": server[CLUSTER_FILTER], "structural_cluster": server["cluster"]}
        return found | {"class_means": clients[CLASS_MEAN], "class_counts": clients[CLASS_COUNT]}


def class_gaussians(cohort: Cohort, mean: Tensor, logvar: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each client's classes as Gaussians over its training nodes: [T, d] -> [M, C, d], [M, C, d, d], [M, C].

    The moments of the mixture of the nodes' Gaussians: the mean of means; the covariance of means plus the mean of
    variances, what lies off the diagonal shrunk by n / (n + d) for n nodes. A class without a node has mean 0, covariance I.
    """
    width = mean.shape[1]
    group = cohort.client[cohort.train] * cohort.classes + cohort.y[cohort.train]
    groups = cohort.clients * cohort.classes
    count = torch.bincount(group, minlength=groups).to(mean.dtype)
    share = 1.0 / count[group]
    centre = mean.new_zeros(groups, width).index_add(0, group, mean * share.unsqueeze(1))
    gap = mean - centre[group]
    outer = gap.unsqueeze(2) * gap.unsqueeze(1) * share[:, None, None]
    spread = mean.new_zeros(groups, width, width).index_add(0, group, outer)
    spread = spread * (count / (count + width))[:, None, None] + torch.diag_embed(
        spread.diagonal(dim1=1, dim2=2) * (width / (count + width)).unsqueeze(1)
        + mean.new_zeros(groups, width).index_add(0, group, logvar.exp() * share.unsqueeze(1))
    )
    absent = (count == 0)[:, None, None]
    spread = torch.where(absent, torch.eye(width, device=mean.device), spread)
    shape = (cohort.clients, cohort.classes)
    return centre.view(*shape, width), spread.view(*shape, width, width), count.view(shape)


def projectors(energies: Tensor) -> Tensor:
    """Q Q^T onto the column space of each client's energies (eq. 11): [n, d, O] -> [n, d, d].

    Q has a column for each singular value above `RANK_TOLERANCE` of the largest.
    """
    u, size, _ = torch.linalg.svd(energies.double(), full_matrices=False)
    kept = size > RANK_TOLERANCE * size[:, :1]
    q = u * kept.unsqueeze(1)
    return (q @ q.mT).float()


@torch.no_grad()
def spread_labels(cohort: Cohort, order: int, shown: Tensor) -> Tensor:
    """A^k Y: [R, K + 1, C]"""
    from fedquilt.nn.spectral import normalised
    a = cohort.once("normalised", lambda c: c.block_diagonal([normalised(m) for m in c.members]))
    y = torch.zeros(cohort.rows, cohort.classes, device=cohort.device)
    y[cohort.train, cohort.y[cohort.train]] = shown
    out = [y]
    for _ in range(order):
        out.append(a @ out[-1])
    return torch.stack(out, 1)
