"""`fedquilt site check`: tries everything that a site.yaml says, and describes what would leave the site."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedquilt.common.writable import check_folder_writable
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.budget import Budget
from fedquilt.federation.site.config import SiteConfig, load_site_graph, read_site, site_split, split_name
from fedquilt.federation.site.permits import (
    METRICS_PERMIT,
    check_permit_names,
    default_methods,
    is_permitted,
    refused_uploads,
)
from fedquilt.graphs.check import GraphReport, describe_graph
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.messages.message import TensorSpec
from fedquilt.methods.base import Method, find_method
from fedquilt.privacy.accountant import affordable_uploads, noise_for, spent_epsilon

MANY_UPLOADS = 10**6
EXAMPLE_ROUNDS = (1, 10, 100)


@dataclass(frozen=True)
class MethodUploads:
    """What a method with default settings would send from a site, and which of that is not permitted."""

    method: str
    uploads: list[TensorSpec]
    refused: list[TensorSpec]


@dataclass(frozen=True)
class SiteReport:
    """What `check_site` found. Anything wrong raises an error instead.

    Attributes:
        site: its configuration; graph: the statistics of its graph.
        split: how nodes are split; parts: how many train, validate and test.
        methods: what each method would send.
        reports_metrics: whether losses and metrics are reported.
        privacy: what differential privacy does here, in sentences.
    """

    site: SiteConfig
    graph: GraphReport
    split: str
    parts: tuple[int, int, int]
    methods: list[MethodUploads]
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
    def masking(self) -> list[str]:
        """What secure aggregation does here, in sentences."""
        if self.site.secure_aggregation != "required":
            return []
        return [
            "Uploads leave only masked, as parts of sums over three or more sites (secure_aggregation: required); methods "
            "whose server needs single uploads do not run here."
        ]


def check_site(path: str | os.PathLike[str]) -> SiteReport:
    """Try everything that a site.yaml says; nothing is written."""
    site = read_site(path)
    check_permit_names(site.permits)
    pick_device(site.device, asked="device:")
    graph = load_site_graph(site)
    parts = _parts(site, graph)
    check_folder_writable(Path(site.state), name="The state folder")
    methods = default_methods(graph.features, graph.classes)
    return SiteReport(
        site=site,
        graph=describe_graph(graph),
        split=split_name(site, graph),
        parts=parts,
        methods=[MethodUploads(n, m.sent_uploads(), refused_uploads(site.permits, m)) for n, m in methods.items()],
        reports_metrics=is_permitted(site.permits, METRICS_PERMIT) and (site.dp is None or site.dp.report),
        privacy=_privacy(site, methods),
    )


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
