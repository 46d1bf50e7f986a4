"""Example sites to try a federation with: each client of a partition as a folder with a graph and a site.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fedquilt.cohort.client import Client
from fedquilt.common.files import write_text
from fedquilt.common.private_files import make_private_folder
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import SITE_YAML
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.graphs.validate import PARTS
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun


def write_example_sites(folder: Path, **options: Any) -> list[Path]:
    """Write the clients of a run with these options, of its first seed, as sites; see `write_sites`."""
    run = ResolvedRun(RunConfig.build(options))
    # As they are: a site prepares its features itself, as the run would.
    return write_sites(folder, run.raw_clients(run.config.seeds[0]), prepare=run.config.prepare)


def write_sites(folder: Path, clients: Sequence[Client], **fields: Any) -> list[Path]:
    """Write a folder for each client, with its graph and split and a site.yaml; returns the site.yaml files by name.

    Only this user may look into the folders. `fields` are added to every site.yaml.
    """
    digits = len(str(len(clients) - 1))
    paths = []
    for client in clients:
        name = f"site-{client.id:0{digits}}"
        site = folder / name
        masks = {part: client.split == code for part, code in zip(PARTS, (TRAIN, VAL, TEST), strict=True)}
        values = {"name": name, "graph": "graph.npz", "split": "given", "state": "state", **fields}
        if client.settings:
            values["settings"] = dict(client.settings)
        try:
            make_private_folder(site)
            write_npz(replace(client.graph, name=name, masks=masks), site / "graph.npz", private=True)
            write_text(site / SITE_YAML, yaml.safe_dump(values, sort_keys=False))
        except OSError as error:
            raise FedquiltError(f"{site} cannot be written to ({error.strerror}); choose another folder.") from error
        paths.append(site / SITE_YAML)
    return paths
