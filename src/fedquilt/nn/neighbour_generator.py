"""NeighGen: a generator of a node's missing neighbours (Zhang et al., NeurIPS 2021), over a cohort.

Two GraphSAGE layers encode a node; from that a linear layer predicts how many neighbours are missing, and another one gives
`generated` codes of D numbers. A code times the basis [D, F], which is learned too, is the features of a generated neighbour.
The features themselves are never written out: distances to real ones are computed by the basis's Gram matrix, and what a layer
makes of them by the basis times the layer's weights. So a generated neighbour takes D numbers, not F.

It learns on an impaired graph: some nodes are hidden, and it predicts for the others how many of their neighbours were, and
their features. Losses are means over a client's nodes. Distances are relative to the mean square of the client's features:
generating zeros has the loss one.

Memory: O(R g D) for R nodes and g neighbours of each, and D F for the basis of each client.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, client_keys
from fedquilt.cohort.features import FeatureMatrix, as_scipy
from fedquilt.cohort.rows import Rows
from fedquilt.cohort.sparse import SparseMatrix
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Shapes
from fedquilt.nn.node_sample import NodeSample

HIDE_LAYER = 50  # of the clients' random numbers
CODES, BASIS = "codes.", "basis"


@dataclass(frozen=True)
class Generated:
    """Generated neighbours of each row: codes [R, g, D], zero beyond their number; and the number [R] float32."""

    codes: Tensor
    count: Tensor


@dataclass(frozen=True)
class Impaired:
    """The graph without the hidden nodes.

    Attributes:
        mean: the mean over neighbours that are left, [R, R]. mean_x: that of the features.
        kept: [K] the rows that are left. missing: [K] how many of its neighbours each lacks, at most g.
        damaged: [Q] those that lack some. hidden: [Q, g] rows of their hidden neighbours. real: [Q, g] which of these are.
    """

    mean: SparseMatrix
    mean_x: FeatureMatrix
    kept: Tensor
    missing: Tensor
    damaged: Tensor
    hidden: Tensor
    real: Tensor


def generator_shapes(features: int, width: int, code: int, generated: int) -> Shapes:
    """The generator's weights by name. The basis has D = code + 1 rows: a code's last number is one, for a bias."""
    return {
        "encoder1.weight": (features, width),
        "encoder1.root": (features, width),
        "encoder1.bias": (width,),
        "encoder2.weight": (width, width),
        "encoder2.root": (width, width),
        "encoder2.bias": (width,),
        "number.weight": (width, 1),
        "number.bias": (1,),
        CODES + "weight": (width, generated * code),
        CODES + "bias": (generated * code,),
        BASIS: (code + 1, features),
    }


def impair(cohort: Cohort, seed: int, share: float, generated: int, number: int) -> Impaired:
    """Hide a share of each client's nodes, the same ones in any cohort, others for another `number`; computed once."""
    name = ("impaired", seed, share, generated, number)
    found: Impaired = cohort.once(name, lambda c: _impair(c, seed, share, generated, number))
    return found


def _impair(cohort: Cohort, seed: int, share: float, generated: int, number: int) -> Impaired:
    words = Draws(client_keys(seed, cohort), number).words(cohort, 1, HIDE_LAYER)[:, 0].cpu().numpy()[cohort.taken]
    owner = np.repeat(np.arange(cohort.clients), cohort.sizes)
    order = np.lexsort((words, owner))
    place = np.arange(order.size) - np.repeat(np.cumsum(cohort.sizes) - cohort.sizes, cohort.sizes)
    many = np.repeat((share * np.asarray(cohort.sizes)).astype(np.int64), cohort.sizes)
    hides = np.zeros(cohort.rows, dtype=bool)
    hides[cohort.taken[order[place < many]]] = True
    kept = cohort.taken[~hides[cohort.taken]]
    left = sp.diags((~hides).astype(np.float32))
    whole = as_scipy(cohort.mean)
    rest = sp.csr_matrix(left @ whole @ left)
    rest.eliminate_zeros()
    sums = np.asarray(rest.sum(1)).ravel()
    mean = SparseMatrix(sp.csr_matrix(sp.diags(1.0 / np.where(sums > 0, sums, 1.0)).astype(np.float32) @ rest))
    mean = mean.to(cohort.device)
    lost = sp.csr_matrix(whole[kept] @ sp.diags(hides.astype(np.float32)))
    lost.eliminate_zeros()
    lost.sort_indices()
    missing = np.minimum(np.diff(lost.indptr), generated)
    damaged = np.flatnonzero(missing)
    column = np.arange(generated)
    real = column < missing[damaged, None]
    at = np.minimum(lost.indptr[damaged, None] + column, max(0, lost.nnz - 1))
    hidden = lost.indices[at] if lost.nnz else np.zeros(real.shape, dtype=np.int64)

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(cohort.device)

    return Impaired(
        mean=mean,
        mean_x=FeatureMatrix(cohort, [client.graph.x for client in cohort.members], mean),
        kept=tensor(kept),
        missing=tensor(missing.astype(np.float32)),
        damaged=tensor(kept[damaged]),
        hidden=tensor(hidden.astype(np.int64)),
        real=tensor(real),
    )


def encode(cohort: Cohort, w: Weights, mean: SparseMatrix, mean_x: FeatureMatrix) -> Tensor:
    """Two GraphSAGE layers over a graph with these means, with a ReLU between them: [R, width]."""
    first = cohort.add(mean_x @ w["encoder1.weight"] + cohort.x @ w["encoder1.root"], w["encoder1.bias"])
    h = torch.relu(first)
    second = mean @ cohort.multiply(h, w["encoder2.weight"]) + cohort.multiply(h, w["encoder2.root"])
    return cohort.add(second, w["encoder2.bias"])


def numbers(rows: Rows, w: Weights, z: Tensor) -> Tensor:
    """How many neighbours are missing, [R], from encoded nodes z; above zero."""
    return F.softplus(rows.add(rows.multiply(z, w["number.weight"]), w["number.bias"])).squeeze(1)


def codes(rows: Rows, w: Weights, z: Tensor) -> Tensor:
    """The codes of generated neighbours, the last number of each one: [R, width] -> [R, g, D]."""
    return _with_one(torch.tanh(rows.add(rows.multiply(z, w[CODES + "weight"]), w[CODES + "bias"])), w)


def _with_one(flat: Tensor, w: Weights) -> Tensor:
    """Codes [..., g (D - 1)] as [..., g, D] with a one at the end of each."""
    found = flat.unflatten(-1, (-1, w[BASIS].shape[1] - 1))
    return F.pad(found, (0, 1), value=1.0)


def generate(cohort: Cohort, w: Weights) -> Generated:
    """Mend the graph: each node's generated neighbours, their number rounded and at most g."""
    z = encode(cohort, w, cohort.mean, cohort.mean_x)
    found = codes(cohort, w, z)
    count = numbers(cohort, w, z).round().clamp_max(found.shape[1]).detach()
    exists = torch.arange(found.shape[1], device=count.device) < count.unsqueeze(1)
    return Generated(torch.where(exists.unsqueeze(2), found, 0.0), count)


def square_mean(cohort: Cohort) -> Tensor:
    """[M] the mean over each client's nodes of the square of its features' norm; one where all are zero. Computed once."""

    def compute(of: Cohort) -> Tensor:
        total = torch.zeros(of.clients, device=of.device).index_add_(0, of.client, squares(of))
        found = total / of.node_count
        return torch.where(found > 0, found, 1.0)

    scale: Tensor = cohort.once("mean square of features", compute)
    return scale


def squares(cohort: Cohort) -> Tensor:
    """[R] the square of the norm of each row's features; computed once."""

    def compute(of: Cohort) -> Tensor:
        parts = [client.graph.x for client in of.members]
        each = [np.square(x).sum(1) if isinstance(x, np.ndarray) else x.multiply(x).sum(1) for x in parts]
        return of.rows_of([torch.from_numpy(np.asarray(one, dtype=np.float32).ravel()) for one in each], 0.0)

    found: Tensor = cohort.once("squares of features", compute)
    return found


@dataclass(frozen=True)
class Losses:
    """Each client's losses [M]: of the number of missing neighbours, and of their features; and the correlation between the
    predicted number and the true one over its nodes."""

    number: Tensor
    features: Tensor
    correlation: Tensor


def local_losses(cohort: Cohort, w: Weights, graph: Impaired, noise: Tensor | None = None) -> Losses:
    """What the generator gets wrong on the impaired graph; `noise` [R, width] is added to encoded nodes before codes."""
    z = encode(cohort, w, graph.mean, graph.mean_x)
    said = numbers(cohort, w, z)[graph.kept]
    number = _client_mean(cohort, F.smooth_l1_loss(said, graph.missing, reduction="none"), graph.kept)
    made = codes(cohort, w, z if noise is None else z + noise)
    gram = w[BASIS] @ w[BASIS].transpose(1, 2)
    length = torch.stack([(cohort.multiply(made[:, p], gram) * made[:, p]).sum(1) for p in range(made.shape[1])], 1)
    seen = cohort.x @ w[BASIS].transpose(1, 2)  # what real features and each row of the basis have in common
    at = graph.damaged
    cross = made[at] @ seen[graph.hidden].transpose(1, 2)
    apart = length[at].unsqueeze(2) - 2.0 * cross + squares(cohort)[graph.hidden].unsqueeze(1)
    nearest = apart.masked_fill(~graph.real.unsqueeze(1), torch.inf).amin(2)
    each = torch.where(graph.real, nearest, 0.0).sum(1) / graph.real.sum(1)
    features = _client_mean(cohort, each, at) / square_mean(cohort)
    return Losses(number, features, _correlation(cohort, said.detach(), graph))


def peer_loss(cohort: Cohort, peer: Weights, z: Tensor, real: Tensor, sample: NodeSample) -> Tensor:
    """[M] how far what other clients' generators make of their nodes is from the nearest of one's own, relative as above.

    Args:
        peer: for each client another one's codes and basis. z, real: that one's encoded nodes [M, S, width], and which are.
        sample: one's own nodes among which the nearest is.
    """
    flat = torch.tanh(torch.baddbmm(peer[CODES + "bias"].unsqueeze(1), z, peer[CODES + "weight"]))
    made = _with_one(flat, peer)
    generated = made.shape[2]
    made = made.flatten(1, 2)
    basis = peer[BASIS]
    length = ((made @ (basis @ basis.transpose(1, 2))) * made).sum(2, keepdim=True)
    seen = (cohort.x @ basis.transpose(1, 2))[sample.index]
    apart = length - 2.0 * made @ seen.transpose(1, 2) + squares(cohort)[sample.index].unsqueeze(1)
    nearest = apart.masked_fill(~sample.real.unsqueeze(1), torch.inf).amin(2)
    counted = real.repeat_interleave(generated, dim=1)
    total = torch.where(counted, nearest, 0.0).sum(1) / counted.sum(1).clamp_min(1)
    return total / square_mean(cohort)


def _client_mean(cohort: Cohort, values: Tensor, index: Tensor) -> Tensor:
    """The mean over each client's rows `index`; zero where it has none."""
    owner = cohort.client[index]
    total = torch.zeros(cohort.clients, device=values.device).index_add(0, owner, values)
    many = torch.zeros(cohort.clients, device=values.device).index_add(0, owner, torch.ones_like(values))
    return total / many.clamp_min(1.0)


def _correlation(cohort: Cohort, said: Tensor, graph: Impaired) -> Tensor:
    """Pearson's correlation over each client's kept nodes, [M]; zero where either does not vary."""
    owner = cohort.client[graph.kept]
    one, two = (v - _client_mean(cohort, v, graph.kept)[owner] for v in (said, graph.missing))
    both, first, second = (_client_mean(cohort, v, graph.kept) for v in (one * two, one * one, two * two))
    return both / (first * second).sqrt().clamp_min(1e-12)
