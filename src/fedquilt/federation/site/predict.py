"""Predictions from a site's own personal model, for its own graph or another one with the same features."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import SiteConfig, load_site_graph, site_client
from fedquilt.federation.site.state import SiteState
from fedquilt.graphs.graph import Graph
from fedquilt.methods.personal_model import Personal
from fedquilt.runs.given_pairs import PairsLike, read_pairs
from fedquilt.runs.new_nodes import read_new_nodes
from fedquilt.runs.predict import predictions_for
from fedquilt.runs.predict_pairs import check_pairs, pairs_for
from fedquilt.runs.predictions import Predictions

if TYPE_CHECKING:
    from torch_geometric.data import Data


def predict(
    site: SiteConfig,
    graph: str | os.PathLike[str] | Graph | Data | None = None,
    pairs: PairsLike | None = None,
) -> Predictions:
    """The predictions of the site's model for its own graph, or for another one, such as the same with new nodes.

    Args:
        site: what `read_site` gave.
        graph: see `fedquilt.runs.new_nodes.read_new_nodes`. None: the site's own.
        pairs: of a model that learned links, a csv file with the columns source and target, or pairs of ids.
    """
    personal = personal_of(site)
    check_pairs(personal.method.task, pairs, given=True)
    wanted = None if pairs is None else read_pairs(pairs)
    asked = read_new_nodes(load_site_graph(site) if graph is None else graph, personal)
    device = pick_device(site.device, asked="device:")
    whose = f"site '{site.name}'"
    if wanted is None:
        found = predictions_for(asked, personal, device, whose)
    else:
        found = pairs_for(asked, personal, device, wanted, whose)
    return replace(found, warnings=(*_skipped_models(site), *found.warnings))


def personal_of(site: SiteConfig) -> Personal:
    """The site's personal model of the run it finished last; where it finished none, of the run it takes part in."""
    weights, facts = _newest_model(site)
    if "constants" in facts and "class_names" in facts:
        return Personal.restored(weights, facts)
    personal = Personal.restored(weights, facts | {"constants": {}})
    graph = load_site_graph(site)
    if personal.method.saved_constants() or graph.class_names is not None:
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
