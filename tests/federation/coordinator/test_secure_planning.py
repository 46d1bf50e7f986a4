"""Which runs by secure aggregation are refused before anything trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.state import run_folders
from support.federations import ragged_clients
from support.flower_doubles import federation

SIZES = (12, 9, 14)


@pytest.mark.parametrize(
    ("options", "site", "says"),
    [
        ({"method": "fedpub"}, {}, "does not work with fedpub: its server compares"),
        ({"method": "local"}, {}, "local uploads nothing with these settings"),
        ({"aggregation": "median"}, {}, "aggregation=median compares single uploads"),
        ({"participation": 0.5}, {}, "needs 3 to 1,000 sites in every round, and here it may be 2"),
        ({"min_sites": 2}, {}, "here it may be 2"),
        ({"secure_aggregation": False}, {"secure_aggregation": "required"}, "'site-0' demands secure aggregation"),
    ],
    ids=str,
)
def test_secure_aggregation_that_cannot_work_is_refused_before_training(
    options: dict[str, Any], site: dict[str, Any], says: str, tmp_path: Path
) -> None:
    wanted = {"method": "fedavg", "secure_aggregation": True, **options}
    with pytest.raises(FedquiltError, match=says):
        federation(tmp_path, ragged_clients(SIZES), site=site, **wanted).run()
    assert not [run for state in tmp_path.glob("site-*/state") for run in run_folders(state)]


def test_two_sites_are_too_few_for_secure_aggregation(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="and here it may be 2; change sites"):
        federation(tmp_path, ragged_clients(SIZES[:2]), method="fedavg", secure_aggregation=True).run()
