"""The data of a site: what its site.yaml says of its graph and split. A run on sites' folders reads the same.

The rest of a site.yaml is about what may leave the site: `fedquilt.federation.site.config` reads it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedquilt.common.validation import first_problem
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError, unknown
from fedquilt.graphs.align import with_classes
from fedquilt.graphs.client_split import SITE_SEED
from fedquilt.graphs.copies import with_copies
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.split import GIVEN, format_split, parse_split
from fedquilt.graphs.validate import first_repeated
from fedquilt.runs.config import KeepCopies, Prepare
from fedquilt.runs.read_config import read_config

SITE_YAML = "site.yaml"


class SiteData(BaseModel):
    """A site's name, graph and split.

    Attributes:
        name: what the federation calls the site.
        graph: its graph: an npz file, or a folder of nodes and edges as csv or parquet.
        split: which labelled nodes train, validate and test, such as 40/30/30 or given; None: the graph's own where it has
            one, else 20/40/40.
        keep_copies: "neighbours", "features" or "both": nodes that are equal in that are in one part of the split, as in a run.
        prepare: how the site suggests to prepare features, as in a run; None: as its graph suggests. The coordinator decides.
        classes: the names of all classes of the federation, in the order that all sites agreed on; the site's graph may have
            only some of them. None: the graph's own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    graph: Annotated[str, Field(min_length=1)]
    split: str | None = None
    keep_copies: KeepCopies | None = None
    prepare: Prepare | None = None
    classes: Annotated[list[Annotated[str, Field(min_length=1)]] | None, Field(min_length=1)] = None

    @field_validator("classes")
    @classmethod
    def _distinct(cls, classes: list[str] | None) -> list[str] | None:
        if classes is not None and (twice := first_repeated(classes)) is not None:
            raise ValueError(f"the class {twice!r} is listed twice")
        return classes


# Fields of a site.yaml that say what leaves the site and how, not what its data is.
OTHER_FIELDS = (
    *("state", "permits", "dp", "device", "secure_aggregation", "secure_peers", "quota", "settings", "plugins"),
)


def read_site_data(path: str | os.PathLike[str]) -> SiteData:
    """What a site.yaml says of the site's data, with an absolute path; fields about what leaves the site are not looked at."""
    path = Path(path).expanduser()
    values = read_config(path, example="name: st-anna")
    known = (*SiteData.model_fields, *OTHER_FIELDS)
    for name in values:
        if name not in known:
            raise in_file(path, unknown("field", name, known))
    for name in ("name", "graph"):
        if values.get(name) is None:
            raise FedquiltError(
                f"{path} does not say '{name}'; a site needs a name and a graph (see 'fedquilt docs sites')."
            )
    try:
        site = SiteData(**{name: value for name, value in values.items() if name in SiteData.model_fields})
    except ValidationError as error:
        problem = first_problem(error)
        given = values.get(str(problem.path[0]))
        raise FedquiltError(problem.sentence(f"In {path}, {problem.path[0]}={given!r}")) from None
    return site.model_copy(update={"graph": absolute(path.resolve().parent, site.graph)})


def unsimulated(path: Path) -> list[str]:
    """The fields of a site.yaml that change what the site learns and that a run on its data alone does not follow."""
    return [name for name in ("dp", "settings") if read_config(path).get(name)]


def load_site_graph(site: SiteData) -> Graph:
    """The site's graph, read now."""
    graph = with_copies(load_graph(Path(site.graph))[0], site.keep_copies)
    return graph if site.classes is None else with_classes(graph, site.classes)


def split_name(site: SiteData, graph: Graph) -> str:
    """How the site's nodes are split: as site.yaml says, else as the graph says, else as any user's graph."""
    return site.split or (GIVEN if graph.masks is not None else format_split(Protocol().split))


def site_split(site: SiteData, graph: Graph) -> np.ndarray:
    """[n] int8: which of the site's nodes train, validate and test; the same every time."""
    return parse_split(split_name(site, graph)).draw(graph, SITE_SEED)


def absolute(folder: Path, text: str) -> str:
    """A path of a file that lies in `folder`, made absolute."""
    return str((folder / Path(text).expanduser()).absolute())


def in_file(path: Path, error: FedquiltError) -> FedquiltError:
    """An error about what a file holds, with the file's name."""
    sentence: Any = str(error)
    return FedquiltError(f"In {path}: {sentence[0].lower()}{sentence[1:]}")
