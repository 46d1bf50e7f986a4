"""Predictions from a site's own personal model, for its own graph or another one with the same features."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.common.private_files import write_private_bytes
from fedquilt.datasets.load import load_graph
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import SiteConfig, load_site_graph, site_client
from fedquilt.federation.site.state import SiteState
from fedquilt.graphs.graph import Graph
from fedquilt.methods.personal_model import Personal
from fedquilt.tasks.base import Task

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class Predictions:
    """A model's predictions for every node of a graph.

    Attributes:
        task: what was learned; it says how predictions are written.
        ids: [n] the nodes' names, or their positions where they have none.
        values: [n, C] float32, as `Task.predict` gives them, such as class probabilities.
        names: what the C values are called, or their numbers.
        warnings: one sentence for each thing about the graph that is allowed but worth knowing.
    """

    task: Task
    ids: np.ndarray
    values: np.ndarray
    names: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def rows(self) -> Iterator[list[str]]:
        """The header, then a row a node."""
        return self.task.prediction_rows(self.ids.tolist(), self.values, self.names)

    def write(self, path: Path) -> None:
        """As a csv file that only its owner may read; it appears complete or not at all."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.rows())
        try:
            write_private_bytes(path, text.getvalue().encode("utf-8"))
        except OSError as error:
            raise FedquiltError(f"{path} cannot be written: {error.strerror}; choose another --out.") from error


def predict(site: SiteConfig, graph: str | os.PathLike[str] | Graph | Data | None = None) -> Predictions:
    """The predictions of the site's model for its own graph, or for another one, such as the same with new nodes.

    Args:
        site: what `read_site` gave.
        graph: a path, a `Graph` or PyTorch Geometric's `Data`, with the features that the model was trained on: in any order
            where they have names, else in the same. Labels are not needed. None: the site's own.
    """
    personal = personal_of(site)
    if isinstance(graph, str):
        graph = Path(graph)  # a file, never the name of a dataset
    asked = load_site_graph(site) if graph is None else load_graph(graph, labelled=False, encoding=personal.encoding)[0]
    check_fits(asked, personal)
    asked = in_order(asked, personal)
    task, context = personal.method.task, personal.method.context
    values = task.predict(personal.logits(asked, pick_device(site.device, asked="device:"))).cpu().numpy()
    if not np.isfinite(values).all():
        raise FedquiltError(
            f"The model of site '{site.name}' gives no finite numbers; train it again, with a smaller lr."
        )
    names = personal.class_names or tuple(map(str, range(values.shape[1])))
    ids = np.arange(asked.nodes) if asked.ids is None else asked.ids
    warnings = task.prediction_warnings(asked, context.outputs, personal.class_names)
    return Predictions(task, ids, values, names, (*_skipped_models(site), *warnings))


def personal_of(site: SiteConfig) -> Personal:
    """The site's personal model of the run it finished last; where it finished none, of the run it takes part in."""
    weights, facts = _newest_model(site)
    if "constants" in facts and "class_names" in facts:
        return Personal.restored(weights, facts)
    personal = Personal.restored(weights, facts | {"constants": {}})
    graph = load_site_graph(site)
    if personal.method.constants() or graph.class_names is not None:
        return Personal.restored(weights, facts, _trained_client(site, personal, graph))
    return personal


def _trained_client(site: SiteConfig, personal: Personal, graph: Graph) -> Client:
    """The client that trained a model."""
    return site_client(site, personal.client, graph, personal.method.task, personal.method.context.seed)


def _newest_model(site: SiteConfig) -> tuple[dict[str, Tensor], dict[str, Any]]:
    folder = Path(site.state)
    try:
        states = [SiteState(each) for each in (folder, *_folders_in(folder))]
        found = sorted((time, n) for n, state in enumerate(states) if (time := state.model_time) is not None)
        models = [model for _, n in found if (model := states[n].load_model()) is not None]
    except PermissionError as error:
        raise FedquiltError(
            f"{error.filename or folder} cannot be read by this user ({error.strerror}); "
            "run this as the user who runs the site."
        ) from error
    if found and not models:
        raise FedquiltError(
            f"The model of site '{site.name}' in {folder} is damaged; put a copy back, or take part in a federation again."
        )
    if not models:
        raise FedquiltError(
            f"Site '{site.name}' has no model in {folder} yet; it gets one by taking part in a federation."
        )

    def worth(place: int) -> tuple[bool, bool, int]:
        """Trained before untrained, finished before not, then the newest."""
        facts = models[place][1]
        return facts.get("trained", True), facts.get("finished", True), place

    return models[max(range(len(models)), key=worth)]


def _skipped_models(site: SiteConfig) -> list[str]:
    """One sentence for each damaged version of a model in place of which an earlier one is used."""
    folder = Path(site.state)
    return [
        f"{state.folder}: {sentence} An earlier version of the model is used."
        for state in map(SiteState, (folder, *_folders_in(folder)))
        for sentence in state.skipped_models()
    ]


def _folders_in(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []


def check_fits(graph: Graph, personal: Personal) -> None:
    """Refuse a graph that the model cannot be used on."""
    names, features = personal.feature_names, personal.method.context.features
    if names is not None and graph.feature_names is not None:
        _check_same_features(graph.name, graph.feature_names, names)
    if graph.features != features:
        raise FedquiltError(
            f"{graph.name} has {graph.features} features and the model was trained on {features}; "
            "give a graph with the same features in the same order."
        )


def _check_same_features(graph: str, given: tuple[str, ...], right: tuple[str, ...]) -> None:
    there, asked = set(given), set(right)
    for name in right:
        if name not in there:
            raise FedquiltError(
                f"{graph} has no feature '{name}', which the model was trained on; give a graph with the same features."
            )
    for name in given:
        if name not in asked:
            raise FedquiltError(f"{graph} has a feature '{name}', which the model was not trained on; leave it out.")


def in_order(graph: Graph, personal: Personal) -> Graph:
    """A graph that fits, with its features in the order in which the model takes them, as far as they have names."""
    names = personal.feature_names
    if names is None or graph.feature_names in (None, names):
        return graph
    place = {name: number for number, name in enumerate(graph.feature_names or ())}
    x = graph.x[:, [place[name] for name in names]]
    if isinstance(x, np.ndarray):
        x = np.ascontiguousarray(x)
    else:
        x.sort_indices()  # so that sums are bit-identical to those of a file in the right order
    return replace(graph, x=x, feature_names=names)
