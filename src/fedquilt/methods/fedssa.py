"""FedSSA: Yu et al., Heterogeneity-Aware Knowledge Sharing for Graph Federated Learning, 2026.

Weights never leave a client: what crosses, in a few kilobytes, is what its classes look like and what its structure is
like. Every client draws its classes and its graph filter toward those of the clients that resemble it, class by class and in
structure.

The model is a spectral graph neural network, and it is the encoder of a variational graph autoencoder too (appendix E.2.1):

    P = sum_k w_k H_k            filtered features, [n, F] (`fedquilt.nn.spectral`; eq. 8)
    h = relu(P W + b)            the hidden layer
    Z ~ N(h W_z + b_z, s^2)      latent variables, log s^2 = h W_s + y W_y + b_s with y the label of a training node, one-hot
    classifier                   reads h and the mean of Z

- *Semantic.* Each class at each client is a Gaussian of the latent variables of its training nodes (eq. 3). For each class the
  server clusters the clients and matches the moments of each cluster (eq. 4 to 6), and every client draws its classes toward
  those of their clusters (eq. 7).
- *Structural.* The server clusters the clients by the subspaces of their spectral energies (eq. 9 to 13), and every client
  draws its coefficients w_k toward the mean of its cluster (eq. 14, 15).

Where the code and the paper differ, or the paper leaves it open, and why (measured in `fedquilt docs fidelity`). The public
code that the paper names (github.com/blgpb/FedSSA) could not be had.

- *Labels.* The paper appends a node's label to its features. If what the classifier reads held a training node's own label, it
  would learn to read that label and fail where there is none. So labels enter the log-variances only, which no classifier
  reads: those of training nodes, and zeros for all other nodes.
- *Classes.* Eq. 3 takes the nodes of a class from all nodes of a client, which needs the labels that are to be predicted. Ours
  takes training nodes.
- *Weights of the losses.* Eq. 41 adds its terms. Ours has `elbo`, `semantic_weight` and `structural_weight`, chosen on
  validation: the evidence lower bound is off by default, because it changes nothing at small weights and costs accuracy at
  large ones. The log-variances then learn from the alignment alone.
- *Evidence lower bound.* Inner products as decoder, of all edges and as many random pairs. Each term is a mean over pairs,
  nodes and dimensions. log p(Y) is constant and left out.
- *Regularisation* that the paper does not state: `weight_decay`, and UniFilter's two dropouts, of filtered features
  (`input_dropout`) and of hidden units (`dropout`).
- *A separate encoder* (`encoder="separate"`) was the first reading: two graph convolutions of features and neighbouring labels,
  whose first layer reads features by W. No classifier reads it, so that its Gaussians hardly differ between classes.
- *Coefficients.* Adam normalises its steps, so that the absolute differences of eq. 15 and the elastic net of eq. 16, in the
  gradient, would be all that moves them. They are proximal steps after Adam's: toward the cluster's coefficients by at most
  `structural_weight`, then toward zero by at most `l1`, then divided by 1 + `l2`, each times the learning rate.
- *Energies* are projected to `energy` dimensions by a random matrix that all clients draw from the server's seed: the
  features have thousands. Bases are those of the singular vectors above a hundredth of the largest singular value: where
  energies are rank-deficient a QR basis has arbitrary columns. The chordal distance of subspaces of r and s dimensions is
  ((r + s) / 2 - ||Q^T P||^2)^1/2, which is eq. 12 for r = s; k-means runs on the projectors Q Q^T, whose distance it is.
- *Covariances* are those of the mixture of the nodes' Gaussians, shrunk toward the diagonal where nodes are few.
- *Clusters* are over all clients that were ever heard of, with what they said last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, Places, advanced
from fedquilt.cohort.rows import Rows
from fedquilt.common.random_streams import derive
from fedquilt.devices.device import using_threads
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.base import LAST_SENT, STANDING, RoundSizes, State, register
from fedquilt.methods.base_adam import MODEL, AdamMethod, gradients_of, leaves_of
from fedquilt.methods.settings import AdamSettings, Count, NonNegative, Positive, Rate, Share
from fedquilt.nn.class_gaussians import class_gaussians, neighbouring_labels, sound_roots, training_labels
from fedquilt.nn.decoder import expected_reconstruction
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.gaussians import class_separation, kl_diagonal, kl_full, kl_mixture, matched
from fedquilt.nn.k_means import draw_count, k_means
from fedquilt.nn.layers import Weights, gcn, linear
from fedquilt.nn.models import Shapes, activate
from fedquilt.nn.optim import LearningRate
from fedquilt.nn.spectral import Bases, Kind
from fedquilt.nn.subspaces import projectors
from fedquilt.tasks.node_classification import training_homophily

Encoder = Literal["spectral", "separate"]
FILTER, ENERGY, SEED = "filter", "energy", "projection_seed"
CLUSTER_FILTER, CLUSTER_SIZE = "cluster.filter", "cluster.size"
MEAN, COVARIANCE, COUNT = "class.mean", "class.covariance", "class.count"
# Not the names of uploads: under differential privacy a download of that name is what the server knows of the upload.
CLUSTER_MEAN, CLUSTER_COVARIANCE, WEIGHT = "cluster.mean", "cluster.covariance", "cluster.weight"
HEARD, CLUSTER, ROUND = "heard", "cluster", "round"
INPUT_LAYER = 1  # which of a step's random numbers drop filtered features
FEW = 20  # clients up to which clustering them is small work


@dataclass(frozen=True)
class FedSSASettings(AdamSettings):
    """Adam's settings and FedSSA's own.

    Attributes:
        weight_decay: L2 decay added to the gradient of the MLP and the encoder, which are never averaged.
        hidden: width of the MLP's hidden layer.
        basis: the polynomial basis.
        order: K, the highest order of the basis.
        mix: share of the homophily basis A^k X in UniFilter's.
        filter_lr: Adam's learning rate for the coefficients: they are few and have a long way to go.
        input_dropout: share of filtered features dropped while training.
        encoder: "spectral": the autoencoder is the spectral network, and the classifier reads the means of its latent
            variables (appendix E.2.1). "separate": a graph convolution of its own, which no classifier reads.
        classify: what the classifier of the spectral encoder reads: the means of the latent variables beside the hidden
            layer ("both") or alone ("mean").
        latent: width of the autoencoder's latent variables.
        elbo: weight of the autoencoder's negative evidence lower bound; eq. 41 has one. A step with any weight but zero
            computes all nodes, else training nodes only.
        semantic: share what classes look like (Table 8).
        semantic_weight: weight of the semantic alignment (eq. 7); eq. 41 has one.
        node_clusters: clusters of clients for each class.
        components: Gaussians by which a cluster's class is described (Table 9: three instead of one).
        structural: share what the structure is like (Table 8).
        structural_weight: strength of the structural alignment (eq. 15); eq. 41 has one.
        structure_clusters: clusters of clients by structure.
        energy: width of the spectral energies, at most.
        l1: lambda1 of the elastic net on the coefficients (eq. 16).
        l2: lambda2 of it.
    """

    weight_decay: NonNegative = 5e-4
    hidden: Count = 128
    basis: Kind = "unifilter"
    order: Count = 10
    mix: Share = 0.8
    filter_lr: Positive = 0.05
    input_dropout: Rate = 0.5
    encoder: Encoder = "spectral"
    classify: Literal["both", "mean"] = "both"
    latent: Count = 16
    elbo: NonNegative = 0.0
    semantic: bool = True
    semantic_weight: NonNegative = 0.03
    node_clusters: Count = 3
    components: Count = 1
    structural: bool = True
    structural_weight: NonNegative = 0.1
    structure_clusters: Count = 3
    energy: Count = 32
    l1: NonNegative = 0.001
    l2: NonNegative = 0.001


@register("fedssa")
class FedSSA(AdamMethod):
    """State beside the model: the filter's coefficients, and the class-wise Gaussians inferred last."""

    title = "FedSSA"
    paper = "Yu et al., 2026"
    compute_version = 2
    admits = True
    newcomers = (
        "A newcomer trains alone first, sends its filter, energies and class distributions, and is given those of "
        "the clusters that it is nearest to, toward which it trains on; no weights."
    )
    Settings = FedSSASettings
    single_uploads = "server clusters the clients by what each sent"
    settings_before = MappingProxyType({"encoder": "separate"})
    searched = (*AdamMethod.searched, "input_dropout", "filter_lr", "semantic_weight", "structural_weight")
    settings: FedSSASettings
    guarded = (
        "Its server describes clusters of clients, of which there is no median or trimmed mean. With aggregation=guarded, a "
        "client counts in the description of a class for at most three times the median client, or not at all where its mean "
        "or covariance is more than three times as long as the median one; coefficients are brought as near to the "
        "median of all clients' as the median client's are."
    )
    uploads = (
        TensorSpec(
            FILTER,
            "The coefficients of the client's graph filter: roughly, how alike neighbours are there.",
            weights=True,
        ),
        TensorSpec(ENERGY, "The mean of the client's features in each spectral band, projected to a few dimensions."),
        TensorSpec(MEAN, "The mean of each class in a latent space whose encoder stays at the client."),
        TensorSpec(COVARIANCE, "How each class spreads in that latent space."),
        TensorSpec(COUNT, "How many training nodes of each class the client has.", count=True),
    )
    downloads = (
        TensorSpec(
            SEED, "The seed of the projection of spectral energies; it tells nothing about anyone.", shared=True
        ),
        TensorSpec(CLUSTER_FILTER, "The mean coefficients of the clients whose structure resembles this one's."),
        TensorSpec(CLUSTER_SIZE, "How many clients these are."),
        TensorSpec(CLUSTER_MEAN, "For each class, its mean over the clients where it looks like here."),
        TensorSpec(CLUSTER_COVARIANCE, "For each class, how it spreads over these clients."),
        TensorSpec(WEIGHT, "The shares of the Gaussians that describe these clients; none: no such class here."),
    )

    @property
    def orders(self) -> int:
        """K + 1, the number of coefficients."""
        return self.settings.order + 1

    @property
    def energy_width(self) -> int:
        """Width of the energies: that of the features where it is less."""
        return min(self.settings.energy, self.context.features)

    def needs_whole_graphs(self) -> str:
        """Its filters are powers of the whole graph."""
        return "its filter bases are computed on the whole graph, once, before training"

    def shapes(self) -> Shapes:
        """The network, and under ``encoder.`` what only the autoencoder reads."""
        s, classes = self.settings, self.context.outputs
        hidden = {"hidden.weight": (self.context.features, s.hidden), "hidden.bias": (s.hidden,)}
        if s.encoder == "separate":
            read, latent = s.hidden, {}
            encoder = {"label": (classes, s.hidden), "weight": (s.hidden, 2 * s.latent), "bias": (2 * s.latent,)}
        else:
            read = s.latent + (s.hidden if s.classify == "both" else 0)
            latent = {"latent.weight": (s.hidden, s.latent), "latent.bias": (s.latent,)}
            encoder = {"label": (classes, s.latent), "weight": (s.hidden, s.latent), "bias": (s.latent,)}
        classifier = {"classifier.weight": (read, classes), "classifier.bias": (classes,)}
        return hidden | latent | classifier | {f"encoder.{name}": shape for name, shape in encoder.items()}

    def needs_classes(self) -> bool:
        """The encoder reads labels, and the filter's basis the homophily between them."""
        return True

    def sends(self, name: str) -> bool:
        """What is shared: the structure, the classes, both or nothing."""
        asked = self.settings.structural if name in (FILTER, ENERGY) else self.settings.semantic
        return super().sends(name) and asked

    def size(self, nodes: int) -> int:
        """Besides, the polynomial signals of all nodes, and the classes' covariances."""
        context, s = self.context, self.settings
        return super().size(nodes) + nodes * context.features * self.orders + context.outputs * s.latent**2

    # -- at the client -------------------------------------------------------------------------------------------

    def private(self, weights: Weights) -> State:
        """Equal coefficients, as UniFilter starts, and the Gaussians of classes without a node (`class_gaussians`)."""
        some = weights["hidden.bias"]
        clients, classes, width = len(some), self.context.outputs, self.settings.latent
        return {
            FILTER: some.new_full((clients, self.orders), 1.0 / self.orders),
            MEAN: some.new_zeros(clients, classes, width),
            COVARIANCE: torch.eye(width).to(some).repeat(clients, classes, 1, 1),
            COUNT: some.new_zeros(clients, classes),
        }

    def trained(self, state: State) -> Weights:
        """The model and the coefficients."""
        return super().trained(state) | {FILTER: state[FILTER]}

    def rates(self, cohort: Cohort) -> dict[str, LearningRate]:
        """The coefficients' own."""
        return {FILTER: self.settings.filter_lr}

    def personal(self, state: State) -> State:
        """The coefficients and the network, without what only the autoencoder reads."""
        network = {name: w for name, w in self.weights(state).items() if not name.startswith("encoder.")}
        return network | {FILTER: state[FILTER]}

    def bases(self, cohort: Cohort) -> Bases:
        """The cohort's signals, computed once."""
        s = self.settings
        made: Bases = cohort.once(("bases", s.basis, s.order, s.mix), lambda c: Bases(c, s.basis, s.order, s.mix))
        return made

    def constants(self) -> Mapping[str, Callable[[Client], float]]:
        """UniFilter's basis takes its angle from the homophily of the training nodes."""
        return {"homophily": training_homophily} if self.settings.basis == "unifilter" else {}

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The personal models' logits, without dropout."""
        h = self.hidden_layer(personal, cohort, cohort)
        if self.settings.encoder == "spectral":
            h = self.read(h, linear(cohort, h, personal["latent.weight"], personal["latent.bias"]))
        return linear(cohort, h, personal["classifier.weight"], personal["classifier.bias"])

    def read(self, h: Tensor, mean: Tensor) -> Tensor:
        """What the classifier reads of the spectral encoder: the means [R, latent], or the hidden layer and the means."""
        return mean if self.settings.classify == "mean" else torch.cat([h, mean], dim=1)

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """Eq. 41 but for the terms on the coefficients alone, which are `after_step`; notes the class-wise Gaussians."""
        s, training = self.settings, cohort.training
        leaves = leaves_of(self.trained(state))
        w = {name.removeprefix(MODEL): leaf for name, leaf in leaves.items()}
        spectral = s.encoder == "spectral"
        # The evidence lower bound is over all nodes, everything else over training nodes.
        rows: Rows = cohort if spectral and s.elbo else training
        h = self.hidden_layer(w, cohort, rows, dropout)
        mean, logvar = self.encode(w, cohort, rows, h) if spectral else self.separate_encode(w, cohort)
        read = self.read(h, mean) if spectral else h
        read = read[training.index] if rows is cohort else read
        logits = linear(training, read, w["classifier.weight"], w["classifier.bias"])
        total, each = self.task.training_loss(cohort, logits, dropout.draws)
        # Where nothing reads the log-variances, their weights have gradients of zero.
        total = total + (s.elbo * negative_elbo(cohort, mean, logvar, dropout) if s.elbo else 0.0 * logvar.sum())
        train = training.real if spectral and rows is training else cohort.train
        own = self.class_gaussians(w, cohort, mean[train], logvar[train])
        for name, value in zip((MEAN, COVARIANCE, COUNT), own, strict=True):
            state[name].copy_(value.detach())
        if WEIGHT in down:
            total = total + s.semantic_weight * semantic_loss(*own, down)
        return gradients_of(total, leaves), each

    def hidden_layer(self, w: Weights, cohort: Cohort, rows: Rows, dropout: Dropout | None = None) -> Tensor:
        """relu(P W + b) of the filtered signals P = sum_k w_k H_k (eq. 8), with dropout of P and after the ReLU if given.

        `rows` is the cohort, for all nodes, or its training rows: [R, hidden] or [T, hidden].
        """
        bases, rate = self.bases(cohort), self.settings.input_dropout
        keep = None
        if dropout is not None and rate:
            keep = Dropout(rate, dropout.keys, dropout.step).mask(rows, self.context.features, INPUT_LAYER)
        basis = bases.everywhere if rows is cohort else bases.training
        return activate(rows, rows.add(basis.linear(w[FILTER], w["hidden.weight"], keep), w["hidden.bias"]), dropout, 0)

    def encode(self, w: Weights, cohort: Cohort, rows: Rows, h: Tensor) -> tuple[Tensor, Tensor]:
        """q(Z | X, Y) on the hidden layer: means and log-variances of the rows, [R, latent] each.

        A training node's own label enters its log-variance. The mean, which the classifier reads, has no label in it.
        """
        known: Tensor = cohort.once("training labels", training_labels)
        known = known if rows is cohort else known[cohort.training.index]
        mean = linear(rows, h, w["latent.weight"], w["latent.bias"])
        return mean, linear(rows, h, w["encoder.weight"], w["encoder.bias"]) + rows.multiply(known, w["encoder.label"])

    def separate_encode(self, w: Weights, cohort: Cohort) -> tuple[Tensor, Tensor]:
        """q(Z | X, Y) by two graph convolutions, the first of which reads features by the MLP's weights: [R, latent] each."""
        known: Tensor = cohort.once("neighbouring labels", neighbouring_labels)
        h = linear(cohort, cohort.smoothed, w["hidden.weight"], w["hidden.bias"])
        h = torch.relu(h + cohort.multiply(known, w["encoder.label"]))
        mean, logvar = gcn(cohort, h, w["encoder.weight"], w["encoder.bias"]).chunk(2, dim=1)
        return mean, logvar

    def class_gaussians(
        self, w: Weights, cohort: Cohort, mean: Tensor, logvar: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Eq. 3 over training nodes, from their latent variables [T, latent]."""
        return class_gaussians(cohort, mean, logvar)

    @torch.no_grad()
    def after_step(self, state: State, down: Message) -> None:
        """The proximal steps of eq. 15 and 16."""
        s, w = self.settings, state[FILTER]
        if CLUSTER_FILTER in down:
            target = dense(down[CLUSTER_FILTER])
            pulled = target + F.softshrink(w - target, s.filter_lr * s.structural_weight)
            w.copy_(torch.where(dense(down[CLUSTER_SIZE]).unsqueeze(1) > 0, pulled, w))
        w.copy_(F.softshrink(w, s.filter_lr * s.l1) / (1.0 + s.filter_lr * s.l2))

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """Coefficients and energies, and class-wise Gaussians."""
        message: Message = {}
        if self.settings.structural:
            message |= {FILTER: state[FILTER], ENERGY: self.energies(state[FILTER], cohort, down)}
        if self.settings.semantic:
            message |= {name: state[name] for name in (MEAN, COVARIANCE, COUNT)}
        return message

    def energies(self, coefficients: Tensor, cohort: Cohort, down: Message) -> Tensor:
        """Eq. 9, 10: w_k times the node mean of H_k, projected: [M, K + 1, d]."""
        means: Tensor = cohort.once(("projected means", self.settings), lambda c: self.projected_means(c, down))
        return coefficients.unsqueeze(2) * means

    def projected_means(self, cohort: Cohort, down: Message) -> Tensor:
        """The node means of H_k, projected where there are many features: [M, K + 1, d]."""
        means = self.bases(cohort).means
        if self.energy_width == self.context.features:
            return means
        return means @ projection(int(dense(down[SEED])), self.context.features, self.energy_width).to(means.device)

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """Nobody heard of yet; the seed of the projection."""
        m, c, d = self.context.clients, self.context.outputs, self.settings.latent
        seed = torch.tensor([derive(self.context.seed, "server", "projection")], dtype=torch.int64)
        server = {
            SEED: seed,
            ROUND: torch.zeros(1, dtype=torch.int64),
            HEARD: torch.zeros(m, dtype=torch.bool),
            FILTER: torch.zeros(m, self.orders),
            ENERGY: torch.zeros(m, self.orders, self.energy_width),
            CLUSTER: torch.full((m,), -1),
            CLUSTER_FILTER: torch.zeros(m, self.orders),
            MEAN: torch.zeros(m, c, d),
            COVARIANCE: torch.zeros(m, c, d, d),
            COUNT: torch.zeros(m, c),
        }
        return server, self.hello(server)

    def hello(self, server: State) -> Message:
        """The seed of the projection, where energies are shared."""
        return {SEED: server[SEED]} if self.settings.structural else {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """For each client and class a covariance, its root, the samples that are clustered, and what its clusters have."""
        classes, width = self.context.outputs, self.settings.latent
        gaussians = 4 * self.context.clients * classes * width * (width + 1)
        energies = 4 * self.context.clients * self.orders * (self.energy_width + self.orders)
        return super().server_memory(sizes) + 10 * gaussians * self.settings.semantic + 3 * energies

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """Cluster the clients by class and by structure, and send each receiver the statistics of its clusters."""
        for name, value in uploads.items():
            server[name][senders] = dense(value)
        server[HEARD].index_fill_(0, senders, True)  # not by an index: that copies a number from the host
        server[ROUND] += 1
        message: Message = {}
        with self.few_threads():
            if self.settings.structural:
                # Where all clients sent, none has to be looked for, which the host would have to wait for.
                everyone = slice(None) if len(senders) == self.context.clients else None
                message |= self.structural_clusters(server, receivers, everyone)
            if self.settings.semantic:
                message |= self.semantic_clusters(server, receivers)
        return message | self.hello(server)

    def few_threads(self) -> AbstractContextManager[None]:
        """One thread where there is little to do: more would only wait for each other."""
        return using_threads(1 if self.context.clients <= FEW else None)

    def draws(self, server: State, purpose: str) -> Draws:
        """The server's random numbers for one purpose in this round."""
        key = torch.full_like(server[ROUND], derive(self.context.seed, "server", purpose))
        return Draws(advanced(key, server[ROUND]), 0)

    def structural_clusters(self, server: State, receivers: Tensor, heard: slice | Tensor | None = None) -> Message:
        """Eq. 11 to 14: each receiver's cluster's mean coefficients and size. `heard`: the clients that were ever heard of."""
        heard = torch.nonzero(server[HEARD]).ravel() if heard is None else heard
        places = projectors(server[ENERGY][heard].mT).flatten(1).unsqueeze(0)
        all_count = torch.ones(places.shape[:2], dtype=torch.bool, device=places.device)
        draws = self.draws(server, "structure")
        (label,), (member,) = grouped(places, all_count, self.settings.structure_clusters, draws, 0)
        size = member.sum(1)
        server[CLUSTER][heard] = label
        server[CLUSTER_FILTER][heard] = (
            member @ self.averaging.limited(server[FILTER][heard], centred=True) / size.clamp_min(1).unsqueeze(1)
        )[label]
        sizes = torch.zeros_like(server[CLUSTER_FILTER][:, 0])
        sizes[heard] = size[label]
        return {CLUSTER_FILTER: server[CLUSTER_FILTER][receivers], CLUSTER_SIZE: sizes[receivers]}

    def semantic_clusters(self, server: State, receivers: Tensor) -> Message:
        """Eq. 4 to 6 for all classes at once: [r, C, J, d], [r, C, J, d, d], [r, C, J] with J components."""
        mean, covariance = (server[name].transpose(0, 1) for name in (MEAN, COVARIANCE))
        classes, clients, width = mean.shape
        lengths = (torch.linalg.vector_norm(server[MEAN], dim=2), torch.linalg.matrix_norm(server[COVARIANCE]))
        count = self.averaging.limited_counts(server[COUNT], *lengths).T
        present, eye = count > 0, torch.eye(width, device=count.device)
        draws = self.draws(server, "semantic")
        root, repaired = sound_roots(torch.where(present[..., None, None], covariance, eye))
        covariance = repaired if repaired is not None else covariance
        noise = draws.normal(Places(classes * clients, count.device), width, 0).view(mean.shape)
        sample = mean + (root @ noise.unsqueeze(-1)).squeeze(-1)
        label, member = grouped(sample, present, self.settings.node_clusters, draws, 1)  # [C, M], [C, k, M]
        parts = member.flatten(0, 1)  # [C k, M]: each cluster is described by itself
        if self.settings.components > 1:
            again = sample.repeat_interleave(member.shape[1], dim=0)
            _, parts = grouped(again, parts > 0, self.settings.components, draws, 2)
        weight = parts.reshape(classes, -1, clients) * count.unsqueeze(1)  # [C, k J, M]
        centre, spread = matched(mean, covariance, weight)
        shape = (classes, member.shape[1], -1)
        total = weight.sum(-1).view(shape)
        share = total / total.sum(-1, keepdim=True).clamp_min(1.0)
        spread = torch.where(total[..., None, None] > 0, spread.view(*total.shape, width, width), eye)
        spread = repaired if (repaired := sound_roots(spread)[1]) is not None else spread
        mine = (torch.arange(classes, device=label.device).unsqueeze(1), label[:, receivers].clamp_min(0))
        here = present[:, receivers].unsqueeze(-1)
        return {
            CLUSTER_MEAN: centre.view(*total.shape, width)[mine].transpose(0, 1).contiguous(),
            CLUSTER_COVARIANCE: spread[mine].transpose(0, 1).contiguous(),
            WEIGHT: torch.where(here, share[mine], 0.0).transpose(0, 1).contiguous(),
        }

    # -- clients that come after training ----------------------------------------------------------------------------

    def newcomer_sends(self) -> tuple[str, ...]:
        """All that clients send."""
        return tuple(name for name in (FILTER, ENERGY, MEAN, COVARIANCE, COUNT) if self.sends(name))

    def newcomer_rounds(self) -> tuple[int, ...]:
        """As many as have `newcomer_epochs`, at home: without a model, a first one says little."""
        rounds = -(-self.newcomer_epochs() // self.settings.epochs)
        return tuple(range(rounds)) if self.newcomer_sends() else ()

    def newcomer_state(self, server: State) -> State:
        """All that clients sent last, and their clusters."""
        return {name: value for name, value in server.items() if not name.startswith((LAST_SENT, STANDING))}

    def newcomer_greeting(self, server: State) -> Message:
        """The seed of the projection, where energies are shared."""
        return self.hello(server)

    def newcomer_download(self, server: State, uploads: Message) -> Message:
        """The statistics of the cluster of clients that is nearest, by structure and for each class."""
        server, sent = ({n: dense(v).cpu() for n, v in message.items()} for message in (server, uploads))
        message: Message = {}
        with self.few_threads():
            if self.settings.structural:
                message |= self.nearest_structure(server, sent[ENERGY])
            if self.settings.semantic:
                message |= self.nearest_classes(server, sent[MEAN], sent[COUNT])
        where = [dense(value).device for value in uploads.values()]
        message = {name: dense(value).to(where[0]) for name, value in message.items()}
        return message | self.hello({name: value.to(where[0]) for name, value in server.items()}) if where else {}

    def nearest_structure(self, server: State, energies: Tensor) -> Message:
        """For each newcomer the coefficients and size of the cluster whose mean projector is nearest: [n, K + 1, d]."""
        heard = torch.nonzero(server[HEARD]).ravel()
        member = F.one_hot(server[CLUSTER][heard]).float()
        size = member.sum(0)
        centre = member.T @ projectors(server[ENERGY][heard].mT).flatten(1) / size.clamp_min(1).unsqueeze(1)
        gap = torch.cdist(projectors(energies.mT).flatten(1), centre).masked_fill(size == 0, torch.inf)
        found = gap.argmin(1)
        some = heard[member.argmax(0)]  # a client of each cluster, all of which have the same coefficients
        return {CLUSTER_FILTER: server[CLUSTER_FILTER][some[found]], CLUSTER_SIZE: size[found]}

    def nearest_classes(self, server: State, mean: Tensor, count: Tensor) -> Message:
        """For each newcomer and class the Gaussians of the cluster whose mean is nearest to its own: [n, C, d], [n, C]."""
        everyone = torch.arange(len(server[HEARD]))
        found = {name: dense(value) for name, value in self.semantic_clusters(server, everyone).items()}
        share = found[WEIGHT]  # [M, C, J]
        centre = (found[CLUSTER_MEAN] * share.unsqueeze(3)).sum(2)  # [M, C, d]
        known = share.sum(2) > 0
        gap = torch.linalg.vector_norm(mean.unsqueeze(1) - centre, dim=3).masked_fill(~known, torch.inf)  # [n, M, C]
        mine = (gap.argmin(1), torch.arange(mean.shape[1]))
        here = ((count > 0) & known.any(0)).unsqueeze(2)
        given = {name: value[mine].contiguous() for name, value in found.items()}
        return {**given, WEIGHT: torch.where(here, given[WEIGHT], 0.0)}

    def similarity(self, server: State) -> Tensor | None:
        """How far the subspaces of two clients' energies coincide: ||Q^T P||^2 / max(r, s), [M, M]."""
        if not self.settings.structural:
            return None
        places = projectors(server[ENERGY].mT).flatten(1)
        overlap = places @ places.T
        rank = overlap.diagonal()
        return overlap / torch.maximum(rank, rank.unsqueeze(1)).clamp_min(1.0)

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """How far apart the classes of a client are, of what clients uploaded last (`class_separation`)."""
        if not self.settings.semantic:
            return {}
        return {"class_separation": class_separation(server[MEAN], server[COVARIANCE], server[COUNT])}

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """Each client's filter, its cluster's, the means of its classes and how far they are apart."""
        found = {"coefficients": clients[FILTER], "class_means": clients[MEAN], "class_counts": clients[COUNT]}
        found["class_separation"] = class_separation(clients[MEAN], clients[COVARIANCE], clients[COUNT])
        if self.settings.structural:
            found |= {"cluster_coefficients": server[CLUSTER_FILTER], "structural_cluster": server[CLUSTER]}
        return found


def negative_elbo(cohort: Cohort, mean: Tensor, logvar: Tensor, dropout: Dropout) -> Tensor:
    """-(eq. 2) summed over clients, each term a mean over pairs, nodes and dimensions: [R, d] -> scalar."""
    apart = kl_diagonal(mean, logvar, torch.zeros_like(mean), 1.0).mean(1, keepdim=True)
    return expected_reconstruction(cohort, mean, logvar, dropout.draws) + cohort.node_mean(apart).sum()


def semantic_loss(mean: Tensor, covariance: Tensor, count: Tensor, down: Message) -> Tensor:
    """Eq. 7 summed over clients and the classes that both have: [M, C, d], [M, C, d, d], [M, C] -> scalar."""
    share = dense(down[WEIGHT])
    both = (count > 0) & (share.sum(-1) > 0)
    # Where one of them lacks the class, its description is N(0, I) or of no weight: computed like the others, and left out.
    centre, spread = dense(down[CLUSTER_MEAN]), dense(down[CLUSTER_COVARIANCE])
    apart = kl_full(mean.unsqueeze(2), covariance.unsqueeze(2), centre, spread)
    return torch.where(both, kl_mixture(apart, torch.where(both.unsqueeze(-1), share, 1.0)), 0.0).sum()


def grouped(points: Tensor, present: Tensor, clusters: int, draws: Draws, layer: int) -> tuple[Tensor, Tensor]:
    """k-means of each problem: the labels [B, n], and who is in which cluster [B, k, n] of ones and zeros."""
    shape = draw_count(len(points), points.shape[1], clusters)
    uniform = draws.uniform(Places(math.prod(shape), points.device), 1, layer).view(shape)
    label = k_means(points, present, clusters, uniform)
    number = torch.arange(shape[2], device=label.device)
    return label, (label.unsqueeze(1) == number.unsqueeze(1)).float()


@lru_cache(maxsize=4)
def projection(seed: int, features: int, width: int) -> Tensor:
    """The random projection of energies, the same for everyone: [F, d]."""
    return torch.randn(features, width, generator=torch.Generator().manual_seed(seed)) / math.sqrt(width)
