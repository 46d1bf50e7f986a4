"""The graphs fedquilt knows by name, what they look like, and how they are usually used."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fedquilt.errors import FedquiltError, unknown
from fedquilt.graphs.protocol import Protocol

ROUTES = {
    "planetoid": "PyTorch Geometric's Planetoid",
    "amazon": "PyTorch Geometric's Amazon",
    "heterophilous": "PyTorch Geometric's HeterophilousGraphDataset",
    "wikipedia": "PyTorch Geometric's WikipediaNetwork",
    "actor": "PyTorch Geometric's Actor",
    "flickr": "PyTorch Geometric's Flickr",
    "ogb": "the ogb package (pip install 'fedquilt[ogb]')",
    "h2gcn": "H2GCN's syn-cora files, placed by you",
    "nifty": "NIFTY's credit files, placed by you",
    "generated": "generated, no file",
}


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalogue.

    Attributes:
        name: what a user types.
        description: one line.
        nodes, edges, features, classes: as published; each undirected edge counted once, before a protocol
            drops anything.
        protocol: the usual way to use it.
        route: how it is fetched, a key of `ROUTES`.
        key: what that route calls it.
        sparse: whether its features are kept sparse when fetched.
        parameters: those a name may carry, with their defaults: `syn-cora:h=0.30,r=1`. `h=all` is the graphs of all
            homophily levels side by side, of which nodes and edges are one's.
        files: the files it is sought as in the data folder, without `.npz`; `{h}` stands for a parameter.
    """

    name: str
    description: str
    nodes: int
    edges: int
    features: int
    classes: int
    protocol: Protocol
    route: str
    key: str = ""
    sparse: bool = False
    parameters: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    @property
    def fetched(self) -> str:
        """How the graph is come by, in words."""
        return ROUTES[self.route]


ALL = "all"
# The homophily levels that `h=all` stands for, in tenths: there are graphs of 0.99 as well, which are not meant.
HOMOPHILIES = tuple(f"{tenth / 10:.2f}" for tenth in range(11))


@dataclass(frozen=True)
class Choice:
    """A catalogue entry together with the parameters a user chose."""

    dataset: Dataset
    parameters: dict[str, str]

    @property
    def name(self) -> str:
        """What the choice is called when nothing is left to defaults: `syn-cora:h=all,r=1`."""
        chosen = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"{self.dataset.name}:{chosen}" if chosen else self.dataset.name

    @property
    def parts(self) -> list[Choice]:
        """The choices whose graphs this one puts side by side, in order; none where it is one graph."""
        if self.parameters.get("h") != ALL:
            return []
        return [Choice(self.dataset, self.parameters | {"h": level}) for level in HOMOPHILIES]

    @property
    def files(self) -> list[str]:
        """The names, without `.npz`, that the graph may have in the data folder, the first one preferred."""
        return [file.format(**self.parameters) for file in self.dataset.files or (self.dataset.name,)]


def _planetoid(rounds: int = 100, epochs: int = 1) -> Protocol:
    return Protocol(largest_component=True, normalise_features=True, rounds=rounds, epochs=epochs)


_RAW = Protocol()
_AUC = Protocol(metric="auc")
_ARXIV = Protocol(split=(0.05, 0.475, 0.475), rounds=200, epochs=2)
# FedHERO's five groups of nodes: three train, one validates, one tests.
_FEDHERO = Protocol(split=(0.6, 0.2, 0.2), rounds=200)
_FEDHERO_AUC = Protocol(metric="auc", split=(0.6, 0.2, 0.2), rounds=200)
_COMMUNITIES = Protocol(rounds=100, epochs=3)

_ALL = [
    Dataset(
        "patchwork",
        "ten communities in three families, for a first try",
        *(1400, 2697, 200, 6),
        _RAW,
        "generated",
        parameters={"seed": "0"},
    ),
    Dataset(
        "communities-1",
        "FED-PUB's Figure 1: 3 communities, 50 clients",
        *(1500, 408414, 32, 3),
        _COMMUNITIES,
        "generated",
        parameters={"seed": "0"},
    ),
    Dataset(
        "communities-3",
        "FED-PUB's Figure 3: 2 communities, 20 clients",
        *(600, 79543, 32, 2),
        _COMMUNITIES,
        "generated",
        parameters={"seed": "0"},
    ),
    Dataset(
        "mosaic",
        "any size: pieces of 100 nodes, to see what grows",
        *(10000, 48400, 64, 10),
        _RAW,
        "generated",
        parameters={"seed": "0", "nodes": "10000", "degree": "10", "features": "64", "classes": "10"},
    ),
    Dataset("cora", "citations, machine learning", 2708, 5278, 1433, 7, _planetoid(), "planetoid", "Cora", True),
    Dataset(
        "citeseer",
        "citations, computer science",
        *(3327, 4552, 3703, 6),
        _planetoid(),
        "planetoid",
        "CiteSeer",
        True,
    ),
    Dataset("pubmed", "citations, diabetes", 19717, 44324, 500, 3, _planetoid(), "planetoid", "PubMed", True),
    Dataset(
        "amazon-photo",
        "co-purchases, photography",
        *(7650, 119081, 745, 8),
        _planetoid(200, 2),
        "amazon",
        "Photo",
        True,
    ),
    Dataset(
        "amazon-computers",
        "co-purchases, computers",
        *(13752, 245861, 767, 10),
        _planetoid(200, 3),
        "amazon",
        "Computers",
        True,
    ),
    Dataset(
        "ogbn-arxiv",
        "citations, arXiv computer science",
        *(169343, 1157799, 128, 40),
        _ARXIV,
        "ogb",
        "ogbn-arxiv",
    ),
    Dataset("roman-empire", "words of an article", 22662, 32927, 300, 18, _RAW, "heterophilous", "Roman-empire"),
    Dataset(
        "amazon-ratings",
        "products and their ratings",
        *(24492, 93050, 300, 5),
        _RAW,
        "heterophilous",
        "Amazon-ratings",
    ),
    Dataset("minesweeper", "cells of a game board", 10000, 39402, 7, 2, _AUC, "heterophilous", "Minesweeper"),
    Dataset("tolokers", "workers who shared tasks", 11758, 519000, 10, 2, _AUC, "heterophilous", "Tolokers"),
    Dataset("questions", "users of a question site", 48921, 153540, 301, 2, _AUC, "heterophilous", "Questions"),
    Dataset(
        "squirrel",
        "Wikipedia pages on squirrels",
        *(5201, 198353, 2089, 5),
        _FEDHERO,
        "wikipedia",
        "squirrel",
        True,
    ),
    Dataset(
        "chameleon",
        "Wikipedia pages on chameleons",
        *(2277, 31371, 2325, 5),
        _FEDHERO,
        "wikipedia",
        "chameleon",
        True,
    ),
    Dataset("actor", "actors on the same pages", 7600, 26659, 932, 5, _FEDHERO, "actor", sparse=True),
    Dataset("flickr", "images with common properties", 89250, 449878, 500, 7, _FEDHERO, "flickr"),
    Dataset(
        "syn-cora",
        "synthetic, homophily h (or all), repetition r",
        *(1490, 2968, 1433, 5),
        _FEDHERO,
        "h2gcn",
        "h{h}-r{r}",
        True,
        {"h": "0.30", "r": "1"},
        ("syn-cora-h{h}-r{r}",),
    ),
    Dataset(
        "credit",
        "card holders, default or not",
        *(30000, 137377, 13, 2),
        _FEDHERO_AUC,
        "nifty",
        files=("credit", "credit-137k"),
    ),
]

CATALOGUE = {dataset.name: dataset for dataset in _ALL}


def datasets() -> list[Dataset]:
    """All graphs that can be loaded by name, in the order in which they should be listed."""
    return list(CATALOGUE.values())


def in_catalogue(name: str) -> bool:
    """Whether a name, with or without parameters, is one of the catalogue."""
    return name.partition(":")[0].lower() in CATALOGUE


def choose(name: str) -> Choice:
    """The entry and parameters that a name such as `cora` or `syn-cora:h=0.30,r=1` stands for."""
    base, _, rest = name.partition(":")
    if base.lower() not in CATALOGUE:
        raise unknown("dataset", base, CATALOGUE)
    dataset = CATALOGUE[base.lower()]
    parameters = dict(dataset.parameters)
    for piece in filter(None, rest.split(",")):
        key, _, value = piece.partition("=")
        if key not in parameters:
            allowed = ", ".join(f"{known}={default}" for known, default in dataset.parameters.items())
            hint = f"write it like {dataset.name}:{allowed}" if allowed else "it takes none"
            raise FedquiltError(f"The dataset '{dataset.name}' has no parameter '{key}'; {hint}.")
        parameters[key] = _parameter(dataset.name, key, value)
    return Choice(dataset, parameters)


def _parameter(name: str, key: str, value: str) -> str:
    """A parameter's value as file names have it: homophily with two digits, or `all`; others whole."""
    if key == "h":
        if value.lower() == ALL:
            return ALL
        if not re.fullmatch(r"\d(\.\d+)?", value) or float(value) > 1:
            raise FedquiltError(
                f"'{value}' is not a homophily for {name}; write a number from 0 to 1, such as h=0.30, or h={ALL}."
            )
        return f"{float(value):.2f}"
    if not value.isdecimal():
        raise FedquiltError(f"'{value}' is not a value for {key} of {name}; write a whole number, such as {key}=1.")
    return str(int(value))
