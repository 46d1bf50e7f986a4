"""Predictions from a site's own personal model, for its graph as it was or as it is now."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort import Client, Cohort
from fedquilt.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.export.conversion import NoNetworkError, has_constants, module_of_personal
from fedquilt.export.personal import Personal
from fedquilt.graphs import Graph, load_graph
from fedquilt.graphs.prepare import normalise
from fedquilt.graphs.split import NONE
from fedquilt.runs.atomic import write_text
from fedquilt.sites.config import SiteConfig, load_site_graph, site_client
from fedquilt.sites.state import SiteState

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says about every node of a graph.

    Attributes:
        ids: [n] the nodes' names, or their positions where they have none.
        classes: what the C classes are called, or their numbers.
        probabilities: [n, C] float32.
    """

    ids: np.ndarray
    classes: tuple[str, ...]
    probabilities: np.ndarray

    @property
    def best(self) -> np.ndarray:
        """[n] the number of each node's most likely class."""
        return self.probabilities.argmax(1)

    def rows(self) -> Iterator[list[str]]:
        """The heading, then a row a node: its id, its class, and the probability of each class."""
        yield ["id", "class", *(f"p_{name}" for name in self.classes)]
        for node, best, chances in zip(self.ids, self.best, self.probabilities, strict=True):
            yield [str(node), self.classes[best], *(f"{chance:.6g}" for chance in chances)]

    def write(self, path: Path) -> None:
        """As a csv file, which appears complete or not at all."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.rows())
        try:
            write_text(path, text.getvalue())
        except OSError as error:
            raise FedquiltError(f"{path} cannot be written: {error.strerror}; choose another --out.") from error


def predict(site: SiteConfig, graph: str | os.PathLike[str] | Graph | Data | None = None) -> Predictions:
    """What the site's model says about the nodes of its graph, or of another one, such as the same with nodes added since.

    Args:
        site: what `read_site` gave.
        graph: a path, a `Graph` or PyTorch Geometric's `Data`, with the features that the model was trained on; labels are not
            needed. None: the site's own.
    """
    personal = personal_of(site)
    if isinstance(graph, str):
        graph = Path(graph)  # a file, whatever it is called, and no name of a dataset
    asked = load_site_graph(site) if graph is None else load_graph(graph, labelled=False)[0]
    check_fits(asked, personal)
    probabilities = logits_of(personal, asked, pick_device(site.device)).softmax(1).cpu().numpy()
    if not np.isfinite(probabilities).all():
        raise FedquiltError(
            f"The model of site '{site.name}' gives no finite numbers; train it again, with a smaller lr."
        )
    names = personal.class_names or tuple(map(str, range(personal.method.task.classes)))
    return Predictions(np.arange(asked.nodes) if asked.ids is None else asked.ids, names, probabilities)


def personal_of(site: SiteConfig) -> Personal:
    """The site's personal model: of the runs it took part in, that of the one it finished last (or is in, before any is)."""
    weights, facts = _newest_model(site)
    if "constants" in facts and "class_names" in facts:
        return Personal.restored(weights, facts)
    personal = Personal.restored(weights, facts | {"constants": {}})
    graph = load_site_graph(site)
    if has_constants(personal.method) or graph.class_names is not None:
        return Personal.restored(weights, facts, site_client(site, personal.client, graph))
    return personal


def _newest_model(site: SiteConfig) -> tuple[dict[str, Tensor], dict[str, Any]]:
    folder = Path(site.state)
    states = [SiteState(each) for each in (folder, *sorted(folder.glob("*/"))) if each.is_dir()]
    found = sorted((time, n) for n, state in enumerate(states) if (time := state.model_time) is not None)
    models = [model for _, n in found if (model := states[n].load_model()) is not None]
    finished = [model for model in models if model[1].get("finished", True)]
    if not models:
        raise FedquiltError(
            f"Site '{site.name}' has no model in {folder} yet; it gets one by taking part in a federation."
        )
    return (finished or models)[-1]


def check_fits(graph: Graph, personal: Personal) -> None:
    """Refuse a graph that the model cannot be used on."""
    task, names = personal.method.task, personal.class_names
    if graph.features != task.features:
        raise FedquiltError(
            f"{graph.name} has {graph.features} features and the model was trained on {task.features}; "
            "give a graph with the same features in the same order."
        )
    if graph.classes > task.classes:
        raise FedquiltError(
            f"{graph.name} has {graph.classes} classes and the model was trained on {task.classes}; "
            "give a graph with the same classes."
        )
    strange = [] if names is None else [name for name in graph.class_names or () if name not in names]
    if strange:
        raise FedquiltError(
            f"{graph.name} has a class '{strange[0]}', which the model was not trained on; it knows: {', '.join(names or ())}."
        )


@torch.no_grad()
def logits_of(personal: Personal, graph: Graph, device: torch.device) -> Tensor:
    """What a personal model says about the nodes of a graph: [n, C]."""
    method = personal.method
    try:
        module = module_of_personal(personal).to(device)
    except NoNetworkError:
        # A method of someone's own: as it evaluates its clients. No node of this graph trains.
        x = normalise(graph.x) if personal.normalise_features else graph.x
        own = Graph(graph.name, graph.edges, x, np.full_like(graph.y, -1), method.task.classes)
        client = Client(personal.client, own, np.full(own.nodes, NONE, dtype=np.int8))
        weights = {name: tensor.unsqueeze(0).to(device) for name, tensor in personal.weights.items()}
        return method.logits(weights, Cohort([client], device))
    return module(_as_data(graph, device))


def _as_data(graph: Graph, device: torch.device) -> SimpleNamespace:
    """The graph as a network takes it; sparse features stay sparse."""
    edges = torch.from_numpy(graph.edges).to(device)
    if isinstance(graph.x, np.ndarray):
        return SimpleNamespace(x=torch.from_numpy(graph.x).to(device), edge_index=edges)
    coo = graph.x.tocoo()
    index = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    x = torch.sparse_coo_tensor(index, torch.from_numpy(coo.data), coo.shape, check_invariants=False)
    return SimpleNamespace(x=x.to(device), edge_index=edges)
