"""The options that say how tables are read, as a command gets them."""

from __future__ import annotations

import inspect
from typing import Any

from fedquilt.cli.table_options import takes_table_options
from fedquilt.graphs.tables import TableOptions


def test_every_key_of_graph_yaml_is_an_option() -> None:
    got: dict[str, Any] = {}

    def command(path: str, *, options: dict[str, Any]) -> None:
        got.update(options, path=path)

    decorated = takes_table_options(command)
    names = list(inspect.signature(decorated).parameters)
    assert names == ["path", *TableOptions.model_fields] or set(names) == {"path", *TableOptions.model_fields}
    values = dict.fromkeys(TableOptions.model_fields)
    decorated(path="x", **{**values, "id": "patient", "drop": "a, b,", "cap": 3})
    assert got == {"path": "x", "id": "patient", "drop": ["a", "b"], "cap": 3}
