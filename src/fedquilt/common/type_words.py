"""A type annotation in words, for help texts and documentation."""

from __future__ import annotations

import re
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin


def type_in_words(annotation: Any) -> str:
    """An option's type as a user would say it: `number > 0`, `gcn | sage`, `true | false`, `list of whole numbers ≥ 1`."""
    simple = {type(None): "none", bool: "true | false", int: "whole number", float: "number", str: "text"}
    if isinstance(annotation, type) and annotation in simple:
        return simple[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return f"{type_in_words(arguments[0])} {', '.join(_bounds(arguments[1:]))}".rstrip()
    if origin is Literal:
        return " | ".join(str(value) for value in arguments)
    if origin in (Union, types.UnionType):
        return " | ".join(type_in_words(part) for part in arguments)
    if origin is list:
        return f"list of {type_in_words(arguments[0]).replace('number', 'numbers', 1)}"
    if origin is dict:
        return "names and values"
    return getattr(annotation, "__name__", str(annotation))


def short_number(value: float) -> str:
    """A number as people write it: 1, 0.2, 1e-5, 1e9."""
    return re.sub(r"e(-?)\+?0*", r"e\1", f"{value:g}")


def _bounds(metadata: tuple[Any, ...]) -> list[str]:
    """The bounds that pydantic's `Field` carries."""
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    limits = [limit for item in metadata for limit in getattr(item, "metadata", [item])]
    return [f"{sign} {short_number(getattr(m, key))}" for m in limits for key, sign in signs.items() if hasattr(m, key)]
