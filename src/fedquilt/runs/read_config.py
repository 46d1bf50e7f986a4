"""Read the options of a run from a config file, from a run folder's config.json, and from texts such as lr=0.005."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedquilt.common.read_limit import read_bounded
from fedquilt.common.yaml_text import LARGEST, YamlError, parse_yaml
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import GIVEN, GRAPH_FILE, copies_kept, copies_kept_before

_RECORDED = ("resolved", "versions")  # facts in a run folder's config.json that are no options


def read_config(
    path: Path, example: str = "method: fedpub", kind: str = "config", content: str = "names and values"
) -> dict[str, Any]:
    """Read a YAML (or JSON) file with names and values; errors name its `kind` and `content` and show the `example`."""
    try:
        values = parse_yaml(read_bounded(path, LARGEST))
    except OSError as error:
        raise FedquiltError(f"The {kind} file {path} cannot be read: {error.strerror}.") from None
    except YamlError as error:
        raise FedquiltError(f"The {kind} file {path} {error}.") from None
    except ValueError as error:  # it is too large, or there is NUL in its path
        raise FedquiltError(f"The {kind} file {path} cannot be read: {error}.") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise FedquiltError(f"The {kind} file {path} must hold {content}, such as '{example}'.")
    return values


def read_options(path: Path) -> dict[str, Any]:
    """The run options in a config file; a run folder's config.json is one."""
    values = read_config(path)
    return stored_options(values, path.parent) if any(name in values for name in _RECORDED) else values


def stored_options(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The options in the config.json of a run `folder`, without the facts that are recorded beside them.

    The path of a graph that the run, or the comparison around it, keeps a copy of is corrected where the folder was moved.
    """
    options = {name: value for name, value in values.items() if name not in _RECORDED}
    dataset = str(options.get("dataset"))
    if options.get("clients_from"):
        return options
    if "keep_copies" not in options and (before := copies_kept_before(dataset)) != copies_kept(dataset):
        options["keep_copies"] = before  # the run was made before there was this option
    if "prepare" not in options and not _is_named(dataset):
        options["prepare"] = "none"  # so was this one
    if dataset in (GIVEN, GRAPH_FILE) or (Path(dataset).name == GRAPH_FILE and not Path(dataset).exists()):
        folder = folder.resolve()
        copies = [place / GRAPH_FILE for place in (folder, folder.parent) if (place / GRAPH_FILE).is_file()]
        if copies:
            options["dataset"] = str(copies[0])
    return options


def _is_named(dataset: str) -> bool:
    from fedquilt.datasets.catalogue import in_catalogue  # slow: a page of a run does not need it

    return in_catalogue(dataset)


def parse_settings(pairs: list[str], flag: str = "--set", example: str = "lr=0.005") -> dict[str, Any]:
    """The settings in texts such as "lr=0.005" and "masking=false"; values are read as YAML."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise FedquiltError(f"{flag} {pair} is not of the form name=value, such as {flag} {example}.")
        try:
            out[name.strip()] = _number(value) if _number(value) is not None else parse_yaml(value)
        except YamlError:
            raise FedquiltError(
                f"{flag} {pair}: the value cannot be read; write it as a number, true, false or a word."
            ) from None
    return out


def _number(text: str) -> float | int | None:
    # YAML 1.1 reads 1e-3 as text (it wants 1.0e-3); people write 1e-3.
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
