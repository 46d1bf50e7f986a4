"""Refuses a run by secure aggregation that cannot work, and a run in the clear that a site does not allow."""

from __future__ import annotations

from collections.abc import Sequence

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.config import FederationConfig
from fedquilt.federation.protocol import Introduction
from fedquilt.federation.secure.keys import FEWEST
from fedquilt.federation.secure.tables import SITE_LIMIT
from fedquilt.federation.site.secure_uploads import check_sums_enough
from fedquilt.methods.base import Method
from fedquilt.training.client_sampling import participants


def check_secure_aggregation(config: FederationConfig, sites: Sequence[Introduction], method: Method) -> None:
    """Refuse secure aggregation where it cannot work, and a run in the clear where a site demands it."""
    if not config.secure_aggregation:
        demanding = next((site.name for site in sites if site.secure), None)
        if demanding is not None and method.sent_uploads():
            raise FedquiltError(
                f"Site '{demanding}' demands secure aggregation (secure_aggregation: required in its site.yaml); "
                "say secure-aggregation=true."
            )
        return
    check_sums_enough(method)
    if config.aggregation != "mean":
        raise FedquiltError(
            f"aggregation={config.aggregation} compares single uploads, and with secure-aggregation the server sees sums only; "
            "leave out one of the two."
        )
    fewest = min(len(participants(config.seed, 0, len(sites), config.participation)), config.min_sites or len(sites))
    if fewest < FEWEST or len(sites) > SITE_LIMIT:
        raise FedquiltError(
            f"Secure aggregation needs {FEWEST} to {SITE_LIMIT:,} sites in every round, and here it may be {fewest}; change "
            "sites, participation or min-sites."
        )
