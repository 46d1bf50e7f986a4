"""Rehearse a federation: check the sites, start Flower's processes on this machine, train, and stop them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from fedquilt.errors import FedquiltError
from fedquilt.federation.local.prepare import LOGS, PRIVATE, prepared
from fedquilt.federation.local.rehearsal import Rehearsal


def rehearse(
    sites: Sequence[Path], options: Mapping[str, Any], out: Path, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Train a federation of sites on this machine; returns the content of result.json.

    Args:
        sites: their site.yaml files.
        options: of the federation, as in Flower's run config; `sites` and `out` follow from the other arguments.
        out: the folder to write. A rehearsal that was stopped goes on in its folder.
        say: called with each line about the progress.
    """
    with prepared(sites, options, out, say) as (copies, run_config):
        rehearsal = Rehearsal(copies, out / LOGS, private=out / PRIVATE)
        if rehearsal.nginx is None:
            say("nginx 1.20 or newer is not installed: sites connect to the SuperLink itself, without its proxy.")
        say(f"Starting Flower's SuperLink and {len(copies)} SuperNodes on this machine ...")
        with rehearsal:
            return rehearsal.run(run_config, say)


def site_files(text: str) -> list[Path]:
    """The site.yaml files in a list with commas; a name may be a pattern such as sites/*/site.yaml."""
    files: list[Path] = []
    for name in map(str.strip, text.split(",")):
        if not name:
            raise FedquiltError(
                "--sites has an empty name in it; name the sites' site.yaml files, with a comma between two."
            )
        found = sorted(glob(name)) if has_magic(name) and not Path(name).exists() else [name]
        if not found:
            raise FedquiltError(f"No file is called as in '{name}'; name the sites' site.yaml files.")
        folder = next((each for each in found if Path(each).is_dir()), None)
        if folder is not None:
            raise FedquiltError(f"{folder} is a folder; name its site.yaml, such as {Path(folder) / 'site.yaml'}.")
        files += map(Path, found)
    return files
