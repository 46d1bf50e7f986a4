"""syn-cora: H2GCN's synthetic graphs, one for each homophily level h and repetition r (Zhu et al., 2020)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fedquilt.datasets.catalogue import register
from fedquilt.datasets.dataset import Dataset, Parameter
from fedquilt.datasets.download import H2gcnFiles
from fedquilt.errors import FedquiltError
from fedquilt.graphs.protocol import Protocol

ALL = "all"
# The homophily levels whose graphs `h=all` joins. The published level 0.99 is left out.
LEVELS = tuple(f"{tenth / 10:.2f}" for tenth in range(11))


def homophily(dataset: str, key: str, value: str) -> str:
    """Check a homophily level, and write it with two digits as the files do; or `all`."""
    if value.lower() == ALL:
        return ALL
    if not re.fullmatch(r"\d(\.\d+)?", value) or float(value) > 1:
        raise FedquiltError(
            f"'{value}' is not a homophily for {dataset}; write a number from 0 to 1, such as {key}=0.30, or {key}={ALL}."
        )
    return f"{float(value):.2f}"


def levels(parameters: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the parameters of the graphs of all levels for `h=all`; an empty list for a single graph."""
    return [{**parameters, "h": level} for level in LEVELS] if parameters["h"] == ALL else []


register(
    Dataset(
        "syn-cora",
        "synthetic, homophily h (or all), repetition r",
        *(1490, 2968, 1433, 5),
        Protocol(split=(0.6, 0.2, 0.2), rounds=200),
        H2gcnFiles("h{h}-r{r}.npz"),
        sparse=True,
        parameters={"h": Parameter("0.30", homophily), "r": Parameter("1")},
        files=("syn-cora-h{h}-r{r}",),
        parts=levels,
    )
)
