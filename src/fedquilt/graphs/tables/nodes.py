"""The table of nodes: ids, labels, the given split, the clients and the features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedquilt.common.read_limit import check_size, read_small
from fedquilt.errors import FedquiltError
from fedquilt.graphs.encoding import Encoding
from fedquilt.graphs.label_numbers import presence
from fedquilt.graphs.tables.cells import Cells
from fedquilt.graphs.tables.dialect import LONGEST_LINE
from fedquilt.graphs.tables.features import ColumnNote, read_features
from fedquilt.graphs.tables.label_numbers import WHOLE, read_label_numbers
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.parse import read_cells
from fedquilt.graphs.tables.problems import Problems, quoted
from fedquilt.graphs.tables.roles import LONGEST_NAME, find_columns
from fedquilt.graphs.tables.values import MISSING
from fedquilt.graphs.validate import PARTS, first_repeated

UNLABELLED = MISSING | {"-1", "-1.0"}
# Other words for the parts of a split, as people write them.
PART_WORDS = {"training": "train", "validation": "val", "valid": "val", "dev": "val", "testing": "test"}
_ROW_BYTES = 300  # that a node's id, label, split and client take, about


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of a table, in its order.

    Attributes:
        table: its cells.
        ids: [N] texts.
        y: [N] int64 labels; -1 means unlabelled.
        class_names: the names of the classes where labels are words.
        numbers: [N] float64 where labels are numbers and not classes, NaN where there is none; else None.
        masks: the given split, or None.
        clients: [N] names of the client that holds each node; None where there is no such column.
        x: [N, F] float32.
        encoding: how the columns became features.
        notes: what became of each column.
        decimal: the decimal sign of the table.
    """

    table: Cells
    ids: list[str]
    y: np.ndarray
    class_names: tuple[str, ...] | None
    numbers: np.ndarray | None
    masks: dict[str, np.ndarray] | None
    clients: np.ndarray | None
    x: np.ndarray
    encoding: Encoding
    notes: tuple[ColumnNote, ...]
    decimal: str


def read_nodes(
    path: Path, options: TableOptions, problems: Problems, labelled: bool, encoding: Encoding | None, classes: Path
) -> Nodes | None:
    """Read a table of nodes; None where a problem makes it impossible to read on, such as a column that is not there.

    Args:
        path: the csv or parquet file.
        options: how to read it.
        problems: gets all that is wrong with it.
        labelled: whether it must have a column of labels.
        encoding: how its columns are to become features; None: as they look.
        classes: the file with the names of the classes, which may not exist.
    """
    table = read_cells(path, options, problems)
    columns = find_columns(table, options, problems, labelled, encoding)
    if columns is None:
        return None
    fixed, features, left_out = columns
    if not table.rows.size:
        problems.add(path, "it has no nodes; a graph needs at least one")
        return None
    check_size(path, table.rows.size * _ROW_BYTES)
    texts = {role: table.column(at) for role, at in fixed.items()}
    ids = _checked_ids(table, texts["id"], problems)
    further = options.missing if encoding is None else encoding.missing
    labels = texts.get("label", [""] * len(ids))
    read = read_features(table, features, options, tuple(further), problems, encoding)
    texts_missing = frozenset(text.lower() for text in further)
    numbers = None
    if options.label_type == "number" or (options.label_type is None and not classes.exists()):
        numbers = read_label_numbers(table, labels, texts_missing, options, read.decimal, labelled, problems)
    if numbers is not None:
        y, names = presence(numbers), None
    else:
        y, names = _labels(table, labels, UNLABELLED | texts_missing, classes, labelled, problems)
    header = table.header
    found = encoding or Encoding(
        read.columns,
        id=header[fixed["id"]],
        **{role: header[fixed[role]] if role in fixed else None for role in ("label", "split", "client")},
        dropped=(*(header[at] for at in left_out if header[at]), *read.dropped),
        missing=tuple(further),
    )
    if encoding is None and not read.columns and not problems:
        problems.add(path, "no column has a value that could be a feature; add one besides id, label and split")
    notes = [ColumnNote(header[at], role, "") for role, at in fixed.items()]
    notes += read.notes
    notes += [ColumnNote(header[at], "left out", "as asked" if header[at] else "it has no name") for at in left_out]
    return Nodes(
        table=table,
        ids=ids,
        y=y,
        class_names=names,
        numbers=numbers,
        masks=_masks(table, texts["split"], problems) if "split" in texts else None,
        clients=_clients(table, texts["client"], problems) if "client" in texts else None,
        x=read.x,
        encoding=found,
        notes=tuple(notes),
        decimal=read.decimal,
    )


# --- what the fixed columns say


def _checked_ids(table: Cells, ids: list[str], problems: Problems) -> list[str]:
    first: dict[str, int] = {}
    for row, name in zip(table.rows.tolist(), ids, strict=True):
        if not name:
            problems.add(table.path, "it has no id; give every node one", row)
        elif len(name) > LONGEST_NAME:
            problems.add(table.path, f"its id has more than {LONGEST_NAME:,} characters; give it a shorter one", row)
        elif first.setdefault(name, row) != row:
            problems.add(
                table.path, f"the id {quoted(name)} is that of line {first[name]} too; give every node its own", row
            )
    return ids


def _labels(
    table: Cells,
    labels: list[str],
    unlabelled: set[str] | frozenset[str],
    classes: Path,
    labelled: bool,
    problems: Problems,
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """[N] labels, and the names of the classes where labels are words."""
    present = {label for label in labels if label.lower() not in unlabelled}
    used = sorted(present)
    if any(len(label) > LONGEST_NAME for label in used) and not all(WHOLE.fullmatch(label) for label in used):
        problems.add(
            table.path, f"a label has more than {LONGEST_NAME:,} characters; check which column has the labels"
        )
    if classes.exists():
        names = _class_names(classes)
        present |= {label for label in labels if label in names}
        unlisted = sorted(present.difference(names))
        if labelled and unlisted:
            missing = set(unlisted)
            for row, label in zip(table.rows.tolist(), labels, strict=True):
                if label in missing:
                    problems.add(table.path, f"the label {quoted(label)} is not in {classes.name}; add it there", row)
        # Labels are not needed otherwise, so classes that classes.txt does not list are appended.
        names += tuple(unlisted)
    elif all(WHOLE.fullmatch(label) for label in used):
        return np.array([_label(label) if label in present else -1 for label in labels], dtype=np.int64), None
    else:
        names = tuple(used)
    code = {name: number for number, name in enumerate(names)}
    return np.array([code.get(label, -1) for label in labels], dtype=np.int64), names


def _label(text: str) -> int:
    """A label as a number; one with too many digits to be a class is as large as any."""
    return int(float(text)) if len(text) < 19 else 10**18 * (-1 if text.startswith("-") else 1)


def _class_names(path: Path) -> tuple[str, ...]:
    """The lines of classes.txt."""
    names = tuple(line.strip() for line in _read_text(path).splitlines() if line.strip())
    if (twice := first_repeated(names)) is not None:
        raise FedquiltError(f"{path} has the class '{twice}' more than once; name each class in one line.")
    return names


def _read_text(path: Path) -> str:
    try:
        return read_small(path, LONGEST_LINE).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FedquiltError(f"{path} is not text in UTF-8; save it as such.") from error


def _masks(table: Cells, splits: list[str], problems: Problems) -> dict[str, np.ndarray]:
    parts = [PART_WORDS.get(part.lower(), part.lower()) for part in splits]
    for row, part, said in zip(table.rows.tolist(), parts, splits, strict=True):
        if part not in PARTS and part not in MISSING:
            problems.add(table.path, f"the split {quoted(said)} is none; write train, val, test or nothing", row)
    found = np.array(parts)
    return {part: found == part for part in PARTS}


def _clients(table: Cells, clients: list[str], problems: Problems) -> np.ndarray:
    for row, name in zip(table.rows.tolist(), clients, strict=True):
        if not name:
            problems.add(table.path, "it has no client; say for every node which client holds it", row)
        elif len(name) > LONGEST_NAME:
            problems.add(
                table.path, f"its client has more than {LONGEST_NAME:,} characters; give it a shorter name", row
            )
    return np.array([name[:LONGEST_NAME] for name in clients])
