"""The files of the studies that come with fedquilt: `catalogue/<paper>/<table>.yaml`, published numbers beside them as CSV."""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fedquilt.runs.read_config import read_config

_PAPERS = ("fedpub", "fedsheafhn", "fedhero", "fediih", "fedssa")


def study_names() -> list[str]:
    """The names of all studies: papers in their order, tables before figures."""
    return sorted(study_files(), key=_order)


def study_files() -> dict[str, Traversable]:
    """By name, the YAML file of each study."""
    return {
        f"{paper.name}-{file.name.removesuffix('.yaml')}": file
        for paper in _catalogue().iterdir()
        if paper.is_dir()
        for file in paper.iterdir()
        if file.name.endswith(".yaml")
    }


def published_path(name: str) -> Path | Traversable:
    """The CSV file with a study's published numbers, whether it exists or not; `name` may be a YAML file of the user's."""
    if is_file_name(name):
        return Path(name).with_suffix(".csv")
    paper, _, rest = name.partition("-")
    return _catalogue() / paper / f"{rest}.csv"


def is_file_name(name: str) -> bool:
    """Whether a study's name is the path of a YAML file."""
    return name.endswith((".yaml", ".yml"))


@cache
def common_candidates() -> dict[str, list[dict[str, Any]]]:
    """By method, the candidate settings of studies that are `tuned`."""
    with resources.as_file(_catalogue() / "candidates.yaml") as path:
        return read_config(path)


def _catalogue() -> Traversable:
    return resources.files("fedquilt.studies") / "catalogue"


def _order(name: str) -> tuple[Any, ...]:
    paper, kind, *rest = name.split("-")
    number = rest[0] if rest else ""
    known = _PAPERS.index(paper) if paper in _PAPERS else len(_PAPERS)
    return known, paper, kind != "table", int(number) if number.isdigit() else 0, name
