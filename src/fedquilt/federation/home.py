"""What a site has at home: its graph and split, and for each run what it keeps and what left it."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from fedquilt.cohort import Client
from fedquilt.device import pick_device
from fedquilt.graphs import Graph
from fedquilt.methods.contract import Method
from fedquilt.privacy.crossing import Message
from fedquilt.privacy.dp import Privatiser
from fedquilt.sites.budget import Budget
from fedquilt.sites.config import SiteConfig, load_site_graph, read_site, site_client
from fedquilt.sites.ledger import Ledger
from fedquilt.sites.permits import FIGURES, permitted
from fedquilt.sites.state import SiteState


class Site:
    """A site as its site.yaml describes it."""

    def __init__(self, config: SiteConfig) -> None:
        self.config = config
        self.device = pick_device(config.device)
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

    @property
    def reports(self) -> bool:
        """Whether the site's losses and metrics may be known."""
        told = self.config.dp is None or self.config.dp.report
        return told and permitted(self.config.permits, FIGURES)

    def protected(self, uploads: Message, method: Method, down: Message, round: int, rounds: int) -> Message:
        """The uploads with the noise that the site adds, where it adds any; spent before they leave, or refused."""
        if self.config.dp is None or self.budget is None or not uploads:
            return uploads
        privatiser = Privatiser(self.config.dp, rounds)
        made = privatiser.applied(uploads, method.uploads, round, known=method.public_start() | down)
        self.budget.take(privatiser.noise)
        return made


def open_site(path: str | os.PathLike[str]) -> Site:
    """The site that a site.yaml describes."""
    return Site(read_site(path))
