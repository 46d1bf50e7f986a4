"""Modules of the personal models of finished runs and of sites."""

from __future__ import annotations

import os
from pathlib import Path

from fedquilt.errors import FedquiltError
from fedquilt.export.module import PersonalModule
from fedquilt.federation.site.config import SiteConfig, read_site
from fedquilt.federation.site.predict import personal_of
from fedquilt.methods.personal_model import Personal
from fedquilt.runs.finished import Run, load_run
from fedquilt.runs.predict import personal_of_run


def module_of(
    source: Run | SiteConfig | str | os.PathLike[str], client: int | None = None, seed: int | None = None
) -> PersonalModule:
    """A personal model as a module on PyTorch Geometric's `Data`.

    Args:
        source: a finished run (its folder, or the result of `fedquilt.run` or `fedquilt.load_run`), or a site (its site.yaml,
            or the result of `read_site`).
        client: of a run, whose model; it may be left out where there is only one.
        seed: of a run, which of its seeds; None: the first.
    """
    if isinstance(source, str | os.PathLike) and (Path(source) / "config.json").is_file():
        source = load_run(Path(source))
    if isinstance(source, Run):
        return module_of_personal(personal_of_run(source, client, seed))
    if client not in (None, 0) or seed is not None:
        raise FedquiltError("A site has one model, its own; leave client and seed out.")
    return module_of_personal(personal_of(source if isinstance(source, SiteConfig) else read_site(source)))


def module_of_personal(personal: Personal) -> PersonalModule:
    """The module of a personal model, ready to predict."""
    return PersonalModule(personal)
