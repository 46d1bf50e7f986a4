"""How a user's tables are to be read: graph.yaml beside them, or the options of `fedquilt graph import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fedquilt.common.read_limit import read_small
from fedquilt.common.validation import first_problem
from fedquilt.common.yaml_text import LARGEST, YamlError, parse_yaml
from fedquilt.errors import FedquiltError, unknown
from fedquilt.graphs.validate import first_repeated

GRAPH_YAML = "graph.yaml"
CAP = 20
MOST_CATEGORIES = 10_000


def _text(value: Any) -> Any:
    """YAML reads -999 as a number, where the text of a cell is meant."""
    return str(value) if type(value) in (int, float) else value


Name = Annotated[str, Field(min_length=1)]
Cell = Annotated[str, Field(max_length=200), BeforeValidator(_text)]


class TableOptions(BaseModel):
    """How tables are read; the keys of graph.yaml.

    Attributes:
        id, label, split, client: the names of these columns of the table of nodes; None for split and client: there is none.
        label_type: "class" or "number"; None: numbers where a label is a fraction, below -1 or too large for a class.
        source, target, weight: the names of these columns of the table of edges.
        categories: the columns whose values are categories, also where they look like numbers; with a list of values for a
            column, these are its categories in this order, and all other values are "other".
        numeric: the columns that have to be numbers.
        drop: the columns to leave out.
        cap: how many categories of a column get a feature of their own, the most frequent ones; the others are "other".
        missing: further texts that mean a missing value, such as -999.
        indicators: the columns that get a feature for "is missing" even where no value is missing, so that the tables of
            several sites have the same features.
        separator, decimal, encoding: of csv files; None: found out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Name | None = None
    label: Name | None = None
    label_type: Literal["class", "number"] | None = None
    split: Name | None = "split"
    client: Name | None = "client"
    source: Name | None = None
    target: Name | None = None
    weight: Name | None = None
    categories: list[Name] | dict[Name, Annotated[list[Cell], Field(max_length=MOST_CATEGORIES)] | None] = []
    numeric: list[Name] = []
    drop: list[Name] = []
    cap: Annotated[int, Field(ge=1, le=MOST_CATEGORIES)] = CAP
    missing: list[Cell] = []
    indicators: list[Name] = []
    separator: Literal[",", ";", "\t", "|", "tab"] | None = None
    decimal: Literal[".", ","] | None = None
    encoding: Literal["utf-8", "utf-16", "latin-1", "cp1252"] | None = None

    @property
    def values(self) -> dict[str, tuple[str, ...] | None]:
        """The columns that are categories, with their values where these are given."""
        if isinstance(self.categories, list):
            return dict.fromkeys(self.categories)
        return {name: None if values is None else tuple(values) for name, values in self.categories.items()}

    def says(self, key: str) -> bool:
        """Whether the user gave this key."""
        return key in self.model_fields_set

    def changed(self, values: dict[str, Any], where: str = "The options") -> TableOptions:
        """These options with other values for some keys, as the command line gives them; None: not given."""
        given = {key: value for key, value in values.items() if value is not None}
        return _build({**self.model_dump(exclude_unset=True), **given}, where)


def read_table_options(folder: Path) -> TableOptions:
    """What the folder's graph.yaml says; the defaults where it has none."""
    path = folder / GRAPH_YAML
    if not path.exists():
        return TableOptions()
    try:
        values = parse_yaml(read_small(path, LARGEST))
    except YamlError as error:
        raise FedquiltError(f"{path} {error}.") from error
    if values is None:
        return TableOptions()
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise FedquiltError(f"{path} has no keys; write lines such as 'id: patient' (see 'fedquilt docs data').")
    return _build(values, str(path))


def table_options(path: Path, values: dict[str, Any]) -> TableOptions:
    """How the tables at `path` (a folder, or a table in it) are read: as `values` say, else as the graph.yaml beside them."""
    return read_table_options(path if path.is_dir() else path.parent).changed(values)


def _build(values: dict[str, Any], where: str) -> TableOptions:
    for key in values:
        if key not in TableOptions.model_fields:
            raise FedquiltError(f"{where}: {unknown('key', key, TableOptions.model_fields)}")
    try:
        options = TableOptions(**values)
    except ValidationError as error:
        problem = first_problem(error)
        raise FedquiltError(f"{where}: '{problem.path[0]}' is not possible: {problem.message}.") from None
    for name, cells in options.values.items():
        if cells is not None and (twice := first_repeated(cells)) is not None:
            raise FedquiltError(f"{where}: the column '{name}' has the category '{twice}' twice; name each once.")
    both = [name for name in options.drop if name in (*options.values, *options.numeric)]
    both += [name for name in options.numeric if name in options.values]
    if both:
        raise FedquiltError(f"{where}: the column '{both[0]}' is named under two of categories, numeric and drop.")
    return options
