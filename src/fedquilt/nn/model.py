"""What a model over a cohort is; every client has its own weights. `fedquilt.nn.models` has the models themselves.

A model declares the names and shapes of its weights and computes outputs from a cohort and weights. It holds no state. Weights
are dicts of stacked tensors, e.g. ``conv1.weight`` [M, F, H]. Initially matrices are Glorot and biases are zero.

Names mean the same in every model, so that a method can tell weights apart: ``conv1`` reads the features, ``conv1``, ``conv2``
and so on make a representation of a node, and ``classifier`` turns it into outputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.common.random_streams import torch_stream
from fedquilt.nn import layers
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Output:
    """A model's outputs for every row: the classifier's logits [R, C] and the last graph layer's output before its ReLU."""

    logits: Tensor
    embedding: Tensor


class Network(Protocol):
    """The interface of a network: the shapes of its weights by name, and its outputs for a cohort."""

    def shapes(self) -> Shapes:
        """The shape of every weight by name, without the leading client axis."""

    def __call__(self, cohort: Cohort, weights: Weights) -> Output:
        """Compute the outputs of every row, without dropout."""

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes only (the rows of `cohort.training`), with dropout."""


@dataclass(frozen=True)
class Model(ABC):
    """A graph neural network with a linear classifier. A subclass with a `kind` is known by it.

    Attributes:
        features, hidden, outputs: widths.
        layers: how many graph layers; of a model that propagates without weights, how many steps.
        ignores_edge_weights: why weights of edges change nothing, as the end of a sentence; empty where they are used.
        feature_weights: the weights whose first axis is the features.
    """

    features: int
    hidden: int
    outputs: int
    layers: int = 2

    kinds: ClassVar[dict[str, type[Model]]] = {}
    kind: ClassVar[str]
    ignores_edge_weights: ClassVar[str] = ""
    feature_weights: ClassVar[tuple[str, ...]] = ("conv1.weight",)

    def __init_subclass__(cls, kind: str = "", **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if kind:
            cls.kind = kind
            Model.kinds[kind] = cls

    @abstractmethod
    def conv_shapes(self) -> Shapes:
        """The shapes of all weights but the classifier's, by names that begin with conv."""

    @abstractmethod
    def __call__(self, cohort: Cohort, weights: Weights, dropout: Dropout | None = None) -> Output:
        """Compute logits and embeddings of every row, with dropout if given; None is for evaluation."""

    @abstractmethod
    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes only (the rows of `cohort.training`), which costs less."""

    def shapes(self) -> Shapes:
        """The shape of every weight of the model by name, without the leading client axis."""
        classifier = {"classifier.weight": (self.hidden, self.outputs), "classifier.bias": (self.outputs,)}
        return self.conv_shapes() | classifier

    def classify(self, rows: Rows, h: Tensor, weights: Weights) -> Tensor:
        """The linear classifier: [R, H] -> [R, C]."""
        return layers.linear(rows, h, weights["classifier.weight"], weights["classifier.bias"])


class LayeredModel(Model):
    """Graph layers with ReLU and dropout after each, then the classifier."""

    @abstractmethod
    def layer_shapes(self, inside: int) -> Shapes:
        """The shapes of the weights of one graph layer from width `inside` to `hidden`."""

    @abstractmethod
    def first(self, cohort: Cohort, w: Weights) -> Tensor:
        """The first graph layer, on the features."""

    @abstractmethod
    def second(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """The second graph layer, and each one after it."""

    def second_training(self, cohort: Cohort, h: Tensor, w: Weights) -> Tensor:
        """The same at the training nodes only, `cohort.training`."""
        return self.second(cohort, h, w)[cohort.training.index]

    def conv_shapes(self) -> Shapes:
        """The graph layers' weights, as conv1, conv2 and so on."""
        out = {f"conv1.{name}": shape for name, shape in self.layer_shapes(self.features).items()}
        for number in range(2, self.layers + 1):
            out |= {f"conv{number}.{name}": shape for name, shape in self.layer_shapes(self.hidden).items()}
        return out

    def __call__(self, cohort: Cohort, weights: Weights, dropout: Dropout | None = None) -> Output:
        """Compute logits and embeddings of every row, with dropout if given; None is for evaluation."""
        z = self._before_last(cohort, weights, dropout)
        if self.layers > 1:
            z = self.second(cohort, activate(cohort, z, dropout, self.layers - 2), part(weights, f"conv{self.layers}."))
        return self._last(cohort, z, weights, dropout)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes only (the rows of `cohort.training`), which costs less."""
        z = self._before_last(cohort, weights, dropout)
        if self.layers > 1:
            h = activate(cohort, z, dropout, self.layers - 2)
            z = self.second_training(cohort, h, part(weights, f"conv{self.layers}."))
        else:
            z = z[cohort.training.index]
        return self._last(cohort.training, z, weights, dropout)

    def _before_last(self, cohort: Cohort, weights: Weights, dropout: Dropout | None) -> Tensor:
        """The output of all graph layers but the last, before the ReLU; of the only one where there is one."""
        z = self.first(cohort, part(weights, "conv1."))
        for number in range(2, self.layers):
            z = self.second(cohort, activate(cohort, z, dropout, number - 2), part(weights, f"conv{number}."))
        return z

    def _last(self, rows: Rows, z: Tensor, weights: Weights, dropout: Dropout | None) -> Output:
        return Output(self.classify(rows, activate(rows, z, dropout, self.layers - 1), weights), z)


def common_start(shapes: Shapes, seed: int, clients: int, device: torch.device) -> Weights:
    """Draw initial weights from the seed, the same for every client, stacked [M, ...]: Glorot matrices, zero vectors."""
    stream = torch_stream(seed, "model")
    weights: Weights = {}
    for name, shape in shapes.items():
        one = torch.zeros(shape)
        if len(shape) > 1:
            bound = math.sqrt(6.0 / (shape[-2] + shape[-1]))
            one = (torch.rand(shape, generator=stream) * 2 - 1) * bound
        weights[name] = one.unsqueeze(0).repeat(clients, *[1] * len(shape)).to(device)
    return weights


def part(weights: Weights, prefix: str) -> Weights:
    """Select the weights whose names start with `prefix`, and remove it from their names."""
    return {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}


def activate(rows: Rows, z: Tensor, dropout: Dropout | None, layer: int) -> Tensor:
    """Apply ReLU, and dropout if it is not None: [R, H] -> [R, H]."""
    return torch.relu(z) if dropout is None else dropout(rows, z, layer)


def matrices(shapes: Shapes) -> Sequence[str]:
    """The names of the weight matrices (not the biases)."""
    return [name for name, shape in shapes.items() if len(shape) > 1]
