"""YAML and JSON files: values written as they are, and texts that parsers trip over."""

from __future__ import annotations

import json
import random
from typing import Any

import yaml

from fuzz.odd_values import mutated

# Nine levels of nine aliases: 400 bytes that mean 10^9 values.
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


def text_of(value: Any, rng: random.Random) -> bytes:
    """A value as YAML or as JSON."""
    try:
        if rng.random() < 0.5:
            return json.dumps(value).encode("utf-8", "surrogatepass")
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return repr(value).encode("utf-8", "surrogatepass")


def odd_file(good: dict[str, Any], rng: random.Random) -> tuple[bytes, str]:
    """A file that was meant to hold `good`, and what is odd about it."""
    if rng.random() < 0.6:
        value: Any = good
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            value = mutated(value, rng)
        return text_of(value, rng), "an odd value"
    text = yaml.safe_dump(good, sort_keys=False)
    name, sort = rng.choice(sorted(_TEXTS.items()))
    return sort(text, rng), name


def _first_key(text: str) -> str:
    return text.split(":", 1)[0]


_TEXTS: dict[str, Any] = {
    "aliases": lambda text, rng: (LAUGHS + f"{_first_key(text)}: *a{rng.randint(5, 9)}\n").encode(),
    "aliases beside": lambda text, rng: (text + LAUGHS).encode(),
    "merged aliases": lambda text, rng: (
        "m0: &m0 {x: 1}\n"
        + "".join(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}], y{n}: 1}}\n" for n in range(1, 9))
        + text
    ).encode(),
    "a list in itself": lambda text, rng: (f"{_first_key(text)}: &a [*a]\n").encode(),
    "deep": lambda text, rng: (
        f"{_first_key(text)}: {'[' * (n := rng.choice((900, 20_000, 100_000)))}{']' * n}\n"
    ).encode(),
    "deep blocks": lambda text, rng: b"".join(b" " * n + b"a:\n" for n in range(rng.choice((300, 1500)))),
    "deep and open": lambda text, rng: b"[" * 50_000,
    "many documents": lambda text, rng: (text + "---\n" + text).encode(),
    "a Python object": lambda text, rng: b"a: !!python/object/apply:os.system ['touch pwned']\n",
    "not UTF-8": lambda text, rng: text.encode() + b"name: \xff\xfe\x00\n",
    "UTF-16": lambda text, rng: text.encode("utf-16"),
    "NUL": lambda text, rng: text.encode() + b"name: a\x00b\n",
    "tabs": lambda text, rng: text.replace(" ", "\t").encode(),
    "huge whole number": lambda text, rng: (f"{_first_key(text)}: {'9' * 6000}\n").encode(),
    "long line": lambda text, rng: (f"{_first_key(text)}: {'x' * 3_000_000}\n").encode(),
    "many keys": lambda text, rng: "".join(f"k{n}: {n}\n" for n in range(30_000)).encode(),
    "a date": lambda text, rng: (f"{_first_key(text)}: 2024-13-45\n").encode(),
    "binary": lambda text, rng: (f"{_first_key(text)}: !!binary 8J8\n").encode(),
    "a set": lambda text, rng: (f"{_first_key(text)}: !!set {{a, b}}\n").encode(),
    "a key that is a list": lambda text, rng: b"? [a, b]\n: c\n" + text.encode(),
    "a key twice": lambda text, rng: text.encode() + text.encode(),
    "a surrogate": lambda text, rng: (f'{_first_key(text)}: "\\ud800"\n').encode(),
    "an escape": lambda text, rng: (f'{_first_key(text)}: "\\e[2J\\e]0;x\\a"\n').encode(),
    "an escape in a name": lambda text, rng: b'"\\e[31mname": 1\n' + text.encode(),
    "empty": lambda text, rng: b"",
    "only a comment": lambda text, rng: b"# nothing\n",
    "a scalar": lambda text, rng: b"hello\n",
    "bytes at random": lambda text, rng: rng.randbytes(rng.choice((1, 40, 3000))),
    "cut short": lambda text, rng: text.encode()[: rng.randrange(len(text))],
    "bits flipped": lambda text, rng: _flipped(text.encode(), rng),
}


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 10))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)
