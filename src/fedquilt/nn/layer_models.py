"""Networks of graph layers with weights: gcn, sage, gat, gin and gcnii; and mlp, whose layers ignore the graph."""

from __future__ import annotations

import math

from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.nn import layers
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.model import LayeredModel, Model, Output, Shapes, activate

RESIDUE, STRENGTH = 0.1, 0.5  # alpha and lambda of GCNII: the share of the first layer, and how strongly weights act


class Gcn(LayeredModel, kind="gcn"):
    """Graph convolutions (Kipf and Welling, 2017)."""

    def layer_shapes(self, inside: int) -> Shapes:
        """weight [in, H], bias [H]."""
        return {"weight": (inside, self.hidden), "bias": (self.hidden,)}

    def first(self, cohort: Cohort, w: Weights) -> Tensor:
        """A X W + b with A X computed once."""
        return layers.gcn_first(cohort, w["weight"], w["bias"])

    def second(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """A h W + b."""
        return layers.gcn(cohort, h, w["weight"], w["bias"])

    def second_training(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """A h W + b at the training nodes."""
        return layers.gcn_training(cohort, h, w["weight"], w["bias"])


class Sage(LayeredModel, kind="sage"):
    """GraphSAGE layers with mean aggregation (Hamilton et al., 2017)."""

    feature_weights = ("conv1.weight", "conv1.root")

    def layer_shapes(self, inside: int) -> Shapes:
        """weight (neighbours) and root (the node itself) [in, H], bias [H]."""
        return {"weight": (inside, self.hidden), "root": (inside, self.hidden), "bias": (self.hidden,)}

    def first(self, cohort: Cohort, w: Weights) -> Tensor:
        """mean(X) W + X R + b, where mean(X) is computed once."""
        return layers.sage_first(cohort, w["weight"], w["root"], w["bias"])

    def second(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """mean(h) W + h R + b."""
        return layers.sage(cohort, h, w["weight"], w["root"], w["bias"])

    def second_training(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """mean(h) W + h R + b at the training nodes."""
        return layers.sage_training(cohort, h, w["weight"], w["root"], w["bias"])


class Gat(LayeredModel, kind="gat"):
    """Graph attention layers (Velickovic et al., 2018) with four heads, or one head if four do not divide the width."""

    @property
    def heads(self) -> int:
        """The number of attention heads in a layer."""
        return 4 if self.hidden % 4 == 0 else 1

    def layer_shapes(self, inside: int) -> Shapes:
        """weight [in, H]; source and target [heads, H / heads]; bias [H]."""
        head = (self.heads, self.hidden // self.heads)
        return {"weight": (inside, self.hidden), "source": head, "target": head, "bias": (self.hidden,)}

    def first(self, cohort: Cohort, w: Weights) -> Tensor:
        """Attention over the features."""
        return layers.gat(cohort, cohort.x, w["weight"], w["source"], w["target"], w["bias"])

    def second(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """Attention over the hidden layer."""
        return layers.gat(cohort, h, w["weight"], w["source"], w["target"], w["bias"])


class Mlp(LayeredModel, kind="mlp"):
    """Dense layers that ignore the graph: a baseline of features alone."""

    ignores_edge_weights = "model=mlp does not read edges"

    def layer_shapes(self, inside: int) -> Shapes:
        """weight [in, H], bias [H]."""
        return {"weight": (inside, self.hidden), "bias": (self.hidden,)}

    def first(self, cohort: Cohort, w: Weights) -> Tensor:
        """X W + b."""
        return layers.linear(cohort, cohort.x, w["weight"], w["bias"])

    def second(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """h W + b."""
        return layers.linear(cohort, h, w["weight"], w["bias"])

    def second_training(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """h W + b at the training nodes."""
        return layers.linear(cohort.training, h[cohort.training.index], w["weight"], w["bias"])


class Gin(LayeredModel, kind="gin"):
    """Graph isomorphism layers (Xu et al., ICLR 2019): an MLP of two layers of the sum of a node and its neighbours.

    The sum counts neighbours where the other layers take means, so that a node's degree is seen; the node itself counts once
    (epsilon = 0). The paper has batch normalisation, whose running statistics are no weights and would not be averaged. Here
    the MLP's hidden layer is normalised node by node, as by LayerNorm without weights: sums over many neighbours stay in range.
    """

    def layer_shapes(self, inside: int) -> Shapes:
        """weight [in, H] and bias [H], then second.weight [H, H] and second.bias [H], of the MLP."""
        first: Shapes = {"weight": (inside, self.hidden), "bias": (self.hidden,)}
        return first | {"second.weight": (self.hidden, self.hidden), "second.bias": (self.hidden,)}

    def first(self, cohort: Cohort, w: Weights) -> Tensor:
        """MLP((A + I) X), where (A + I) X is computed once."""
        return layers.gin_first(cohort, w["weight"], w["bias"], w["second.weight"], w["second.bias"])

    def second(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """MLP((A + I) h)."""
        return layers.gin(cohort, h, w["weight"], w["bias"], w["second.weight"], w["second.bias"])

    def second_training(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """MLP((A + I) h) at the training nodes."""
        return layers.gin_training(cohort, h, w["weight"], w["bias"], w["second.weight"], w["second.bias"])


class Gcnii(Model, kind="gcnii"):
    """GCNII (Chen et al., ICML 2020): graph convolutions that stay near the first layer and near the identity.

    h_0 = ReLU(X W + b), which is `conv1`; layer l = 1..L, which is `conv{l+1}`, is ReLU(y (1 - b_l) + b_l y W_l) with
    y = 0.9 P h + 0.1 h_0 and b_l = log(0.5 / l + 1), the paper's numbers. It is made to be deep: try layers=8 and more.
    """

    def conv_shapes(self) -> Shapes:
        """conv1: weight [F, H], bias [H]; then a weight [H, H] for each of the graph layers."""
        out: Shapes = {"conv1.weight": (self.features, self.hidden), "conv1.bias": (self.hidden,)}
        return out | {f"conv{layer + 1}.weight": (self.hidden, self.hidden) for layer in range(1, self.layers + 1)}

    def __call__(self, cohort: Cohort, weights: Weights, dropout: Dropout | None = None) -> Output:
        """Compute logits and embeddings of every row, with dropout if given; None is for evaluation."""
        first, h = self._before_last(cohort, weights, dropout)
        z = self._layer(cohort, cohort.gcn @ h, first, weights, self.layers)
        return Output(self.classify(cohort, activate(cohort, z, dropout, self.layers), weights), z)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes: the last layer is computed only there."""
        first, h = self._before_last(cohort, weights, dropout)
        rows = cohort.training
        z = self._layer(rows, rows.gcn @ h, first[rows.index], weights, self.layers)
        return Output(self.classify(rows, activate(rows, z, dropout, self.layers), weights), z)

    def _before_last(self, cohort: Cohort, weights: Weights, dropout: Dropout | None) -> tuple[Tensor, Tensor]:
        """h_0 and the input of the last graph layer."""
        z = layers.linear(cohort, cohort.x, weights["conv1.weight"], weights["conv1.bias"])
        first = h = activate(cohort, z, dropout, 0)
        for layer in range(1, self.layers):
            h = activate(cohort, self._layer(cohort, cohort.gcn @ h, first, weights, layer), dropout, layer)
        return first, h

    def _layer(self, rows: Rows, propagated: Tensor, first: Tensor, weights: Weights, layer: int) -> Tensor:
        """One graph layer of P h, before its ReLU: [R, H] -> [R, H]."""
        strength = math.log(STRENGTH / layer + 1)
        y = (1 - RESIDUE) * propagated + RESIDUE * first
        return (1 - strength) * y + strength * rows.multiply(y, weights[f"conv{layer + 1}.weight"])
