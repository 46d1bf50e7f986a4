"""A site: its graph and split, its privacy budget, and the state and ledger it has for each run."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from fedquilt.cohort.client import Client
from fedquilt.devices.device import pick_device
from fedquilt.federation.protocol import Introduction
from fedquilt.federation.site.budget import Budget
from fedquilt.federation.site.config import SiteConfig, load_site_graph, read_site, site_client
from fedquilt.federation.site.ledger import Ledger
from fedquilt.federation.site.log import SiteLog
from fedquilt.federation.site.permits import METRICS_PERMIT, is_permitted
from fedquilt.federation.site.quota import QuotaKeeper
from fedquilt.federation.site.state import SiteState
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.preparation import suggested_kind
from fedquilt.methods.base import Method
from fedquilt.methods.settings import check_client_settings
from fedquilt.privacy.dp import Privatiser


class Site:
    """What a site.yaml describes, opened for use."""

    def __init__(self, config: SiteConfig) -> None:
        self.config = config
        self.device = pick_device(config.device, asked="device:")
        self.budget = None if config.dp is None else Budget(config.state, config.dp)
        self.log = SiteLog(config.state)
        self.quota = QuotaKeeper(config, self.log)

    @cached_property
    def graph(self) -> Graph:
        """The site's graph."""
        return load_site_graph(self.config)

    def introduction(self) -> Introduction:
        """What the site says about itself when the coordinator greets it."""
        graph, config = self.graph, self.config
        return Introduction(
            name=config.name,
            features=graph.features,
            classes=graph.classes,
            feature_names=_hash_names(graph.feature_names),
            class_names=_hash_names(graph.class_names),
            permits=config.permits,
            protected=config.dp is not None,
            secure=config.secure_aggregation == "required",
            # Rounded up, so that it says little; with noise, counts are not sent at all.
            nodes=None if config.dp is not None else 1 << (graph.nodes - 1).bit_length(),
            prepare=config.prepare or suggested_kind(graph.x),
        )

    def client(self, number: int, method: Method) -> Client:
        """The site as a client of a run of `method`, with its number in the federation; its features are not prepared yet."""
        client = site_client(self.config, number, self.graph, method.task, method.context.seed)
        return replace(client, settings=check_client_settings(method, self.config.settings, "the site"))

    def state(self, run: str) -> SiteState:
        """What the site saves of a run."""
        return SiteState(Path(self.config.state) / run)

    def ledger(self, run: str) -> Ledger:
        """What left the site in a run."""
        return Ledger(Path(self.config.state) / run)

    def reports_metrics(self, rounds: int) -> bool:
        """Whether the site sends its losses and metrics in a run of so many rounds.

        It does where `permits` and `dp.report` allow it; with a privacy budget, only while that affords another upload.
        """
        allowed, dp = is_permitted(self.config.permits, METRICS_PERMIT), self.config.dp
        if dp is None or self.budget is None:
            return allowed
        return dp.report and allowed and self.budget.affords(dp.noise_over(rounds))

    def privatiser(self, method: Method, rounds: int) -> Privatiser | None:
        """What adds noise to uploads of this method in a run of so many rounds; None where no noise is added."""
        if self.config.dp is None or not method.sent_uploads():
            return None
        return Privatiser(self.config.dp, max(1, sum(map(method.sends_in, range(rounds)))))


def open_site(path: str | os.PathLike[str]) -> Site:
    """The site that a site.yaml describes."""
    return Site(read_site(path))


def _hash_names(names: tuple[str, ...] | None) -> str | None:
    """A hash that tells whether two sites have the same names, without the names themselves."""
    return None if names is None else hashlib.sha256(json.dumps(names).encode()).hexdigest()
