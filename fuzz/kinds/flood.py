"""A hostile coordinator begins run after run at a site: there is an end to the folders and bytes that it can leave there."""

from __future__ import annotations

import logging
import random
import shutil
from pathlib import Path
from typing import Any

from fuzz.attempts import Attempt
from fuzz.judge import Failed
from fuzz.processes import forked
from fuzz.sites import first_round

ABOUT = "more runs than a site has room for, begun one after the other"
MOST_RUNS = 100  # a site's default quota (docs/sites.md)
_ASKED = 115


def prepare(folder: Path) -> Path:
    """A fresh site."""

    def write() -> int:
        from fedquilt.federation.site.examples import write_sites
        from support.federations import ragged_clients

        write_sites(folder, ragged_clients((14,)), permits="all")
        return 0

    if forked(write, folder).status:
        raise RuntimeError("no site could be written")
    return folder / "site-0"


def attempt(case: Attempt) -> None:
    """Begin more runs than the site's quota."""
    shutil.copytree(case.material, case.folder / "site")
    seed = case.rng.randrange(2**31)
    ended = forked(
        lambda: _begin(case.folder / "site" / "site.yaml", seed), case.folder, ["(flood)"], cpu_seconds=120.0
    )
    if ended.over or ended.status or ended.value is None:
        raise Failed("traceback", f"{ended.over} {ended.err[-1500:]}")
    case.note(f"{_ASKED} runs begun: {ended.value}")
    kept = [path for path in (case.folder / "site" / "state").iterdir() if path.is_dir() and (path / "rounds").is_dir()]
    if len(kept) > MOST_RUNS:
        raise Failed("disk", f"the site keeps {len(kept)} runs of a coordinator, and refused {ended.value['refused']}")
    if not ended.value["refused"]:
        raise Failed("not told", "the site dropped runs without a word")


def _begin(site: Path, seed: int) -> dict[str, Any]:
    from fedquilt.federation.site.request_handler import RequestHandler

    logging.getLogger("fedquilt.site").setLevel(logging.CRITICAL)
    rng = random.Random(seed)
    handler, refused = RequestHandler(), 0
    for _ in range(_ASKED):
        header = first_round(f"{rng.randrange(16**16):016x}")
        header |= {"method": rng.choice(("fedavg", "fedper", "local")), "evaluate": rng.random() < 0.5}
        refused += "refused" in handler.reply(str(site), header, b"")[0]
    return {"refused": refused}
