"""The class weights that a run was asked for, as a number for each class of its graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedquilt.errors import FedquiltError, unknown
from fedquilt.graphs.graph import Graph
from fedquilt.runs.read_config import read_config
from fedquilt.tasks.class_weights import BALANCED, NONE, parse_weights

FILES = (".yaml", ".yml", ".json")


def resolved_class_weights(asked: str, graph: Graph) -> str:
    """What the option `class_weights` means on a graph: "none", "balanced", or a number for each class, such as "1,1,3.5".

    Args:
        asked: the same, or weights by class, such as "ill=5,well=1", or a YAML or JSON file with them. Classes that are not
            named have weight 1.
        graph: the graph, for the names of its classes.
    """
    if asked in (NONE, BALANCED):
        return asked
    if Path(asked).suffix.lower() in FILES:
        named: Mapping[str, Any] = read_config(
            Path(asked), example="ill: 5", kind="class weights", content="classes and their weights"
        )
    elif "=" in asked:
        named = dict(_pair(part) for part in asked.split(","))
    else:
        parse_weights(asked, graph.classes)
        return asked
    names = graph.class_names or tuple(map(str, range(graph.classes)))
    for name in named:
        if name not in names:
            raise unknown("class", name, names)
    text = ",".join(_number(named.get(name, 1.0), name) for name in names)
    parse_weights(text, graph.classes)
    return text


def _pair(part: str) -> tuple[str, str]:
    name, equals, weight = part.rpartition("=")
    if not equals:
        raise FedquiltError(
            f"The class weight '{part}' has no '='; write weights as ill=5,well=1, or one number a class."
        )
    return name.strip(), weight.strip()


def _number(value: Any, name: str) -> str:
    try:
        if isinstance(value, bool):
            raise ValueError
        return f"{float(value):.12g}"
    except (TypeError, ValueError):
        raise FedquiltError(f"The weight of the class '{name}' is '{value}', which is no number.") from None
