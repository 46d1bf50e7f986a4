"""Link prediction: which pairs of a client's nodes are joined, by binary cross-entropy; measured by ROC AUC and others.

A model's outputs are an embedding of every node, and a decoder without weights of its own (`link_decoders`) turns two of them
into the logit of an edge. So every weight of a decoder is a weight of the model, and follows the method's own rules: FedAvg
averages it, FedPer keeps it at home.

`link_split` describes the split of the edges, `link_pairs` the pairs. A step draws as many negatives as it has edges to
predict. A client's loss is the mean of its edges' and its negatives' losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import AfterValidator, Field
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import TRAIN, Shares, Split, parse_split
from fedquilt.tasks import LINK, class_metrics, link_metrics
from fedquilt.tasks.base import Task, register_task
from fedquilt.tasks.link_decoders import Decoder, DecoderName, decoder_of, mixed_embeddings
from fedquilt.tasks.link_pairs import NodePairs, pairs_of_cohort
from fedquilt.tasks.link_split import EdgeSplit, seen_client, without_part
from fedquilt.tasks.metric import Metric, Part

HITS = (10, 20, 50)  # the K of Hits@K


def check_shares(text: str) -> str:
    """Shares of the edges, such as "70/10/20"; ValueError where they are none."""
    try:
        shares = parse_split(text)
    except FedquiltError as error:
        raise ValueError(str(error).rstrip(".")) from None
    if not isinstance(shares, Shares) or abs(sum(shares) - 1) > 1e-9:
        raise ValueError("edges are split by three percentages that sum to 100, such as 70/10/20")
    return text


@dataclass(frozen=True)
class LinkSettings:
    """The settings of link prediction.

    Attributes:
        decoder: how two nodes' embeddings become the logit of an edge: cosine, dot or mlp.
        scale: of cosine, the logit of two nodes with the same embedding.
        width: of an embedding; of mlp, its hidden units.
        split: percentages of a client's edges for training, validation and test.
        disjoint: share of the training edges that training predicts and over which no message passes meanwhile; 0: it predicts
            all of them, and messages pass over all.
    """

    decoder: DecoderName = "cosine"
    scale: Annotated[float, Field(gt=0, le=1000)] = 3.0
    width: Annotated[int, Field(ge=2, le=4096)] = 64
    split: Annotated[str, AfterValidator(check_shares)] = "70/10/20"
    disjoint: Annotated[float, Field(ge=0, le=0.9)] = 0.5


def pair_scores(cohort: Cohort, outputs: Tensor, part: Part, decoder: Decoder) -> tuple[Tensor, Tensor, Tensor, int]:
    """What rankings take, of a part's edges and fixed negatives: logits [P], which are edges [P], whose [P], and M."""
    pairs, read = pairs_of_cohort(cohort), decoder.read(outputs)
    some = (pairs.edges[part], pairs.negatives[part])
    score = torch.cat([_logits(decoder, read, each, cohort.first_row) for each in some])
    joined = torch.cat([torch.full_like(each.client, place == 0, dtype=torch.bool) for place, each in enumerate(some)])
    return score, joined, torch.cat([each.client for each in some]), cohort.clients


def _logits(decoder: Decoder, read: Tensor, pairs: NodePairs, first: Tensor) -> Tensor:
    """The logits [P] of pairs, where what the decoder read of client m's nodes begins at row first[m]."""
    u, v = pairs.ends + first[pairs.client]
    return decoder.pair(read[u], read[v])


def _training_rows(cohort: Cohort) -> Tensor:
    """[M] the first row of each client among `cohort.training`: all of its nodes train, in their order."""
    first: Tensor = cohort.once("first training rows", lambda c: torch.from_numpy(c.training.start).to(c.device))
    return first


def link_metrics_of(decoder: Decoder) -> dict[str, Metric]:
    """The metrics of embeddings that a decoder reads."""

    def ranked(function: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> Callable[[Cohort, Tensor, Part], Tensor]:
        return lambda cohort, outputs, part: function(*pair_scores(cohort, outputs, part, decoder))

    metrics = (
        Metric("auc", "ROC AUC", ranked(class_metrics.area_under_roc)),
        Metric("average-precision", "average precision", ranked(class_metrics.precision_average)),
        *(Metric(f"hits@{k}", f"Hits@{k}", ranked(partial(link_metrics.hits_at, k))) for k in HITS),
    )
    return {metric.name: metric for metric in metrics}


@register_task(LINK)
class LinkPrediction(Task):
    """Outputs are node embeddings; edges of a client are split, and pairs of its nodes are predicted."""

    title = "which nodes are joined by an edge"
    compute_version = 2
    metrics = link_metrics_of(decoder_of("dot", 1.0))
    Settings = LinkSettings
    settings: LinkSettings
    splits_edges = True
    needs_labels = False

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        self.decoder = decoder_of(self.settings.decoder, self.settings.scale)
        self.metrics = link_metrics_of(self.decoder)

    # -- data --------------------------------------------------------------------------------------------------------

    def outputs(self, graph: Graph) -> int:
        """The width of an embedding, whatever the graph."""
        return self.settings.width

    def outputs_of_site(self, site: str, classes: int, named: bool) -> int:
        """The same, whatever labels a site has."""
        return self.settings.width

    def draw_split(self, split: Split, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """All nodes train: it is edges that are split, client by client."""
        return np.full(graph.nodes, TRAIN, dtype=np.int8)

    def client(self, number: int, graph: Graph, split: np.ndarray, seed: int) -> Client:
        """One owner's graph with its edges split."""
        return self.edge_split.client(number, graph, seed)

    @property
    def edge_split(self) -> EdgeSplit:
        """How edges are split."""
        shares = parse_split(self.settings.split)
        assert isinstance(shares, Shares)
        return EdgeSplit(shares, self.settings.disjoint)

    def example_client(self, features: int, outputs: int) -> Client:
        """A ring of nodes with chords, enough of them for every part."""
        nodes = 24
        u = np.arange(nodes)
        edges = np.concatenate([np.stack([u, (u + step) % nodes]) for step in (1, 5)], axis=1)
        edges.sort(axis=0)
        x = np.random.default_rng(0).random((nodes, features), dtype=np.float32)
        return self.client(0, Graph("example", edges, x, np.zeros(nodes, dtype=np.int64), 1), np.zeros(nodes), 0)

    def seen(self, cohort: Cohort, part: Part | None) -> Cohort:
        """The cohort with the edges over which messages pass in a part: in validation and test those of the parts before.

        Where models are used, after all, they pass over all edges.
        """
        made: Cohort = cohort.once(f"seen in {part}", partial(_seen, part=part))
        return made

    def without_test(self, client: Client) -> Client:
        """The client without its test edges and their negatives."""
        return without_part(client, "test")

    # -- learning ----------------------------------------------------------------------------------------------------

    def training_loss(self, cohort: Cohort, outputs: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """The binary cross-entropy of the supervision edges, and of as many negatives that are drawn in this step."""
        pairs, first = pairs_of_cohort(cohort), _training_rows(cohort)
        edges = pairs.edges["train"]
        others, read = pairs.free.draw(edges, draws), self.decoder.read(outputs)
        joined = F.softplus(-_logits(self.decoder, read, edges, first))
        apart = F.softplus(_logits(self.decoder, read, others, first))
        some = pairs.free.some[edges.client]  # a client whose nodes are all joined has no negatives
        each = (joined + some * apart) / (1.0 + some)
        weight = 1.0 / edges.count[edges.client]
        return (each * weight).sum(), _client_means(each.detach(), edges.client, edges.count)

    def losses(self, cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
        """Each client's mean binary cross-entropy over a part's edges and fixed negatives."""
        score, joined, owner, clients = pair_scores(cohort, outputs, part, self.decoder)
        each = F.softplus(torch.where(joined, -score, score))
        return _client_means(
            each, owner, torch.zeros(clients, device=each.device).index_add_(0, owner, torch.ones_like(each))
        )

    def rows_of(self, cohort: Cohort, part: Part) -> Tensor:
        """All nodes: any of them may be an end of a pair."""
        return cohort.nodes

    def evaluated_rows(self, cohort: Cohort) -> Sequence[Tensor]:
        """The same, once."""
        return (cohort.nodes,)

    def counts(self, cohort: Cohort, part: Part) -> Tensor:
        """A client's edges of a part."""
        return pairs_of_cohort(cohort).edges[part].count

    def mixture(self, outputs: Sequence[Tensor], weights: Tensor, owner: Tensor) -> Tensor:
        """Embeddings whose logits are the weighted mean of the models': [R, D] each -> [R, V D]."""
        return mixed_embeddings(self.settings.decoder, outputs, weights[owner])

    # -- prediction --------------------------------------------------------------------------------------------------

    def predict(self, outputs: Tensor) -> Tensor:
        """The embeddings themselves; `pair_probabilities` makes predictions of them."""
        return outputs

    def pair_probabilities(self, outputs: Tensor, pairs: Tensor) -> Tensor:
        """The probabilities of edges between nodes: outputs [n, D], pairs [2, P] -> [P]."""
        return self.decoder(outputs[pairs[0]], outputs[pairs[1]]).sigmoid()

    def prediction_rows(
        self, ids: Sequence[object], predictions: np.ndarray, names: tuple[str, ...] | None
    ) -> Iterator[list[str]]:
        """One end of a pair, and the probability of an edge."""
        yield ["source", "probability"]
        for node, chance in zip(ids, predictions[:, 0], strict=True):
            yield [str(node), f"{chance:.6g}"]

    def prediction_columns(
        self, ids: np.ndarray, predictions: np.ndarray, names: tuple[str, ...] | None
    ) -> dict[str, np.ndarray]:
        """The probability as a number."""
        return {"probability": predictions[:, 0]}


def _client_means(values: Tensor, owner: Tensor, count: Tensor) -> Tensor:
    """Each client's mean of values [P]: [M], NaN where it has none."""
    return torch.zeros_like(count).index_add_(0, owner, values) / count


def _seen(cohort: Cohort, part: Part | None) -> Cohort:
    """The cohort with other graphs, in the same rows; itself where they are the same."""
    members = [seen_client(client, part) for client in cohort.members]
    if all(one is other for one, other in zip(members, cohort.members, strict=True)):
        return cohort
    return Cohort(members, cohort.device, cohort.padding)
