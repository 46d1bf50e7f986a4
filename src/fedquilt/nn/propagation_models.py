"""Networks that propagate without weights, over several steps: sgc, appnp and gamlp.

`layers` is K, the number of steps. P is the GCN operator D^-1/2 (A + I) D^-1/2, in which edge weights count.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.hops import hops_of
from fedquilt.nn.layers import SLOPE, Weights, linear
from fedquilt.nn.model import Model, Output, Shapes, activate

RESTART = 0.1  # the share of a node's own prediction in every step of APPNP; the paper's


class Sgc(Model, kind="sgc"):
    """SGC (Wu et al., ICML 2019): P^K X times weights, without anything that is not linear.

    The weights are a product, `conv1` times `classifier` with dropout between them, where the paper has one matrix: it computes
    the same functions, and has a representation [R, H] that methods can share or compare. `embedding` is that representation.
    `fedquilt.nn.hops` says what memory P^K X takes.
    """

    def conv_shapes(self) -> Shapes:
        """weight [F, H], bias [H]."""
        return {"conv1.weight": (self.features, self.hidden), "conv1.bias": (self.hidden,)}

    def __call__(self, cohort: Cohort, weights: Weights, dropout: Dropout | None = None) -> Output:
        """Compute logits and embeddings of every row, with dropout if given; None is for evaluation."""
        (product,) = hops_of(cohort, self.layers, only_last=True) @ weights["conv1.weight"]
        return self._of(cohort, product, weights, dropout)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes, which need no other rows where P^K X is constant."""
        (product,) = hops_of(cohort, self.layers, only_last=True).at_training(weights["conv1.weight"])
        return self._of(cohort.training, product, weights, dropout)

    def _of(self, rows: Rows, product: Tensor, weights: Weights, dropout: Dropout | None) -> Output:
        z = rows.add(product, weights["conv1.bias"])
        h = z * dropout.mask(rows, self.hidden, 0) if dropout is not None and dropout.rate else z
        return Output(self.classify(rows, h, weights), z)


class Appnp(Model, kind="appnp"):
    """APPNP (Gasteiger et al., ICLR 2019): an MLP of two layers, whose outputs are propagated K times with a restart.

    z_0 = MLP(X) and z_k = 0.9 P z_{k-1} + 0.1 z_0. What is propagated has as many columns as there are classes. The paper drops
    entries of P too; here dropout is after the hidden layer alone. `embedding` is the hidden layer before its ReLU, at which
    nothing is propagated yet.
    """

    def conv_shapes(self) -> Shapes:
        """weight [F, H], bias [H]: the MLP's first layer; the classifier is its second."""
        return {"conv1.weight": (self.features, self.hidden), "conv1.bias": (self.hidden,)}

    def __call__(self, cohort: Cohort, weights: Weights, dropout: Dropout | None = None) -> Output:
        """Compute logits and embeddings of every row, with dropout if given; None is for evaluation."""
        hidden, own, before = self._before_last(cohort, weights, dropout)
        return Output((1 - RESTART) * (cohort.gcn @ before) + RESTART * own, hidden)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes: the last step is made only there."""
        hidden, own, before = self._before_last(cohort, weights, dropout)
        rows = cohort.training
        logits = (1 - RESTART) * (rows.gcn @ before) + RESTART * own[rows.index]
        return Output(logits, hidden[rows.index])

    def _before_last(self, cohort: Cohort, weights: Weights, dropout: Dropout | None) -> tuple[Tensor, Tensor, Tensor]:
        """The hidden layer, z_0 and z_{K-1}, at every row."""
        hidden = linear(cohort, cohort.x, weights["conv1.weight"], weights["conv1.bias"])
        own = z = self.classify(cohort, activate(cohort, hidden, dropout, 0), weights)
        for _ in range(self.layers - 1):
            z = (1 - RESTART) * (cohort.gcn @ z) + RESTART * own
        return hidden, own, z


class Gamlp(Model, kind="gamlp"):
    """GAMLP with recursive attention (Zhang et al., KDD 2022): an MLP of X, P X, .., P^K X, mixed anew for every node.

    Hop k of node v scores s_k = LeakyReLU_0.2(own . x_k + past . y_k), where x_k is v's row of P^k X and y_k the mix of x_0 to
    x_{k-1} by the softmax of their scores (y_0 = x_0). The softmax of all scores mixes the hops. The mix is linear in the
    features, so that each hop is multiplied by the MLP's first layer before it is mixed, and no R x F matrix is made in a step.
    `embedding` is the MLP's hidden layer before its ReLU. `fedquilt.nn.hops` says what memory the hops take.
    """

    feature_weights = ("conv1.weight", "conv1.attention")

    def conv_shapes(self) -> Shapes:
        """weight [F, H], bias [H]; attention [F, 2], the vectors `own` and `past`."""
        return {
            "conv1.weight": (self.features, self.hidden),
            "conv1.bias": (self.hidden,),
            "conv1.attention": (self.features, 2),
        }

    def __call__(self, cohort: Cohort, weights: Weights, dropout: Dropout | None = None) -> Output:
        """Compute logits and embeddings of every row, with dropout if given; None is for evaluation."""
        return self._of(cohort, hops_of(cohort, self.layers) @ _side_by_side(weights), weights, dropout)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes, which need no other rows where P^k X is constant."""
        products = hops_of(cohort, self.layers).at_training(_side_by_side(weights))
        return self._of(cohort.training, products, weights, dropout)

    def _of(self, rows: Rows, products: list[Tensor], weights: Weights, dropout: Dropout | None) -> Output:
        """From the hops' products with the first layer and the attention, [R, H + 2] each."""
        hidden, own, past = zip(*(product.split([self.hidden, 1, 1], dim=1) for product in products), strict=True)
        shares = recursive_attention(own, past)
        mixed = torch.stack([share * z for share, z in zip(shares.split(1, dim=1), hidden, strict=True)]).sum(0)
        z = rows.add(mixed, weights["conv1.bias"])
        return Output(self.classify(rows, activate(rows, z, dropout, 0), weights), z)


def _side_by_side(weights: Weights) -> Tensor:
    """The first layer and the attention as one matrix, [M, F, H + 2]: the features are read once."""
    return torch.cat([weights["conv1.weight"], weights["conv1.attention"]], dim=2)


def recursive_attention(own: tuple[Tensor, ...], past: tuple[Tensor, ...]) -> Tensor:
    """The share of each hop in the mix, [R, K + 1], from own . x_k and past . x_k for k = 0..K, [R, 1] each."""
    scores = torch.nn.functional.leaky_relu(own[0] + past[0], SLOPE)
    for hop in range(1, len(own)):
        before = (torch.softmax(scores, dim=1) * torch.cat(past[:hop], dim=1)).sum(1, keepdim=True)
        scores = torch.cat([scores, torch.nn.functional.leaky_relu(own[hop] + before, SLOPE)], dim=1)
    return torch.softmax(scores, dim=1)
