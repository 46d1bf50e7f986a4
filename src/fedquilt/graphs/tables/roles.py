"""Which column of a table of nodes is what: the id, the label, the split, the client, a feature, or left out."""

from __future__ import annotations

from fedquilt.graphs.encoding import Encoding
from fedquilt.graphs.tables.cells import Cells
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.problems import Problems, listed, quoted
from fedquilt.graphs.validate import first_repeated

LONGEST_NAME = 1000  # characters of an id, a class or a column; all ids are stored as wide as the longest


def find_columns(
    table: Cells, options: TableOptions, problems: Problems, labelled: bool, encoding: Encoding | None
) -> tuple[dict[str, int], list[int], list[int]] | None:
    """The columns of id, label, split and client, those of the features, and those that are left out, by their numbers."""
    path, header = table.path, table.header
    lower = [name.lower() for name in header]
    if not header:
        problems.add(path, "it is empty; its first line has to name the columns, such as id,label,age")
        return None
    if any(len(name) > LONGEST_NAME for name in header):
        problems.add(
            path, f"a column's name has more than {LONGEST_NAME:,} characters; its first line has to name the columns"
        )
        return None
    if (twice := first_repeated(name for name in lower if name)) is not None:
        problems.add(path, f"it has the column {quoted(twice)} more than once; give every column its own name")
        return None
    wanted = _wanted(options, encoding)
    fixed: dict[str, int] = {}
    for role, (name, needed) in wanted.items():
        at = _place(name, header, lower)
        if at is not None:
            fixed[role] = at
        # A table to predict for need not have what graph.yaml says of the table that was trained on.
        elif (needed and encoding is None) or role == "id" or (role == "label" and labelled):
            hint = _hint(table, role)
            problems.add(path, f"it has no column {quoted(name)} (it has: {listed(header)}){hint}")
    if "id" not in fixed or ("label" not in fixed and labelled):
        return None
    drop = options.drop if encoding is None else (*options.drop, *encoding.dropped)
    named = {key: [*names] for key, names in (("drop", options.drop), ("categories", options.values))}
    named |= {"numeric": options.numeric, "indicators": options.indicators}
    for key, names in named.items():
        for name in names:
            if _place(name, header, lower) is None and encoding is None:
                problems.add(
                    path, f"it has no column {quoted(name)}, which is named under {key} (it has: {listed(header)})"
                )
    dropped = {at for name in drop if (at := _place(name, header, lower)) is not None}
    others = [at for at in range(len(header)) if at not in fixed.values()]
    left_out = [at for at in others if at in dropped or not header[at]]
    features = [at for at in others if at not in left_out]
    if encoding is not None:
        features = _as_encoded(table, encoding, features, problems)
        return (fixed, features, left_out) if len(features) == len(encoding.columns) else None
    if not features:
        problems.add(path, "it has no feature columns; add at least one besides id, label and split")
        return None
    return fixed, features, left_out


def _wanted(options: TableOptions, encoding: Encoding | None) -> dict[str, tuple[str, bool]]:
    """The name of each fixed column, and whether the user named it."""
    wanted = {}
    for role in ("id", "label", "split", "client"):
        said = options.says(role)
        name = getattr(options, role)
        if encoding is not None and not said:
            features = {column.name for column in encoding.columns}
            name = getattr(encoding, role) or (None if role in features else role)
        if name is None and role in ("id", "label"):
            name, said = role, False
        if name is not None:
            wanted[role] = (name, said)
    return wanted


def _as_encoded(table: Cells, encoding: Encoding, features: list[int], problems: Problems) -> list[int]:
    """The columns of an encoding, in its order. One that is not there, and one that it does not know, are problems."""
    place = {table.header[at]: at for at in features}
    known = {column.name for column in encoding.columns}
    for name in (column.name for column in encoding.columns if column.name not in place):
        text = f"it has no column {quoted(name)}, which the model was trained on; add it, empty if need be"
        problems.add(table.path, text)
    for name in place:
        if name not in known:
            text = f"it has a column {quoted(name)}, which the model was not trained on; leave it out"
            problems.add(table.path, text)
    return [place[column.name] for column in encoding.columns if column.name in place]


def _place(name: str, header: list[str], lower: list[str]) -> int | None:
    if name in header:
        return header.index(name)
    return lower.index(name.lower()) if name.lower() in lower else None


def _hint(table: Cells, role: str) -> str:
    """What to do about a missing column, with a column that looks like the one that is meant."""
    how = f"name the right one with --{role} or in graph.yaml"
    if role == "id":
        for at, name in enumerate(table.header[:50]):
            cells = table.column(at)
            if name and cells and len(set(cells)) == len(cells) and all(cells):
                return f"; {how}, such as '{role}: {name}'"
    return f"; {how}"
