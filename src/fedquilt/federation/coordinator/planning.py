"""Builds a run's method for the sites that are there, and refuses one that they cannot or may not train."""

from __future__ import annotations

from collections.abc import Sequence

from fedquilt.cohort.sampled_neighbours import parse_fan_out
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
from fedquilt.graphs.preparation import PrepareKind, agreed_kind
from fedquilt.methods.averaging import Averaging
from fedquilt.methods.base import Method, RunContext, check_classes, find_method
from fedquilt.methods.settings import resolve_settings
from fedquilt.scenarios.robust_aggregation import averaging_rule, check_averages
from fedquilt.tasks.base import find_task


def plan_method(config: FederationConfig, sites: Sequence[Introduction]) -> Method:
    """The method as the sites will train it; refused where its settings are not possible or a site does not permit it."""
    first, task = sites[0], find_task(config.task, config.task_settings)
    outputs = [task.outputs_of_site(site.name, site.classes, site.class_names is not None) for site in sites]
    sizes = (first.features, outputs[0], len(sites))
    names = (config.dataset, config.partition, config.metric)
    context = RunContext(
        *(*names, *sizes, config.epochs or 1, config.seed),
        task=config.task,
        class_weights=config.class_weights,
        rounds=config.rounds,
        batch_nodes=config.batch_nodes,
        fan_out=parse_fan_out(config.fan_out),
        task_settings=config.task_settings,
    )
    task.check("the sites have", context.outputs, context.metric)
    kind = find_method(config.method)
    method = kind(*resolve_settings(kind, context, config.settings, config.epochs or None), averaging_of(config))
    if context.batch_nodes:
        check_batches(method)
    check_classes(method)
    check_permitted(sites, method)
    check_secure_aggregation(config, sites, method)
    if config.aggregation != "mean":
        check_averages(method, config.aggregation)
    return method


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


def check_same_widths(sites: Sequence[Introduction], task: str) -> None:
    """Refuse sites whose features are not the same, or whose classes are not where the task has classes."""
    first, *others = sites
    has_classes = find_task(task).has_classes
    for other in others:
        for what in ("features", "classes") if has_classes else ("features",):
            mine, theirs = getattr(first, what), getattr(other, what)
            if mine != theirs:
                how = "; write all of them as 'classes: [...]' in each site.yaml" if what == "classes" else ""
                raise FedquiltError(
                    f"Site '{first.name}' has {mine} {what} and site '{other.name}' has {theirs}; all sites need the same{how}."
                )
        for what, same in (("feature", "columns in the same order"), ("class", "classes.txt, or classes in site.yaml")):
            mine, theirs = getattr(first, f"{what}_names"), getattr(other, f"{what}_names")
            if what == "class" and not has_classes:
                continue
            if None not in (mine, theirs) and mine != theirs:
                raise FedquiltError(
                    f"Sites '{first.name}' and '{other.name}' have other {what} names, or in another order; give all sites the "
                    f"same {same}."
                )
