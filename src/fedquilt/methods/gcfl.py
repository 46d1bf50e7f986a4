"""GCFL: Xie et al., Federated Graph Classification over Non-IID Graphs, NeurIPS 2021.

Clients are in clusters, at first in one, and each cluster has FedAvg of its own. While the members of a cluster agree, their
mean update is about as long as each of theirs; where training has come to rest for the cluster as a whole (its mean update is
shorter than eps_1) but not for some member (whose update is longer than eps_2), they pull in different directions, and the
cluster is cut in two. The cut is the minimum cut of the graph whose edges are the cosines of the members' updates.

Where the code and the paper differ, or the paper leaves it open, and why (what was measured is in `fedquilt docs fidelity`):

- *Thresholds.* Printed ones (0.05 and 0.1) belong to one network, optimiser and learning rate. Here they are shares of the
  mean length of the clients' updates in the first round; `thresholds=absolute` takes them as they are.
- *Edges.* A cut has no room for negative cosines, and a minimum cut of edges that all have about the same weight takes away
  one client after the other. Here an edge is how far a cosine is above the mean of the cluster's, where it is (`edges=mean`),
  so that groups come apart as groups; `edges=smallest` has it above the smallest, `edges=cosines` the cosines themselves,
  negative ones as zero, which is the paper's.
- *What is shared.* The original's clients have features of their own each, so that it shares graph layers only; here features
  are the same for all, and the whole model is shared, as the subgraph papers' tables have it (`share=layers`: the graph
  layers).
- *Partial participation.* Norms are of those who sent; a cosine is of the round in which both last sent, of a pair that never
  did the mean of the cluster's others. A cluster of which nobody sent keeps its model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedquilt.devices.offload import row_chunks
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RoundSizes, RunContext, State, register
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.diagnostics import pair_median
from fedquilt.methods.fedavg import TRAIN_NODES, WEIGHTS, FedAvg
from fedquilt.methods.settings import BackboneSettings, Positive
from fedquilt.nn.cross_cosine import cross_cosine
from fedquilt.nn.min_cut import min_cut
from fedquilt.nn.models import part

CLUSTER, CENTRE, REFERENCE, TURN = "cluster", "centre.", "reference", "turn"
COSINE, KNOWN, DIAGNOSTIC = "cosine", "known", "diagnostic."
SMALLEST = 3  # members of a cluster that can be cut
NOTED = ("clusters", "largest_cluster", "effective_clients", "agreement", "longest_update", "cosine_median")


@dataclass(frozen=True)
class GcflSettings(BackboneSettings):
    """The backbone's settings and GCFL's own.

    Attributes:
        eps_1: a cluster is cut where its mean update is shorter than this,
        eps_2: and some member's longer than this.
        thresholds: what these are in: relative (shares of the mean length of clients' updates in the first round) or absolute.
        first_cut: rounds before the first cut.
        edges: what the cut is of: cosines less the mean of the cluster's (mean), less the smallest, or as they are (cosines);
            negative ones are zero.
        share: model (all weights) or layers (all but the classifier, which stays at home).
    """

    eps_1: Positive = 0.3
    eps_2: Positive = 0.6
    thresholds: Literal["relative", "absolute"] = "relative"
    first_cut: Annotated[int, Field(ge=0)] = 20
    edges: Literal["mean", "smallest", "cosines"] = "mean"
    share: Literal["model", "layers"] = "model"


@register("gcfl")
class Gcfl(FedAvg):
    """The server keeps every client's cluster [M], the clusters' models [K, ...] and the cosines between clients [M, M].

    K grows with every cut: the state's tensors have as many rows as there are clusters.
    """

    title = "GCFL"
    paper = "Xie et al., NeurIPS 2021"
    baseline = True
    Settings = GcflSettings
    single_uploads = "server compares the clients' updates to find clusters, and averages each cluster by itself"
    searched = (*FedAvg.searched, "eps_1", "eps_2")
    settings: GcflSettings
    host_server = True  # clusters are cut where norms say so
    uploads = (WEIGHTS, TRAIN_NODES)
    downloads = (
        TensorSpec(
            MODEL + "*", "The average of the models of the participants in this client's cluster, at least itself."
        ),
    )
    newcomers = (
        "A newcomer is given the average of all clusters, trains it for a round, sends the model, and is given the "
        "model of the cluster toward which its training went."
    )

    def __init__(self, settings: GcflSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        if settings.eps_1 > settings.eps_2:
            raise FedquiltError(
                f"eps_1={settings.eps_1} is above eps_2={settings.eps_2}: clusters whose members agree would be cut too; "
                "choose eps_1 below eps_2."
            )
        shared = [name for name in self.shapes() if self.shares(name)]
        if settings.share == "layers" and len(shared) in (0, len(self.shapes())):
            raise FedquiltError(
                f"share=layers leaves the weights whose names begin with 'classifier' at home; the backbone '{settings.model}' "
                f"has {', '.join(self.shapes())}: set share=model."
            )

    def shares(self, name: str) -> bool:
        """All of them, or all but the classifier."""
        return self.settings.share == "model" or not name.startswith("classifier")

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """One cluster, whose model is the common start; nothing is sent."""
        clients = self.context.clients
        start = {name: dense(w) for name, w in self.public_start().items()}
        server = {CENTRE + n: start[MODEL + n].unsqueeze(0).clone() for n in self.shapes() if self.shares(n)}
        server |= {CLUSTER: torch.zeros(clients, dtype=torch.int64), TURN: torch.zeros(1, dtype=torch.int64)}
        server |= {REFERENCE: torch.zeros(())} | {DIAGNOSTIC + name: torch.zeros(()) for name in NOTED}
        server |= {COSINE: torch.eye(clients), KNOWN: torch.eye(clients, dtype=torch.bool)}
        return server | self.more_state(), {}

    def more_state(self) -> State:
        """What the server keeps besides; for methods that cut by something else."""
        return {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """Matrices over all pairs. Updates are gone before downloads are made, and models are few beside the uploads."""
        return super().server_memory(sizes) + 5 * self.context.clients**2 + 28 * sizes.senders**2

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """Cut the clusters that are due, average each, and send every receiver its cluster's model."""
        stacks = {n.removeprefix(MODEL): dense(v) for n, v in uploads.items() if n.startswith(MODEL)}
        nodes = dense(uploads[TRAIN_NODES.name])
        centres = {name: server[CENTRE + name].to(nodes.device) for name in stacks}
        product = self.products(stacks, centres, server[CLUSTER][senders].to(nodes.device)).double().cpu()
        length = product.diagonal().clamp_min(0.0).sqrt()
        if not server[TURN]:
            server[REFERENCE].copy_(length.mean())
        self.remember_round(server, senders, product, length)
        weight = nodes.double().cpu()
        for cluster in server[CLUSTER].unique().tolist():
            if self.due(server, cluster, senders, product, weight):
                centres = {name: torch.cat([w, w[cluster : cluster + 1]]) for name, w in centres.items()}
                self.cut(server, cluster)
        self.note(server, senders, product, weight)
        server[TURN].add_(1)
        self.average_clusters(centres, stacks, nodes, server[CLUSTER][senders])
        # They stay where the uploads are: copied to the host and back, they would take most of an accelerator's round.
        server.update({CENTRE + name: w for name, w in centres.items()})
        chosen = server[CLUSTER][receivers].to(nodes.device)
        return {MODEL + name: w[chosen] for name, w in centres.items()}

    def products(self, stacks: State, centres: State, cluster: Tensor) -> Tensor:
        """Inner products of the senders' updates, each from its own cluster's model: [n, n]."""
        out = torch.zeros(len(cluster), len(cluster), device=cluster.device)
        for name, stack in stacks.items():
            update = torch.cat([(w - centres[name][cluster[rows]]).flatten(1) for rows, w in row_chunks(stack)])
            out += update @ update.T
        return out

    def remember_round(self, server: State, senders: Tensor, product: Tensor, length: Tensor) -> None:
        """Store the cosines of those who sent."""
        cosine = product / (length.unsqueeze(1) * length).clamp_min(1e-30)
        server[COSINE][senders.unsqueeze(1), senders] = cosine.to(server[COSINE].dtype)
        server[KNOWN][senders.unsqueeze(1), senders] = True

    def due(self, server: State, cluster: int, senders: Tensor, product: Tensor, weight: Tensor) -> bool:
        """Whether the cluster is cut now: |mean update| < eps_1 and some |update| > eps_2, of those who sent."""
        s = self.settings
        members = torch.nonzero(server[CLUSTER] == cluster).ravel()
        here = torch.nonzero(server[CLUSTER][senders] == cluster).ravel()
        if int(server[TURN]) < s.first_cut or len(members) < SMALLEST or len(here) < 2:
            return False
        unit = float(server[REFERENCE]) if s.thresholds == "relative" else 1.0
        inside = product[here.unsqueeze(1), here]
        mean, longest = mean_length(inside, weight[here]), inside.diagonal().max().clamp_min(0.0).sqrt()
        return bool(mean < s.eps_1 * unit and longest > s.eps_2 * unit) and self.ready(server, members)

    def ready(self, server: State, members: Tensor) -> bool:
        """Whether enough is known of the members to cut their cluster; of updates, as soon as two pairs can be compared."""
        return int(server[KNOWN][members.unsqueeze(1), members].sum()) >= len(members) + 4

    def cut(self, server: State, cluster: int) -> None:
        """Give the smaller group of the cluster a number of its own, the next one."""
        members = torch.nonzero(server[CLUSTER] == cluster).ravel()
        smaller = members[min_cut(self.similar(server, members))]
        server[CLUSTER][smaller] = int(server[CLUSTER].max()) + 1

    def similar(self, server: State, members: Tensor) -> Tensor:
        """The weights of the edges between members, not negative: [n] -> [n, n]."""
        cosine = server[COSINE][members.unsqueeze(1), members]
        known = server[KNOWN][members.unsqueeze(1), members]
        pairs = known & ~torch.eye(len(members), dtype=torch.bool)
        mean = cosine[pairs].mean()
        cosine = torch.where(known, cosine, mean)
        level = {"mean": mean, "smallest": cosine.min(), "cosines": mean.new_zeros(())}[self.settings.edges]
        return (cosine - level).clamp_min(0.0)

    def average_clusters(self, centres: State, stacks: State, nodes: Tensor, cluster: Tensor) -> None:
        """Average each cluster's senders, by training nodes; `centres` [K, ...] are changed in place."""
        for number in cluster.unique().tolist():
            here = torch.nonzero(cluster == number).ravel().to(nodes.device)
            some = stacks if len(here) == len(nodes) else {name: stack[here] for name, stack in stacks.items()}
            before = {name: w[number] for name, w in centres.items()} if self.averaging.needs_previous else {}
            trust = self.trust(before, some, dict.fromkeys(some))
            for name, stack in some.items():
                weight = nodes[here] * trust[name] if name in trust else nodes[here]
                centres[name][number] = self.averaging.average(stack, weight, before.get(name))

    # -- clients that come after training ----------------------------------------------------------------------------

    def newcomer_sends(self) -> tuple[str, ...]:
        """The model after a round from the average of all clusters."""
        return (MODEL + "*",)

    def newcomer_state(self, server: State) -> State:
        """The clusters' models, and who is in which."""
        return {name: value for name, value in server.items() if name.startswith(CENTRE) or name == CLUSTER}

    def newcomer_greeting(self, server: State) -> Message:
        """The average of the clusters' models by the number of their clients."""
        share = torch.bincount(server[CLUSTER]).float() / len(server[CLUSTER])
        return {MODEL + name: torch.tensordot(share, w, dims=1) for name, w in part(server, CENTRE).items()}

    def newcomer_download(self, server: State, uploads: Message) -> Message:
        """The model of the cluster k with the largest cos(w - mean, centre_k - mean) for each newcomer's model w."""
        centres = part(server, CENTRE)
        mean = {name: dense(value) for name, value in self.newcomer_greeting(server).items()}
        moved = [dense(uploads[MODEL + name]) - mean[MODEL + name] for name in centres]
        found = cross_cosine(moved, [w - mean[MODEL + name] for name, w in centres.items()]).argmax(1)
        return {MODEL + name: w[found] for name, w in centres.items()}

    # -- what reports show -----------------------------------------------------------------------------------------

    def note(self, server: State, senders: Tensor, product: Tensor, weight: Tensor) -> None:
        """Store the diagnostics of the round, in place."""
        sizes = torch.bincount(server[CLUSTER])
        same = (server[CLUSTER][senders].unsqueeze(1) == server[CLUSTER][senders]).double()
        share = same * weight
        share /= share.sum(1, keepdim=True)
        length = product.diagonal().clamp_min(0.0).sqrt()
        mean = torch.einsum("ij,jk,ik->i", share, product, share).clamp_min(0.0).sqrt()
        found = {
            "clusters": torch.tensor(float(len(sizes))),
            "largest_cluster": sizes.max().float(),
            "effective_clients": torch.exp(-torch.special.xlogy(share, share).sum(1)).mean(),
            "agreement": (mean / (share @ length).clamp_min(1e-30)).mean(),
            "longest_update": length.max() / server[REFERENCE].clamp_min(1e-30),
            "cosine_median": pair_median(server[COSINE][senders.unsqueeze(1), senders]),
        }
        for name, value in found.items():
            server[DIAGNOSTIC + name].copy_(value)

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """Whether clients are told apart.

        clusters            how many there are
        largest_cluster     clients in the largest
        effective_clients   exp(entropy) of the shares with which the senders make up a client's average
        agreement           |mean update| of a client's cluster over the mean |update| in it; 1 where all want the same
        longest_update      the longest update, in mean lengths of the first round's
        cosine_median       the median over pairs of senders of the cosine of their updates
        """
        return {name: server[DIAGNOSTIC + name] for name in NOTED}

    def similarity(self, server: State) -> Tensor | None:
        """The cosines of updates, each of the round in which both clients last sent."""
        return server[COSINE]


def mean_length(product: Tensor, weight: Tensor) -> Tensor:
    """|sum_i w_i u_i / sum_i w_i| from inner products u_i u_j [n, n] and weights [n]: a scalar."""
    share = weight / weight.sum()
    return (share @ product @ share).clamp_min(0.0).sqrt()
