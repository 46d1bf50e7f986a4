"""What a variational autoencoder infers at the nodes of a cohort: a draw from it, and how far it is from a prior.

At a node u of client m the posterior is q_u = N(mean_u, exp(mean_u + offset_m)), dimension by dimension, and the prior is
N(centre_m, variance). Both results come from one function with a gradient of its own, because autograd would go over all nodes'
numbers twice as often.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort


def draw_and_compare(
    cohort: Cohort, mean: Tensor, offset: Tensor, centre: Tensor, variance: float, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Return a draw mean + exp((mean + offset) / 2) noise of every node, and KL(q || prior), differentiable in the first three.

    The divergence is the mean over dimensions and over a client's nodes, summed over clients: see `gaussians.kl_diagonal`.

    Shapes: mean and noise [R, d], offset and centre [M, d] -> [R, d] and a scalar.
    """
    sample, apart = _Posterior.apply(mean, offset, centre, cohort, variance, noise)
    return sample, apart


class _Posterior(torch.autograd.Function):
    @staticmethod
    def forward(ctx, mean, offset, centre, cohort, variance, noise):  # type: ignore[no-untyped-def]
        deviation = cohort.add(mean, offset).mul_(0.5).exp_()
        around = deviation * noise
        gap, squares = cohort.add(mean, -centre), deviation.square_()
        each = torch.addcmul(squares, gap, gap).sum(1, keepdim=True).div_(variance).sub_(mean.sum(1, keepdim=True))
        width = mean.shape[1]
        apart = cohort.node_mean(each).sum() / width - offset.sum() / width
        ctx.save_for_backward(around, gap, squares)
        ctx.cohort, ctx.variance = cohort, variance
        return mean + around, 0.5 * (apart + cohort.clients * (math.log(variance) - 1.0))

    @staticmethod
    def backward(ctx, to_sample: Tensor, to_apart: Tensor):  # type: ignore[no-untyped-def]
        around, gap, squares = ctx.saved_tensors
        cohort, variance = ctx.cohort, ctx.variance
        share = cohort.once("share of a node", _share) * (to_apart / (variance * gap.shape[1]))  # [R, 1]
        to_logvar = (squares - variance).mul_(0.5 * share).addcmul_(to_sample, around, value=0.5)
        to_gap = gap * share
        to_offset, to_centre = _client_sums(cohort, to_logvar), _client_sums(cohort, to_gap).neg_()
        return to_logvar.add_(to_sample).add_(to_gap), to_offset, to_centre, None, None, None


def _share(cohort: Cohort) -> Tensor:
    """[R, 1]: one over the number of the client's nodes, zero for padding."""
    real = cohort.position < cohort.node_count[cohort.client]
    return torch.where(real, 1.0 / cohort.node_count[cohort.client], 0.0).unsqueeze(1)


def _client_sums(cohort: Cohort, rows: Tensor) -> Tensor:
    """[R, d] -> [M, d]."""
    if cohort.length is not None:
        return rows.view(cohort.clients, cohort.length, -1).sum(1)
    return rows.new_zeros(cohort.clients, rows.shape[1]).index_add_(0, cohort.client, rows)
