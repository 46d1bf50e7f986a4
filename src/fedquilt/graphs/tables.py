"""Read a graph from a folder of tables: nodes.csv and edges.csv, or the same as parquet. See `docs/data.md`."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedquilt.common.read_limit import check_size, read_bounded
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.validate import PARTS, first_repeated

RESERVED = ("id", "label", "split")
EDGE_COLUMNS = (("source", "target"), ("src", "dst"))
LONGEST_LINE = 2**26  # characters
_CHECKED_ROWS = 2**16  # between two looks at how much was read
_ROW_BYTES = 400  # that a node's id, label, split and row number take, about
_EDGE_COPIES = 6  # edges are sorted, compared and stacked
WHOLE = re.compile(r"[+-]?\d+(\.0*)?")


@dataclass
class _Nodes:
    """The rows of nodes.csv or nodes.parquet in file order: ids, labels and splits as text, features as numbers."""

    path: Path
    ids: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    splits: list[str] | None = None
    rows: list[int] = field(default_factory=list)
    x: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))
    features: tuple[str, ...] = ()


def read_tables(folder: Path, labelled: bool = True) -> Graph:
    """Read the graph in a folder that has nodes.csv (or nodes.parquet) and edges.csv (or edges.parquet).

    `folder` may be one table of nodes, which then have no edges. Unless `labelled`, all labels may be empty, or their column
    missing.
    """
    if folder.is_file():
        nodes_path, edges_path = folder, None
    else:
        nodes_path, edges_path = _find(folder, "nodes"), _find(folder, "edges")
    nodes = _read_nodes(nodes_path, labelled)
    place: dict[str, int] = {}
    for number, (row, name) in enumerate(zip(nodes.rows, nodes.ids, strict=True)):
        if not name:
            raise FedquiltError(f"{_row_of(nodes_path, row)} has no id; give every node one.")
        if place.setdefault(name, number) != number:
            raise FedquiltError(f"{_row_of(nodes_path, row)} has the id '{name}' again; give every node its own.")
    if not place:
        raise FedquiltError(f"{nodes_path} has no nodes; a graph needs at least one.")
    y, names = _labels(nodes, nodes_path.parent / "classes.txt", labelled)
    masks = None if nodes.splits is None else _masks(nodes)
    return Graph.from_arrays(
        folder.resolve().name,
        np.zeros((2, 0), dtype=np.int64) if edges_path is None else _edges(edges_path, place, nodes_path.name),
        nodes.x,
        y,
        classes=None if names is None else len(names),
        masks=masks,
        ids=np.array(nodes.ids),
        class_names=names,
        feature_names=nodes.features,
        where=str(nodes_path),
        labelled=labelled,
    )


def _find(folder: Path, stem: str) -> Path:
    found = [folder / f"{stem}{end}" for end in (".csv", ".parquet") if (folder / f"{stem}{end}").is_file()]
    if not found:
        raise FedquiltError(
            f"{folder} has no {stem}.csv or {stem}.parquet; a folder of tables needs nodes and edges (see "
            "docs/data.md)."
        )
    if len(found) == 2:
        raise FedquiltError(
            f"{folder} has both {stem}.csv and {stem}.parquet; remove one, so that it is clear which is meant."
        )
    return found[0]


def _row_of(path: Path, row: int) -> str:
    return f"{path}, {'line' if path.suffix == '.csv' else 'row'} {row},"


# --- nodes


def _read_nodes(path: Path, labelled: bool) -> _Nodes:
    return _nodes_from_csv(path, labelled) if path.suffix == ".csv" else _nodes_from_parquet(path, labelled)


def _columns_of_nodes(path: Path, header: list[str], labelled: bool) -> tuple[dict[str, int], list[int]]:
    """Find the positions of the columns id, label and split, and those of the features."""
    lower = [name.strip().lower() for name in header]
    for name in ("id", "label") if labelled else ("id",):
        if name not in lower:
            hint = "; separate columns by commas" if len(header) == 1 else ""
            raise FedquiltError(f"{path} has no column '{name}' (it has: {_shortened(header)}){hint}.")
    if (twice := first_repeated(lower)) is not None:
        raise FedquiltError(f"{path} has the column '{twice}' more than once; give every column its own name.")
    fixed = {name: lower.index(name) for name in RESERVED if name in lower}
    features = [number for number in range(len(header)) if number not in fixed.values()]
    if not features:
        raise FedquiltError(f"{path} has no feature columns; add at least one besides id, label and split.")
    return fixed, features


def _nodes_from_csv(path: Path, labelled: bool) -> _Nodes:
    rows = _csv_rows(path)
    header = next(rows, (0, []))[1]
    fixed, features = _columns_of_nodes(path, header, labelled)
    nodes = _Nodes(path, splits=[] if "split" in fixed else None, features=_names(header, features))
    # A flat C array: a list of Python floats for each node would take ten times the memory.
    values = array("f")
    for row, cells in rows:
        if len(cells) != len(header):
            raise FedquiltError(
                f"{_row_of(path, row)} has {len(cells)} columns but the header has {len(header)}; make them agree."
            )
        nodes.rows.append(row)
        if row % _CHECKED_ROWS == 0:
            check_size(path, len(nodes.rows) * _ROW_BYTES + len(values) * 8)
        nodes.ids.append(cells[fixed["id"]].strip())
        nodes.labels.append(cells[fixed["label"]].strip() if "label" in fixed else "")
        if nodes.splits is not None:
            nodes.splits.append(cells[fixed["split"]].strip())
        try:
            values.extend([float(cells[number]) for number in features])
        except (ValueError, OverflowError) as error:
            bad = next(number for number in features if not _is_number(cells[number]))
            raise FedquiltError(
                f"{_row_of(path, row)} has '{cells[bad]}' in the column '{header[bad]}'; features must be numbers."
            ) from error
    nodes.x = np.array(values, dtype=np.float32).reshape(len(nodes.ids), len(features))
    return nodes


def _nodes_from_parquet(path: Path, labelled: bool) -> _Nodes:
    table = _parquet(path)
    fixed, features = _columns_of_nodes(path, table.column_names, labelled)
    texts = {name: [_text(value) for value in table.column(number).to_pylist()] for name, number in fixed.items()}
    columns = []
    for number in features:
        column, name = table.column(number), table.column_names[number]
        if column.null_count:
            row = 1 + [value is None for value in column.to_pylist()].index(True)
            raise FedquiltError(f"{_row_of(path, row)} has no value in the column '{name}'; features must be numbers.")
        try:
            columns.append(np.asarray(column.to_numpy()).astype(np.float32))
        except (ValueError, TypeError) as error:
            raise FedquiltError(
                f"{path} has a column '{name}' of type {column.type}; features must be numbers."
            ) from error
    return _Nodes(
        path,
        ids=texts["id"],
        labels=texts.get("label", [""] * table.num_rows),
        splits=texts.get("split"),
        rows=list(range(1, table.num_rows + 1)),
        x=np.stack(columns, axis=1),
        features=_names(table.column_names, features),
    )


def _names(header: list[str], columns: list[int]) -> tuple[str, ...]:
    return tuple(header[number].strip() for number in columns)


def _labels(nodes: _Nodes, classes: Path, labelled: bool) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """[N] labels, and the names of the classes where labels are words."""
    present = {label for label in nodes.labels if label not in ("", "-1", "-1.0")}
    used = sorted(present)
    if classes.exists():
        names = _class_names(classes)
        unlisted = sorted(present.difference(names))
        if unlisted and labelled:
            missing = set(unlisted)
            row, label = next(pair for pair in zip(nodes.rows, nodes.labels, strict=True) if pair[1] in missing)
            raise FedquiltError(
                f"{_row_of(nodes.path, row)} has the label '{label}', which is not in {classes}; add it there."
            )
        # Labels are not needed here, so classes that classes.txt does not list are appended.
        names += tuple(unlisted)
    elif all(WHOLE.fullmatch(label) for label in used):
        return np.array([_label(label) if label in present else -1 for label in nodes.labels], dtype=np.int64), None
    else:
        names = tuple(used)
    code = {name: number for number, name in enumerate(names)}
    return np.array([code.get(label, -1) for label in nodes.labels], dtype=np.int64), names


def _class_names(path: Path) -> tuple[str, ...]:
    """The lines of classes.txt."""
    names = tuple(line.strip() for line in _read_text(path).splitlines() if line.strip())
    if (twice := first_repeated(names)) is not None:
        raise FedquiltError(f"{path} has the class '{twice}' more than once; name each class in one line.")
    return names


def _masks(nodes: _Nodes) -> dict[str, np.ndarray]:
    splits = nodes.splits or []
    for row, part in zip(nodes.rows, splits, strict=True):
        if part not in ("", *PARTS):
            raise FedquiltError(
                f"{_row_of(nodes.path, row)} has the split '{part}'; write train, val, test or nothing."
            )
    parts = np.array(splits)
    return {part: parts == part for part in PARTS}


# --- edges


def _edges(path: Path, place: dict[str, int], nodes_file: str) -> np.ndarray:
    rows = _csv_rows(path) if path.suffix == ".csv" else _parquet_edge_rows(path)
    header = next(rows, (0, []))[1]
    source, target = _columns_of_edges(path, header)
    pairs = array("q")
    # Many edge lists have no header; a first row that names two nodes is an edge, not a heading.
    if header[source].strip() in place and header[target].strip() in place:
        pairs.extend((place[header[source].strip()], place[header[target].strip()]))
    for row, cells in rows:
        if len(cells) <= max(source, target):
            raise FedquiltError(f"{_row_of(path, row)} has {len(cells)} columns; an edge needs a source and a target.")
        for name in (cells[source].strip(), cells[target].strip()):
            if name not in place:
                raise FedquiltError(
                    f"{_row_of(path, row)} has an edge to '{name}', which is not an id in {nodes_file}; add the "
                    "node or drop the edge."
                )
            pairs.append(place[name])
        if row % _CHECKED_ROWS == 0:
            check_size(path, len(pairs) * 8 * _EDGE_COPIES)
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _columns_of_edges(path: Path, header: list[str]) -> tuple[int, int]:
    lower = [name.strip().lower() for name in header]
    for source, target in EDGE_COLUMNS:
        if source in lower and target in lower:
            return lower.index(source), lower.index(target)
    if len(header) == 2:
        return 0, 1
    raise FedquiltError(f"{path} has no columns 'source' and 'target' (it has: {_shortened(header)}); name them so.")


def _parquet_edge_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    table = _parquet(path)
    yield 0, table.column_names
    source, target = _columns_of_edges(path, table.column_names)
    columns = [column.to_pylist() for column in table.columns]
    blank = [""] * len(columns)
    for row, (u, v) in enumerate(zip(columns[source], columns[target], strict=True), start=1):
        cells = blank.copy()
        cells[source], cells[target] = _text(u), _text(v)
        yield row, cells


# --- files


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of a csv file, its header first, without blank lines."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(_lines(file, path), strict=True)
            yield from ((reader.line_num, cells) for cells in reader if cells)
    except UnicodeDecodeError as error:
        raise FedquiltError(f"{path} is not text in UTF-8; save it as such.") from error
    except csv.Error as error:
        raise FedquiltError(f"{path} is not a sound csv file ({error}); check its quotes and commas.") from error
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be opened ({error.strerror or error}); check that you may read it."
        ) from error


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    """The lines of a file; one that would fill the memory is no line."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise FedquiltError(f"{path} has a line of more than {LONGEST_LINE:,} characters; check how its lines end.")
        yield line


def _parquet(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise FedquiltError(
            f"{path} needs pyarrow to be read; install it with `pip install 'fedquilt[parquet]'` or save the "
            "table as csv."
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            # A column that repeats one value takes a few bytes in the file, however many rows it has.
            check_size(path, file.metadata.num_rows * file.metadata.num_columns * 8)
            batches, size = [], 0
            for batch in file.iter_batches(_CHECKED_ROWS):
                size += batch.nbytes
                check_size(path, size)
                batches.append(batch)
            return pyarrow.Table.from_batches(batches, file.schema_arrow)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise FedquiltError(f"{path} is not a parquet file, or is damaged; write it again.") from error


def _read_text(path: Path) -> str:
    try:
        return read_bounded(path, LONGEST_LINE).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FedquiltError(f"{path} is not text in UTF-8; save it as such.") from error
    except ValueError as error:
        raise FedquiltError(f"{path} cannot be read: {error}.") from error
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be opened ({error.strerror or error}); it has to be a file that you may read."
        ) from error


def _text(value: Any) -> str:
    """Format a parquet cell as in a csv file. 3.0 becomes 3, because a column with gaps stores whole numbers as floats."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _label(text: str) -> int:
    """A label as a number; one with too many digits to be a class is as large as any."""
    return int(float(text)) if len(text) < 19 else 10**18 * (-1 if text.startswith("-") else 1)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shortened(header: list[str]) -> str:
    shown = ", ".join(header[:6])
    return f"{shown}, ..." if len(header) > 6 else shown or "nothing"
