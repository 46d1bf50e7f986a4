"""`Dataset`, one entry of the catalogue, and `Choice`, a dataset with the values of its parameters."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.graphs.copies import CopyKind
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol

GENERATED = "generated, no file"


class RawFiles(typing.Protocol):
    """The public files that a dataset is read from; see `fedquilt.datasets.download`."""

    @property
    def folder(self) -> str:
        """The folder under `<data folder>/raw` that holds the files."""

    @property
    def description(self) -> str:
        """Where the files come from, in words."""

    def read(self, name: str, parameters: Mapping[str, str], folder: Path) -> Graph:
        """Read the graph from the files in `folder`, called `name`. Download them first if they are missing."""


def whole_number(dataset: str, key: str, value: str) -> str:
    """Check that a parameter's value is a whole number, and write it without leading zeros."""
    if not value.isdecimal():
        raise FedquiltError(f"'{value}' is not a value for {key} of {dataset}; write a whole number, such as {key}=1.")
    return str(int(value))


@dataclass(frozen=True)
class Parameter:
    """A parameter that a dataset's name may carry, such as `h` in `syn-cora:h=0.30`.

    Attributes:
        default: its value where the name does not give one.
        parse: (dataset, key, value) -> the value in its normal form; raises an error for a wrong one.
    """

    default: str
    parse: Callable[[str, str, str], str] = whole_number


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalogue. It has either `raw` files or a function that generates it.

    Attributes:
        name: what a user types.
        description: one line.
        nodes, edges, features, classes: as published; each undirected edge counted once, before a protocol drops anything.
        protocol: the defaults of a run on it.
        raw: the public files it is read from; None for a generated graph.
        generate: builds the graph from its parameters, given as whole numbers.
        sparse: whether features are stored sparse when the raw files are read.
        parameters: the parameters a name may carry, by key.
        files: the names, without `.npz`, that it may have in the data folder, the preferred one first; `{h}` stands for a
            parameter. Default: the dataset's name.
        parts: a function of the parameters. Returns the parameters of the graphs that are joined as a disjoint union; empty
            for one graph.
        copies: what equal nodes of it have in common; `load_graph` marks them (`Graph.copies`). None where it has none to
            speak of. A disjoint union marks its nodes with equal features.
        natural_clients: a function of the parameters. Returns the client of each node, [N].
        node_groups: a function of the parameters. Returns the group of similar clients of each node, [N], which orders
            figures.
    """

    name: str
    description: str
    nodes: int
    edges: int
    features: int
    classes: int
    protocol: Protocol
    raw: RawFiles | None = None
    generate: Callable[..., Graph] | None = None
    sparse: bool = False
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    parts: Callable[[Mapping[str, str]], list[dict[str, str]]] | None = None
    copies: CopyKind | None = None
    natural_clients: Callable[[Mapping[str, str]], np.ndarray] | None = None
    node_groups: Callable[[Mapping[str, str]], np.ndarray] | None = None

    @property
    def origin(self) -> str:
        """Where the graph comes from, in words."""
        return GENERATED if self.raw is None else self.raw.description

    def choose(self, parameters: str = "") -> Choice:
        """This dataset with the parameters that a name carries after the colon, such as `h=0.30,r=1`."""
        chosen = {key: parameter.default for key, parameter in self.parameters.items()}
        for piece in filter(None, parameters.split(",")):
            key, _, value = piece.partition("=")
            if key not in chosen:
                allowed = ", ".join(f"{known}={parameter.default}" for known, parameter in self.parameters.items())
                hint = f"write it like {self.name}:{allowed}" if allowed else "it takes none"
                raise FedquiltError(f"The dataset '{self.name}' has no parameter '{key}'; {hint}.")
            chosen[key] = self.parameters[key].parse(self.name, key, value)
        return Choice(self, chosen)


@dataclass(frozen=True)
class Choice:
    """A dataset together with the values of its parameters."""

    dataset: Dataset
    parameters: dict[str, str]

    @property
    def name(self) -> str:
        """The full name, with every parameter: `syn-cora:h=all,r=1`."""
        chosen = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"{self.dataset.name}:{chosen}" if chosen else self.dataset.name

    @property
    def parts(self) -> list[Choice]:
        """The choices whose graphs form this disjoint union, in order; empty for a single graph."""
        parts = self.dataset.parts(self.parameters) if self.dataset.parts else []
        return [Choice(self.dataset, part) for part in parts]

    @property
    def copies(self) -> CopyKind | None:
        """What equal nodes of the graph have in common, where it is known to have such nodes."""
        return "features" if self.parts else self.dataset.copies

    @property
    def files(self) -> list[str]:
        """The names, without `.npz`, that the graph may have in the data folder, the preferred one first."""
        return [file.format(**self.parameters) for file in self.dataset.files or (self.dataset.name,)]
