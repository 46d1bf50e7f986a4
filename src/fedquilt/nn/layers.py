"""Layers over a cohort; every client has its own weights.

Shapes: R rows (all clients' nodes), M clients; h [R, in], weight [M, in, out], bias [M, out] -> [R, out]. Each layer
equals PyTorch Geometric's layer of the same name run client by client, with the edge weights of each client over their mean
(attention takes weights in its own way, see `gat`). The constant input is given as a `FeatureMatrix` instead of `h`; it is
propagated once for the whole training.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.features import FeatureMatrix
from fedquilt.cohort.rows import Rows

Input = Tensor | FeatureMatrix
Weights = dict[str, Tensor]
SLOPE = 0.2  # of graph attention's LeakyReLU


def _times(rows: Rows, h: Input, weight: Tensor) -> Tensor:
    return h @ weight if isinstance(h, FeatureMatrix) else rows.multiply(h, weight)


def linear(rows: Rows, h: Input, weight: Tensor, bias: Tensor) -> Tensor:
    """h W + b."""
    return rows.add(_times(rows, h, weight), bias)


def gcn(cohort: Cohort, h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 h W + b (Kipf and Welling, 2017)."""
    return cohort.add(cohort.gcn @ cohort.multiply(h, weight), bias)


def gcn_training(cohort: Cohort, h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute `gcn` at the training nodes only, as (A h) W: the product with W has T rows. Returns [T, out]."""
    return linear(cohort.training, cohort.training.gcn @ h, weight, bias)


def gcn_first(cohort: Cohort, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute `gcn` of the features as (D^-1/2 (A + I) D^-1/2 X) W + b; the left factor is constant and computed once."""
    return linear(cohort, cohort.smoothed, weight, bias)


def sage(cohort: Cohort, h: Tensor, weight: Tensor, root: Tensor, bias: Tensor) -> Tensor:
    """mean over neighbours of h times `weight`, plus h times `root`, plus b (Hamilton et al., 2017)."""
    return cohort.add(cohort.mean @ cohort.multiply(h, weight) + cohort.multiply(h, root), bias)


def sage_training(cohort: Cohort, h: Tensor, weight: Tensor, root: Tensor, bias: Tensor) -> Tensor:
    """Compute `sage` at the training nodes only: [T, out]."""
    rows = cohort.training
    return rows.add(rows.multiply(rows.mean @ h, weight) + rows.multiply(h[rows.index], root), bias)


def sage_first(cohort: Cohort, weight: Tensor, root: Tensor, bias: Tensor) -> Tensor:
    """Compute `sage` of the features, whose neighbour means are constant and computed once."""
    return cohort.add(cohort.mean_x @ weight + cohort.x @ root, bias)


def gin(cohort: Cohort, h: Tensor, weight: Tensor, bias: Tensor, second_weight: Tensor, second_bias: Tensor) -> Tensor:
    """relu(norm((A + I) h W + b)) W' + b', an MLP of the sum of a node and its neighbours (Xu et al., 2019); epsilon is 0."""
    return _gin_rest(cohort, cohort.sums @ cohort.multiply(h, weight), bias, second_weight, second_bias)


def gin_training(
    cohort: Cohort, h: Tensor, weight: Tensor, bias: Tensor, second_weight: Tensor, second_bias: Tensor
) -> Tensor:
    """Compute `gin` at the training nodes only: [T, out]."""
    rows = cohort.training
    return _gin_rest(rows, rows.multiply(rows.sums @ h, weight), bias, second_weight, second_bias)


def gin_first(cohort: Cohort, weight: Tensor, bias: Tensor, second_weight: Tensor, second_bias: Tensor) -> Tensor:
    """Compute `gin` of the features, whose sums over neighbours are constant and computed once."""
    return _gin_rest(cohort, cohort.sum_x @ weight, bias, second_weight, second_bias)


def _gin_rest(rows: Rows, product: Tensor, bias: Tensor, second_weight: Tensor, second_bias: Tensor) -> Tensor:
    z = rows.add(product, bias)
    return linear(rows, torch.relu(torch.nn.functional.layer_norm(z, z.shape[1:])), second_weight, second_bias)


def gat(cohort: Cohort, h: Input, weight: Tensor, source: Tensor, target: Tensor, bias: Tensor) -> Tensor:
    """Graph attention (Velickovic et al., 2018) with heads concatenated and self-loops.

    e_uv = LeakyReLU_0.2(source . W h_u + target . W h_v), softmax over the neighbours u of v and v itself. Where edges have
    weights, a neighbour's share is proportional to w_uv exp(e_uv), with one for v itself.

    Shapes: weight [M, in, heads * out]; source, target [M, heads, out]; bias [M, heads * out].
    """
    heads, out = source.shape[1:]
    z = _times(cohort, h, weight).view(cohort.rows, heads, out)
    to_others = (z * source[cohort.client]).sum(-1)
    to_self = (z * target[cohort.client]).sum(-1)
    u, v = cohort.edges
    score = torch.nn.functional.leaky_relu(to_others[u] + to_self[v], SLOPE)
    if cohort.edge_weights is not None:
        score = score + cohort.edge_weights.log().unsqueeze(1)
    highest = torch.full((cohort.rows, heads), -torch.inf, device=z.device).scatter_reduce(
        0, v.unsqueeze(1).expand(-1, heads), score.detach(), "amax"
    )
    raised = torch.exp(score - highest[v])
    total = torch.zeros(cohort.rows, heads, device=z.device).index_add(0, v, raised)
    share = raised / total[v]
    mixed = torch.zeros_like(z).index_add(0, v, share.unsqueeze(-1) * z[u])
    return cohort.add(mixed.reshape(cohort.rows, heads * out), bias)


def masked(weights: Weights, offsets: Weights) -> Weights:
    """Apply private masks to the weights: W * (1 + offset) for a weight that has a mask, else W.

    A mask is stored as its offset from one; see `fedquilt.methods.fedpub`.
    """
    return weights | {name: torch.addcmul(weights[name], weights[name], offset) for name, offset in offsets.items()}
