"""What a site has at home: its graph and split, and for each run what it keeps and what left it."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from fedquilt.cohort.client import Client
from fedquilt.devices.device import pick_device
from fedquilt.federation.site.budget import Budget
from fedquilt.federation.site.config import SiteConfig, load_site_graph, read_site, site_client
from fedquilt.federation.site.ledger import Ledger
from fedquilt.federation.site.permits import FIGURES, permitted
from fedquilt.federation.site.state import SiteState
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base import Method
from fedquilt.methods.sending import uploads_of
from fedquilt.privacy.dp import Privatiser


class Site:
    """A site as its site.yaml describes it."""

    def __init__(self, config: SiteConfig) -> None:
        self.config = config
        self.device = pick_device(config.device, asked="device:")
        self.budget = None if config.dp is None else Budget(config.state, config.dp)

    @cached_property
    def graph(self) -> Graph:
        """The site's graph."""
        return load_site_graph(self.config)

    def client(self, number: int) -> Client:
        """The site as a client, with its number in the federation."""
        return site_client(self.config, number, self.graph)

    def memory(self, run: str) -> SiteState:
        """What the site keeps of a run."""
        return SiteState(Path(self.config.state) / run)

    def ledger(self, run: str) -> Ledger:
        """What left the site in a run."""
        return Ledger(Path(self.config.state) / run)

    def reports(self, rounds: int) -> bool:
        """Whether the site's losses and metrics may be known: with a privacy budget, as long as that lasts."""
        dp = self.config.dp
        if dp is not None and self.budget is not None:
            return dp.report and permitted(self.config.permits, FIGURES) and self.budget.affords(dp.noise_over(rounds))
        return permitted(self.config.permits, FIGURES)

    def privatiser(self, method: Method, rounds: int) -> Privatiser | None:
        """What protects uploads of this method in a run of so many rounds; None where there is nothing to protect."""
        if self.config.dp is None or not uploads_of(method):
            return None
        return Privatiser(self.config.dp, rounds)


def open_site(path: str | os.PathLike[str]) -> Site:
    """The site that a site.yaml describes."""
    return Site(read_site(path))
