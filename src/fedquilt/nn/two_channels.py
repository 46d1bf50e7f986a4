"""A network of two channels, one of features and one of structure (FedStar).

    x_0 = X W + b                        s_0 = S W_s + b_s                 S: structure embeddings
    x_l = relu(conv_l([x_{l-1}, s_{l-1}]))    s_l = tanh(D^-1/2 (A + I) D^-1/2 s_{l-1} W_l + b_l)
    logits = relu([x_L, s_L] W_j + b_j) W_c + b_c

The structure channel reads nothing of the feature channel, so that it means the same where features differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.nn import layers
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.model import LayeredModel, Output, Shapes, activate, part
from fedquilt.nn.random_walks import Structure, structure_embeddings

STRUCTURE = "structure"  # how the names of the structure channel's weights begin


@dataclass(frozen=True)
class TwoChannels:
    """A `Network` (`fedquilt.nn.models`).

    Attributes:
        layer: makes the feature channel's graph layers, which read both channels.
        walks, degrees, structure: see `fedquilt.nn.random_walks`.
    """

    layer: LayeredModel
    walks: int
    degrees: int
    structure: Structure

    def shapes(self) -> Shapes:
        """The structure channel's weights are ``structure.``; the others are the feature channel's and the classifier's."""
        model, wide = self.layer, self.layer.hidden
        out: Shapes = {
            "projection.weight": (model.features, wide),
            "projection.bias": (wide,),
            f"{STRUCTURE}.weight": (self.walks + self.degrees, wide),
            f"{STRUCTURE}.bias": (wide,),
        }
        for number in range(1, model.layers + 1):
            out |= {f"conv{number}.{name}": shape for name, shape in model.layer_shapes(2 * wide).items()}
            out |= {f"{STRUCTURE}.conv{number}.weight": (wide, wide), f"{STRUCTURE}.conv{number}.bias": (wide,)}
        out |= {"join.weight": (2 * wide, wide), "join.bias": (wide,)}
        return out | {"classifier.weight": (wide, model.outputs), "classifier.bias": (model.outputs,)}

    def __call__(self, cohort: Cohort, weights: Weights) -> Output:
        """Compute the outputs of every row, without dropout."""
        x, s = self.before_last(cohort, weights, None)
        last = self.layer.layers
        both = torch.cat([x, s], dim=1)
        x = self.layer.second(cohort, both, part(weights, f"conv{last}."))
        s = layers.gcn(cohort, s, *self.structure_layer(weights, last))
        return self.joined(cohort, x, torch.tanh(s), weights, None)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes only (the rows of `cohort.training`), with dropout."""
        x, s = self.before_last(cohort, weights, dropout)
        last = self.layer.layers
        x = self.layer.second_training(cohort, torch.cat([x, s], dim=1), part(weights, f"conv{last}."))
        s = layers.gcn_training(cohort, s, *self.structure_layer(weights, last))
        return self.joined(cohort.training, x, torch.tanh(s), weights, dropout)

    def before_last(self, cohort: Cohort, weights: Weights, dropout: Dropout | None) -> tuple[Tensor, Tensor]:
        """Both channels after all graph layers but the last, the feature channel's ReLU and dropout applied: [R, H] each."""
        s = structure_embeddings(cohort, self.walks, self.degrees, self.structure)
        x = layers.linear(cohort, cohort.x, weights["projection.weight"], weights["projection.bias"])
        s = layers.linear(cohort, s, weights[f"{STRUCTURE}.weight"], weights[f"{STRUCTURE}.bias"])
        for number in range(1, self.layer.layers):
            both = torch.cat([x, s], dim=1)
            z = self.layer.second(cohort, both, part(weights, f"conv{number}."))
            x = activate(cohort, z, dropout, number - 1)
            s = torch.tanh(layers.gcn(cohort, s, *self.structure_layer(weights, number)))
        return x, s

    def structure_layer(self, weights: Weights, number: int) -> tuple[Tensor, Tensor]:
        """The weight and the bias of one of the structure channel's graph layers."""
        return weights[f"{STRUCTURE}.conv{number}.weight"], weights[f"{STRUCTURE}.conv{number}.bias"]

    def joined(self, rows: Rows, x: Tensor, s: Tensor, weights: Weights, dropout: Dropout | None) -> Output:
        """The classifier on both channels, x before its ReLU."""
        both = torch.cat([activate(rows, x, dropout, self.layer.layers - 1), s], dim=1)
        z = layers.linear(rows, both, weights["join.weight"], weights["join.bias"])
        h = activate(rows, z, dropout, self.layer.layers)
        return Output(layers.linear(rows, h, weights["classifier.weight"], weights["classifier.bias"]), z)
