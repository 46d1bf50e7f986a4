"""Builds a run's method for the sites that are there, and refuses one that they cannot or may not train."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedquilt.datasets.catalogue import in_catalogue
from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.config import FederationConfig
from fedquilt.federation.coordinator.secure_planning import check_secure_aggregation
from fedquilt.federation.protocol import Introduction, check_batches
from fedquilt.federation.site.permits import (
    about_nodes,
    in_words,
    line_to_add,
    permitted_methods,
    refused_names,
    upload_names,
)
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.preparation import PrepareKind, agreed_kind
from fedquilt.methods.averaging import Averaging
from fedquilt.methods.base import Method, RunContext, find_method
from fedquilt.methods.settings import resolve_settings
from fedquilt.scenarios.robust_aggregation import averaging_rule, check_averages
from fedquilt.tasks.base import Task, find_task


def plan_method(config: FederationConfig, sites: Sequence[Introduction]) -> Method:
    """The method as the sites will train it; refused where its settings are not possible or a site does not permit it."""
    first, task = sites[0], find_task(config.task, config.task_settings)
    sizes = (first.features, _outputs(task, first), len(sites))
    names = (config.dataset, config.partition, config.metric)
    context = RunContext(
        *(*names, *sizes, config.epochs or 1, config.seed),
        task=config.task,
        class_weights=config.class_weights,
        rounds=config.rounds,
        batch_nodes=config.batch_nodes,
        task_settings=config.task_settings,
    )
    task.check("the sites have", context.outputs, context.metric)
    kind = find_method(config.method)
    method = kind(*resolve_settings(kind, context, config.settings, config.epochs or None), averaging_of(config))
    if context.batch_nodes:
        check_batches(method)
    if method.needs_classes() and not task.has_classes:
        raise FedquiltError(
            f"Method '{method.name}' needs classes, which the task {config.task} has not; choose another."
        )
    check_permitted(sites, method)
    check_secure_aggregation(config, sites, method)
    if config.aggregation != "mean":
        check_averages(method, config.aggregation)
    return method


def _outputs(task: Task, site: Introduction) -> int:
    """Width of a model's output for a site's graph, of which only its sizes are known here."""
    none = np.zeros((2, 0), dtype=np.int64)
    like = Graph(site.name, none, np.zeros((1, site.features), np.float32), np.zeros(1, np.int64), site.classes)
    return task.outputs(like)


def plan_preparation(config: FederationConfig, sites: Sequence[Introduction]) -> PrepareKind:
    """How sites prepare their features: as the run config says, else not at all for a named dataset, else as they suggest."""
    if config.prepare:
        return config.prepare
    if in_catalogue(config.dataset):
        return "none"  # the catalogue's graphs are trained on as their protocols say
    return agreed_kind([(f"Site '{site.name}'", site.prepare) for site in sites])


def averaging_of(config: FederationConfig) -> Averaging:
    """The rule by which the server averages."""
    return averaging_rule(
        config.aggregation, config.aggregation_trim, config.aggregation_clip, config.aggregation_voters
    )


def check_permitted(sites: Sequence[Introduction], method: Method) -> None:
    """Refuse a method that sends what a site does not permit, and say what that site would have to add."""
    names = upload_names(method)
    for site in sites:
        refused = refused_names(site.permits, names, method.uploads)
        if refused:
            possible = permitted_methods(*(site.permits for site in sites))
            raise FedquiltError(
                f"Site '{site.name}' does not permit {in_words(refused)} to leave, which {method.name} sends"
                f"{about_nodes(refused, method.uploads)}; choose a method that all sites permit "
                f"({', '.join(possible)}), or ask that site to write "
                f"'{line_to_add(site.permits, names, method.uploads)}' in its site.yaml."
            )


def check_same_widths(sites: Sequence[Introduction], classes: bool = True) -> None:
    """Refuse sites whose features, or `classes`, are not the same."""
    first, *others = sites
    for other in others:
        for what in ("features", "classes") if classes else ("features",):
            mine, theirs = getattr(first, what), getattr(other, what)
            if mine != theirs:
                how = "; write all of them as 'classes: [...]' in each site.yaml" if what == "classes" else ""
                raise FedquiltError(
                    f"Site '{first.name}' has {mine} {what} and site '{other.name}' has {theirs}; all sites need the same{how}."
                )
        for what, same in (("feature", "columns in the same order"), ("class", "classes.txt, or classes in site.yaml")):
            mine, theirs = getattr(first, f"{what}_names"), getattr(other, f"{what}_names")
            if None not in (mine, theirs) and mine != theirs and (classes or what != "class"):
                raise FedquiltError(
                    f"Sites '{first.name}' and '{other.name}' have other {what} names, or in another order; give all sites the "
                    f"same {same}."
                )
