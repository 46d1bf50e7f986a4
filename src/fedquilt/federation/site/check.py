"""`fedquilt site check`: tries everything that a site.yaml says, and describes what would leave the site."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.common.writable import check_folder_writable
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.budget import Budget
from fedquilt.federation.site.config import SiteConfig, load_site_graph, read_site, site_split, split_name
from fedquilt.federation.site.permits import (
    METRICS_PERMIT,
    METRICS_SPEC,
    Permits,
    check_permit_names,
    covers,
    default_methods,
    default_names,
    in_words,
    is_permitted,
    line_to_add,
    refused_names,
    upload_names,
)
from fedquilt.graphs.check import GraphReport, describe_graph
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.preparation import PrepareKind, suggested_kind
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.messages.message import TensorSpec, declared
from fedquilt.methods.base import Method, find_method, refuse_pooling
from fedquilt.methods.settings import build_settings
from fedquilt.privacy.accountant import affordable_uploads, noise_for, spent_epsilon

MANY_UPLOADS = 10**6
EXAMPLE_ROUNDS = (1, 10, 100)
_PREPARED: dict[PrepareKind, str] = {
    "none": "They are used as they are",
    "standard": "Numeric columns are standardised by this site's own statistics, which stay here",
    "rows": "Each node's are divided by their sum, as counts are",
}


@dataclass(frozen=True)
class MethodUploads:
    """What a method would send from a site, and which of that is not permitted.

    Attributes:
        method: its name.
        uploads: what it declares, with the names of the tensors that it sends of each.
        refused: the names of tensors that may not leave.
        needs: the line of site.yaml with which they may; None where nothing is refused.
    """

    method: str
    uploads: list[tuple[TensorSpec, list[str]]]
    refused: list[str]
    needs: str | None

    @classmethod
    def of(cls, method: Method, names: Sequence[str], permits: Permits) -> MethodUploads:
        """What a method would send, whose tensors have these names."""
        specs = method.uploads
        refused = refused_names(permits, names, specs)
        of_spec = [(spec, [name for name in names if declared(specs, name) == spec]) for spec in specs]
        needs = line_to_add(permits, names, specs) if refused else None
        return cls(method.name, [(spec, sent) for spec, sent in of_spec if sent], refused, needs)

    @property
    def names(self) -> list[str]:
        """The names of all tensors that it sends."""
        return [name for _, sent in self.uploads for name in sent]


@dataclass(frozen=True)
class SiteReport:
    """What `check_site` found. Anything wrong raises an error instead.

    Attributes:
        site: its configuration; graph: the statistics of its graph.
        split: how nodes are split; parts: how many train, validate and test.
        prepare: how the site suggests to prepare features.
        methods: what each method would send.
        permits: each permit, with the names of the tensors that it lets leave.
        says_permits: whether site.yaml says what is permitted, or leaves it to the default.
        reports_metrics: whether losses and metrics are reported.
        privacy: what differential privacy does here, in sentences.
    """

    site: SiteConfig
    graph: GraphReport
    split: str
    parts: tuple[int, int, int]
    prepare: PrepareKind
    methods: list[MethodUploads]
    permits: dict[str, list[str]]
    says_permits: bool
    reports_metrics: bool
    privacy: list[str]

    @property
    def permitted(self) -> list[str]:
        """The methods that may run here."""
        return [line.method for line in self.methods if not line.refused and line.method not in self.unmaskable]

    @property
    def unmaskable(self) -> list[str]:
        """The methods whose server needs single uploads, where the site demands secure aggregation."""
        demanded = self.site.secure_aggregation == "required"
        return [
            line.method
            for line in self.methods
            if demanded and line.uploads and find_method(line.method).single_uploads
        ]

    @property
    def preparation(self) -> str:
        """How features will be prepared, in a sentence."""
        whose = "its graph suggests" if self.site.prepare is None else "site.yaml says"
        return (
            f"{_PREPARED[self.prepare]} (prepare: {self.prepare}, as {whose}), unless the coordinator decides otherwise for "
            "all sites."
        )

    @property
    def masking(self) -> list[str]:
        """What secure aggregation does here, in sentences."""
        if self.site.secure_aggregation != "required":
            return []
        return [
            "Uploads leave only masked, as parts of sums over three or more sites (secure_aggregation: required); methods "
            "whose server needs single uploads do not run here."
        ]


def check_site(
    path: str | os.PathLike[str], method: str | None = None, settings: Mapping[str, Any] | None = None
) -> SiteReport:
    """Try everything that a site.yaml says; nothing is written.

    With `method`, the site has to permit what that method sends with these settings, and it is the only one that is described.
    """
    site = read_site(path)
    pick_device(site.device, asked="device:")
    graph = load_site_graph(site)
    parts = _parts(site, graph)
    check_folder_writable(Path(site.state), name="The state folder")
    chosen, sent = default_methods(), default_names()
    if method is not None:
        kind = find_method(method)
        refuse_pooling(kind)
        context = chosen[method].context
        chosen = {method: kind(build_settings(kind, context, settings or {}), context)}
        sent = {method: upload_names(chosen[method])}
    methods = [MethodUploads.of(each, sent[name], site.permits) for name, each in chosen.items()]
    check_permit_names(site.permits, {line.method: line.names for line in methods})
    report = SiteReport(
        site=site,
        graph=describe_graph(graph),
        split=split_name(site, graph),
        parts=parts,
        prepare=site.prepare or suggested_kind(graph.x),
        methods=methods,
        permits=_matches(site.permits, methods),
        says_permits="permits" in site.model_fields_set,
        reports_metrics=is_permitted(site.permits, METRICS_PERMIT) and (site.dp is None or site.dp.report),
        privacy=_privacy(site, chosen),
    )
    if method is not None:
        _check_ready(report, methods[0])
    return report


def _check_ready(report: SiteReport, line: MethodUploads) -> None:
    """Refuse a site that does not permit what a method needs."""
    if line.refused:
        raise FedquiltError(
            f"Site '{report.site.name}' is not ready for {line.method}, which sends {in_words(line.refused)} too; to let "
            f"that leave, write '{line.needs}' in its site.yaml."
        )
    if line.method in report.unmaskable:
        raise FedquiltError(
            f"Site '{report.site.name}' is not ready for {line.method}, whose server needs single uploads: it demands secure "
            "aggregation (secure_aggregation: required in its site.yaml)."
        )


def _matches(permits: Permits, methods: Sequence[MethodUploads]) -> dict[str, list[str]]:
    """Each permit with the names of the methods' tensors that it stands for."""
    sent = [(name, spec) for line in methods for spec, names in line.uploads for name in names]
    sent.append((METRICS_PERMIT, METRICS_SPEC))
    patterns = ["*"] if permits == "all" else permits
    found = {permit: dict.fromkeys(name for name, spec in sent if covers(permit, name, spec)) for permit in patterns}
    return {permit: list(names) for permit, names in found.items()}


def _parts(site: SiteConfig, graph: Graph) -> tuple[int, int, int]:
    split = site_split(site, graph)
    train, val, test = (int(np.count_nonzero((split == part) & (graph.y >= 0))) for part in (TRAIN, VAL, TEST))
    if not train:
        raise FedquiltError(
            f"The split {split_name(site, graph)} leaves {graph.name} without a training node; change it."
        )
    return train, val, test


def _privacy(site: SiteConfig, methods: dict[str, Method]) -> list[str]:
    """What differential privacy does here, in sentences."""
    dp = site.dp
    if dp is None:
        return ["Uploads leave as they are: no differential privacy is asked for (dp)."]
    counts = sorted({c.name for method in methods.values() for c in method.uploads if c.count})
    sentences = [
        f"What each upload adds to what the server knows is cut to length {dp.clip:g}, all its tensors together."
    ]
    if dp.noise is not None:
        each = ", ".join(f"{spent_epsilon(dp.noise, n, dp.delta):.3g} after {n}" for n in EXAMPLE_ROUNDS)
        sentences.append(
            f"Every number of it gets Gaussian noise of standard deviation {dp.noise * dp.clip:g}. "
            f"Epsilon at delta {dp.delta:g}: {each} uploads."
        )
        if dp.epsilon is not None:
            most = affordable_uploads(dp.noise, dp.epsilon, dp.delta, MANY_UPLOADS)
            if not most:
                first = spent_epsilon(dp.noise, 1, dp.delta)
                raise FedquiltError(
                    f"One upload with noise {dp.noise:g} spends epsilon {first:.3g}, more than the budget of {dp.epsilon:g}; "
                    "use more noise or a larger epsilon."
                )
            sentences.append(
                f"The budget of epsilon {dp.epsilon:g} is enough for {most:,} uploads; then nothing is sent any more."
            )
    elif dp.epsilon is not None:
        noise = noise_for(dp.epsilon, dp.delta, EXAMPLE_ROUNDS[-1])
        sentences.append(
            f"Every number of it gets Gaussian noise, as much as keeps a whole run within epsilon {dp.epsilon:g} at delta "
            f"{dp.delta:g}: of standard deviation {noise * dp.clip:.3g} where a run has {EXAMPLE_ROUNDS[-1]} rounds."
        )
    sentences.append(f"Counts do not leave, a one is sent for each ({', '.join(counts)}).")
    budget = Budget(site.state, dp)
    if budget.uploads:
        sentences.append(f"Spent so far: epsilon {budget.spent():.3g} in {budget.uploads:,} uploads.")
    return sentences
