"""Predictions from the personal models of a finished run: for its clients' own nodes, or for other ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol as GraphProtocol
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.methods.base import State
from fedquilt.methods.personal_model import CLIENT_SETTINGS, Personal
from fedquilt.runs.config import RunConfig
from fedquilt.runs.folder import RunFolder
from fedquilt.runs.given_pairs import Pairs, PairsLike, read_pairs
from fedquilt.runs.ground import cut_differences, ground_differences
from fedquilt.runs.new_nodes import NewNodes, read_new_nodes
from fedquilt.runs.predict_pairs import asked_pairs, check_pairs, own_pairs, pairs_for
from fedquilt.runs.predictions import Predictions, finite, joined
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.result import CLIENT_NAMES
from fedquilt.tasks.base import Task

if TYPE_CHECKING:
    from torch_geometric.data import Data

ALL: Literal["all"] = "all"
MEAN: Literal["mean"] = "mean"
PART_NAMES = {TRAIN: "train", VAL: "val", TEST: "test"}
_AT_ONCE = 16  # clients that are computed together
_MOST_NAMED = 20  # clients that a message lists


class TrainedRun(Protocol):
    """What is needed of a finished run (`fedquilt.runs.finished.Run`) to predict with its models."""

    result: dict[str, Any]
    models: dict[int, State]
    facts: dict[int, dict[str, Any]]
    folder: Path | None
    origin: tuple[RunConfig, tuple[Graph, GraphProtocol] | None] | None


def predict_run(
    run: TrainedRun,
    client: int | str | None = None,
    data: str | os.PathLike[str] | Graph | Data | None = None,
    seed: int | None = None,
    device: str = "auto",
    pairs: PairsLike | None = None,
) -> Predictions:
    """The predictions of clients' personal models, those of the best validation round.

    Without `data`, each client's model predicts for the client's own nodes: those it trained on, and those that were held back
    for validation and test; `parts` says which is which, `labels` has the true classes. With `data`, a client's model predicts
    for the nodes of another graph.

    A model that predicts edges predicts for `pairs` of nodes, of `data` or of the clients' own graphs; without pairs, for the
    clients' own validation and test edges, and as many pairs that are not joined.

    Args:
        run: a finished run.
        client: whose model: a number or a name, "all" (each client's, one after the other), or, for `data`, "mean" (the mean of
            all clients' probabilities). None: all, each for its own nodes; for `data` it must be said where there are several.
        data: see `fedquilt.runs.new_nodes.read_new_nodes`. None: the clients' own nodes.
        seed: which of the run's seeds; None: the first.
        device: where it is computed.
        pairs: a csv file with the columns source and target, which hold ids of nodes, or pairs of ids.
    """
    place = pick_device(device)
    chosen = chosen_seed(run, seed)
    asked = None if pairs is None else read_pairs(pairs)
    if data is None:
        if client == MEAN:
            raise FedquiltError(
                "A client's own nodes are predicted by its own model; the mean of all is for other nodes."
            )
        numbers = _numbers(run, chosen, ALL if client is None else client)
        return _own_nodes(run, chosen, numbers, place, asked)
    if client is None and client_count(run, chosen) > 1:
        raise FedquiltError(
            f"The run has {client_count(run, chosen)} clients ({_listed(run, chosen)}), each with a model of its own: say "
            f"whose predicts by its number or name, with '{ALL}' for one prediction by each, or with '{MEAN}' for the mean "
            "of their probabilities."
        )
    numbers = _numbers(run, chosen, ALL if client == MEAN else client or 0)
    models = [personal_of_run(run, number, chosen) for number in numbers]
    check_pairs(models[0].method.task, asked, given=True)
    nodes = read_new_nodes(data, models[0])  # once: all models of a run take the same features
    names = _names(run, chosen)
    each = [_new_nodes(personal, nodes, place, names, asked) for personal in models]
    if client != MEAN:
        return joined(each)
    mean = np.mean([one.values.astype(np.float64) for one in each], axis=0).astype(each[0].values.dtype)
    return replace(each[0], values=mean, clients=np.full(len(mean), MEAN))


def personal_of_run(run: TrainedRun, client: int | None = None, seed: int | None = None) -> Personal:
    """One client's personal model of a finished run; the client may be left out where there is only one."""
    chosen = chosen_seed(run, seed)
    clients = client_count(run, chosen)
    if client is None and clients > 1:
        raise FedquiltError(f"The run has {clients} clients; say whose model you want with client=0 to {clients - 1}.")
    (number,) = _numbers(run, chosen, client or 0)
    settings = run.facts.get(chosen, {}).get(CLIENT_SETTINGS)
    row = _row_of_models(run, number, chosen)
    return row.of_client(settings[number]) if settings else row


def _row_of_models(run: TrainedRun, number: int, seed: int) -> Personal:
    """A client's row of a run's models, which may be of several networks (`Personal.of_client`)."""
    models, facts = run.models[seed], run.facts.get(seed, {})
    constants, preparations = facts.get("constants"), facts.get("preparations")
    own = {
        "client": number,
        "constants": constants[number] if constants else {},
        "preparation": preparations[number] if preparations else None,
    }
    return Personal.restored({name: tensor[number].cpu() for name, tensor in models.items()}, facts | own)


def chosen_seed(run: TrainedRun, seed: int | None) -> int:
    """The seed asked for, or the first; refused where the run has no models of it."""
    if not run.models:
        raise FedquiltError(
            "The run has no models: its clients are sites, who have theirs with them; give a site.yaml."
        )
    chosen = next(iter(run.models)) if seed is None else seed
    if chosen not in run.models:
        raise FedquiltError(
            f"The run has no models of seed {chosen}; choose one of: {', '.join(map(str, run.models))}."
        )
    return chosen


def client_count(run: TrainedRun, seed: int) -> int:
    """The clients that have a model of this seed."""
    return len(next(iter(run.models[seed].values())))


def _names(run: TrainedRun, seed: int) -> list[str] | None:
    """The clients' names in a seed, in the order of their numbers; None where they have none."""
    entry: dict[str, Any] = next((one for one in run.result.get("seeds", ()) if one["seed"] == seed), {})
    return entry.get(CLIENT_NAMES)


def _numbers(run: TrainedRun, seed: int, client: int | str) -> list[int]:
    """The clients asked for by number or by name, as numbers."""
    clients, names = client_count(run, seed), _names(run, seed) or []
    if client in names:
        return [names.index(str(client))]
    if client == ALL:
        return list(range(clients))
    try:
        number = int(client)
    except ValueError:
        raise FedquiltError(f"There is no client '{client}'; choose one of {_listed(run, seed)}, or '{ALL}'.") from None
    if not 0 <= number < clients:
        raise FedquiltError(f"The run has no client {number}; choose one of {_listed(run, seed)}.")
    return [number]


def _listed(run: TrainedRun, seed: int) -> str:
    """The clients that can be asked for."""
    clients, names = client_count(run, seed), _names(run, seed)
    if names is not None:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return ", ".join(names[:_MOST_NAMED]) + more
    return "0" if clients == 1 else f"0 to {clients - 1}"


def predictions_for(nodes: NewNodes, personal: Personal, device: torch.device, whose: str) -> Predictions:
    """The predictions of one model for a graph that fits it; an error says `whose` model it is."""
    task, graph = personal.method.task, nodes.graph
    values = finite(task.predict(personal.logits(graph, device)).cpu().numpy(), whose)
    return Predictions(
        task=task,
        ids=np.arange(graph.nodes) if graph.ids is None else graph.ids,
        values=values,
        names=personal.class_names or tuple(map(str, range(values.shape[1]))),
        warnings=nodes.warnings,
    )


def _new_nodes(
    personal: Personal, nodes: NewNodes, device: torch.device, client_names: list[str] | None, pairs: Pairs | None
) -> Predictions:
    whose = f"client {personal.client}"
    if pairs is None:
        found = predictions_for(nodes, personal, device, whose)
    else:
        found = pairs_for(nodes, personal, device, pairs, whose)
    return replace(found, clients=_column(len(found), personal.client, client_names))


def _own_nodes(
    run: TrainedRun, seed: int, numbers: Sequence[int], device: torch.device, pairs: Pairs | None
) -> Predictions:
    resolved = _resolved_again(run, seed)
    clients, held = resolved.clients(seed), _positions(resolved, seed)
    method, names = _row_of_models(run, numbers[0], seed).method, _names(run, seed)
    each: list[Predictions] = []
    check_pairs(method.task, pairs, given=False)
    if method.task.splits_edges:
        own = [clients[number] for number in numbers]
        ids = [held[c.id] if c.graph.ids is None else c.graph.ids for c in own]
        models = {name: tensor[list(numbers)].to(device) for name, tensor in run.models[seed].items()}
        about = (method, models, own, ids, names)
        return joined(own_pairs(*about) if pairs is None else asked_pairs(*about, pairs))
    for first in range(0, len(numbers), _AT_ONCE):
        some = list(numbers[first : first + _AT_ONCE])
        cohort = Cohort([clients[number] for number in some], device)
        weights = {name: tensor[some].to(device) for name, tensor in run.models[seed].items()}
        with torch.no_grad():
            outputs = method.task.in_units(cohort, method.logits(weights, cohort))
            outputs = method.task.predict(outputs).cpu()
        for number, mine in zip(some, cohort.parts_of(outputs), strict=True):
            values = finite(mine.numpy(), f"client {number}")
            each.append(_of_client(method.task, clients[number], held[number], values, names))
    return joined(each)


def _column(nodes: int, client: int, names: list[str] | None) -> np.ndarray:
    """[n] whose model predicted, by name where clients have names."""
    return np.full(nodes, client if names is None else names[client])


def _of_client(
    task: Task, client: Client, positions: np.ndarray, values: np.ndarray, client_names: list[str] | None
) -> Predictions:
    """A client's predictions for its own nodes."""
    graph = client.graph
    names = graph.class_names or tuple(map(str, range(values.shape[1])))
    return Predictions(
        task=task,
        ids=positions if graph.ids is None else graph.ids,
        values=values,
        names=names,
        clients=_column(graph.nodes, client.id, client_names),
        parts=np.array([PART_NAMES.get(int(part), "") for part in client.split]),
        labels=task.known_labels(graph, names),
    )


def _positions(resolved: ResolvedRun, seed: int) -> list[np.ndarray]:
    """For each client, the positions of its nodes in the graph of the run."""
    partition = resolved.cut(seed)[0]
    return [partition.nodes[number] for number in resolved.order(seed, partition.clients)]


def _resolved_again(run: TrainedRun, seed: int) -> ResolvedRun:
    """The run with its graph loaded and cut again; refused where these are not those that the models were trained on."""
    here = {"device": "cpu", "workers": None}
    if run.folder is None:
        if run.origin is None:
            raise FedquiltError("The run does not know its graph; give the nodes to predict for.")
        config, given = run.origin
        return ResolvedRun(config.model_copy(update=here), given)
    folder = RunFolder.open(run.folder)
    resolved = ResolvedRun(folder.run_config.model_copy(update=here))
    seal = folder.seal
    if seal is not None:
        # The models have the settings that they were trained with, whatever has become of defaults since.
        found = ground_differences(seal, resolved, settings=False) or cut_differences(seal, resolved, seed)
        if found:
            raise FedquiltError(
                f"The clients' own nodes are not those that the models in {run.folder} were trained on: {found[0].what}; put "
                "them back, or give the nodes to predict for."
            )
    return resolved
