"""Before a rehearsal: is it possible at all? And a copy of each site that keeps its state in the rehearsal's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fedquilt.errors import FedquiltError
from fedquilt.federation.rehearsal import tool
from fedquilt.runs.atomic import write_text
from fedquilt.sites.config import SITE_YAML, read_site

RUN = "run"


def prepared(sites: Sequence[Path], order: Mapping[str, Any], out: Path) -> tuple[list[Path], dict[str, Any]]:
    """The copies' site.yaml files and the run config; refused with a sentence where it cannot work, before anything starts."""
    tool("flower-superlink")
    from fedquilt.federation.coordinator import Order, check_order
    from fedquilt.federation.roster import Introduction, check_alike
    from fedquilt.federation.site import introduction

    configs = [read_site(path) for path in sites]
    names = [config.name for config in configs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FedquiltError(f"Two sites are called '{twice}'; every site needs a name of its own.")
    out = out.resolve()
    whole = {**order, "sites": len(sites), "out": str(out / RUN)}
    asked = Order.read(whole)
    who = [Introduction.read(introduction(config)) for config in sorted(configs, key=lambda config: config.name)]
    check_alike(who)
    check_order(asked, who)
    if (out / RUN / "result.json").exists():
        raise FedquiltError(f"{out} holds a rehearsal that is over; choose another --out.")
    copies = []
    for config in configs:
        home = out / "sites" / config.name
        values = config.model_dump(exclude_none=True) | {"state": str(home / "state")}
        write_text(home / SITE_YAML, yaml.safe_dump(values, sort_keys=False))
        copies.append(home / SITE_YAML)
    return copies, whole
