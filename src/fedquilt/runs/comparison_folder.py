"""The folder of a comparison: compare.json with the configurations and what failed, and a run folder for each method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedquilt.common.files import write_json
from fedquilt.common.json_text import read_json
from fedquilt.common.new_folder import is_leftover
from fedquilt.errors import FedquiltError
from fedquilt.runs.failed_method import FAILED, FailedMethod

COMPARISON = "compare.json"  # the configurations of a comparison's runs, in the order of its table


def is_comparison(path: Path) -> bool:
    """Whether a folder holds several runs rather than being one."""
    if (path / "config.json").is_file() or not path.is_dir():
        return False
    return (path / COMPARISON).is_file() or bool(_inner(path))


def runs_of(path: Path) -> list[Path]:
    """The run folders of a comparison, in the order of its table; runs that did not start yet are left out."""
    if (path / COMPARISON).is_file():
        return [path / c["method"] for c in configs_of(path) if (path / c["method"] / "config.json").is_file()]
    return _inner(path)


def configs_of(path: Path) -> list[dict[str, Any]]:
    """The configurations in compare.json; an empty list where the folder has no such file."""
    try:
        configs = _read(path)["configs"]
        if not all(isinstance(config["method"], str) for config in configs):
            raise ValueError
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        raise FedquiltError(f"{path / COMPARISON} cannot be read; resume the runs in {path} one by one.") from None
    return list(configs)


def versions_of(path: Path) -> Any:
    """The versions in a compare.json that `configs_of` can read; None where there are none."""
    return _read(path).get("versions") if (path / COMPARISON).is_file() else None


def failed_in(path: Path) -> dict[str, FailedMethod]:
    """The methods that failed by compare.json, with why; empty where there is no such file."""
    failed = _read(path).get(FAILED) if (path / COMPARISON).is_file() else None
    return (
        {str(name): FailedMethod(str(name), str(why)) for name, why in failed.items()}
        if isinstance(failed, dict)
        else {}
    )


def write_failed(path: Path, failed: Mapping[str, str]) -> None:
    """Note in compare.json which methods failed, and why; no entry where none did."""
    content = {name: value for name, value in _read(path).items() if name != FAILED}
    write_json(path / COMPARISON, content | ({FAILED: dict(failed)} if failed else {}))


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = read_json(path / COMPARISON)
    return content


def _inner(path: Path) -> list[Path]:
    found = (config.parent for config in path.glob("*/config.json"))
    return sorted(folder for folder in found if not is_leftover(folder.name))
