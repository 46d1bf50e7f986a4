"""Values that files of people who mean well, and of people who do not, have in places where others are expected."""

from __future__ import annotations

import random
from typing import Any

LONE_SURROGATE = "\ud800"
ESCAPE = "\x1b[2J\x1b[31mfedquilt: done\x07"
LONG = 5000


def odd_text(rng: random.Random) -> str:
    """A text that is hard to print, to store or to use as a path."""
    return rng.choice(
        [
            "",
            " ",
            "\x00",
            f"a{LONE_SURROGATE}b",
            ESCAPE,
            "x" * LONG,
            "../" * 40 + "etc/passwd",
            "/dev/null",
            "/proc/self/mem",
            "~root/x",
            "\u202egnp.hparg",
            "a\nb",
            "NaN",
            "1e400",
            "9" * 400,
            "{}",
            "-",
            "\ufeffname",
            "😀" * 30,
            "[red]x[/red",
            "%s%n",
        ]
    )


def odd_number(rng: random.Random) -> Any:
    """A number at an edge."""
    return rng.choice(
        [
            *(0, -1, 1, 2**31, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400, 0.0, -0.0, 1e-320, 3e38, 1e39, 1e308, 0.5),
            *(float("nan"), float("inf"), float("-inf"), True, False),
        ]
    )


def odd_value(rng: random.Random, depth: int = 0) -> Any:
    """Any odd value that YAML and JSON have."""
    sort = rng.randrange(10)
    if sort < 3:
        return odd_number(rng)
    if sort < 6:
        return odd_text(rng)
    if sort == 6:
        return None
    if sort == 7:
        return nested(rng.choice((3, 60, 400)), rng.choice(([], {}, 1)))
    if depth > 2:
        return []
    if sort == 8:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {odd_text(rng): odd_value(rng, depth + 1) for _ in range(rng.randrange(3))}


def nested(depth: int, inner: Any) -> Any:
    """A list in a list in a list."""
    for _ in range(depth):
        inner = [inner]
    return inner


def mutated(value: Any, rng: random.Random) -> Any:
    """A copy of nested lists and dicts in which one place has an odd value, is gone, or has an odd name."""
    places = list(_places(value))
    if not places:
        return odd_value(rng)
    path = rng.choice(places)
    return _with(value, path, rng)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*path, name)
        yield from _places(inner, (*path, name))


def _with(value: Any, path: tuple[Any, ...], rng: random.Random) -> Any:
    first, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        copy[first] = _with(copy[first], tuple(rest), rng)
        return copy
    what = rng.randrange(8)
    if what == 0:
        del copy[first]
    elif what == 1 and isinstance(copy, dict):
        copy[rng.choice((odd_text(rng), 7, None, True, 1.5))] = copy.pop(first)
    else:
        copy[first] = odd_value(rng)
    return copy
