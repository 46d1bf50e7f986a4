"""Sites to try a federation with: the clients of a cut of some graph, each as a folder that an organisation could have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fedquilt.cohort.client import Client
from fedquilt.common.files import write_text
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import SITE_YAML
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.graphs.validate import PARTS


def write_sites(folder: Path, clients: Sequence[Client], **fields: Any) -> list[Path]:
    """A folder for each client with its graph, its split in it, and a site.yaml; these files, in the order of their names.

    `fields` are said in every site.yaml beside what each site needs.
    """
    digits = len(str(len(clients) - 1))
    paths = []
    for client in clients:
        name = f"site-{client.id:0{digits}}"
        home = folder / name
        masks = {part: client.split == code for part, code in zip(PARTS, (TRAIN, VAL, TEST), strict=True)}
        write_npz(replace(client.graph, name=name, masks=masks), home / "graph.npz")
        said = {"name": name, "graph": "graph.npz", "split": "given", "state": "state", **fields}
        try:
            write_text(home / SITE_YAML, yaml.safe_dump(said, sort_keys=False))
        except OSError as error:
            raise FedquiltError(f"{home} cannot be written to ({error.strerror}); choose another folder.") from error
        paths.append(home / SITE_YAML)
    return paths
