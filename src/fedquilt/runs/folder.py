"""The run folder: config, metrics, checkpoints, models and result of a run.

<run>/config.json
      result.json
      graph.npz                            optional: a copy of a graph that was given as an object
      seed-<s>/metrics.jsonl               one record per round
               checkpoints/                the state after the last rounds
               models.safetensors, .json   the personal models, and facts about them
               server.safetensors, .json   optional: the server state that newcomers need, and facts about it
               similarity.npz              optional
               findings.npz                optional
               split-and-partition.npz     the nodes of each client, and the split
               summary.json                written last; the seed is done
      logs/<tool>/                         optional: written by `fedquilt.loggers`
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.common.archives import DamagedArchiveError, read_arrays
from fedquilt.common.files import write_json, write_npz
from fedquilt.common.json_lines import JsonLines
from fedquilt.common.json_text import read_json
from fedquilt.common.lock import locked
from fedquilt.common.sealed import DamagedError, facts_path, read_pair, write_pair
from fedquilt.errors import FedquiltError
from fedquilt.runs import checkpoint as checkpoints
from fedquilt.runs.config import RunConfig, stored_options

if TYPE_CHECKING:
    import torch

_LOCK = ".lock"

FEDERATION = "federation"  # the key in config.json that only a run with sites has


class RunFolder:
    """One run on disk. Make it with `create` or `open`. Nothing is cached: every read sees the present files."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @classmethod
    def create(cls, path: Path | None, name: str, parent: Path = Path("runs")) -> RunFolder:
        """A new, empty run folder: `path`, or when None the first free of name, name-2, ... in `parent`.

        Two processes that ask at once never get the same one.
        """
        try:
            if path is not None:
                return cls(_claim(Path(path)))
            return cls(_claim_free(Path(parent), name))
        except OSError as error:
            where = path if path is not None else parent
            raise FedquiltError(f"Cannot make a run folder at {where}: {error.strerror}.") from error

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The run folder that is already at `path`."""
        path = Path(path)
        if not path.is_dir():
            raise FedquiltError(f"There is no run folder at {path}.")
        if not (path / "config.json").is_file():
            raise FedquiltError(f"{path} is not a run folder: it has no config.json.")
        return cls(path)

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json; assign a dict to write it."""
        config = _read_json(self.path / "config.json")
        if config is None:
            raise FedquiltError(f"{self.path} is not a run folder: it has no config.json.")
        return config

    @config.setter
    def config(self, value: Mapping[str, Any]) -> None:
        write_json(self.path / "config.json", value)

    @property
    def run_config(self) -> RunConfig:
        """The configuration with which the run can be resumed."""
        options = stored_options(self.config, self.path)
        return RunConfig.build({name: value for name, value in options.items() if name in RunConfig.model_fields})

    @property
    def of_sites(self) -> bool:
        """Whether the clients are sites of a federation, which hold their own models."""
        return FEDERATION in self.config

    def check_not_of_sites(self) -> None:
        """Refuse to resume a run that only its sites can train."""
        if self.of_sites:
            raise FedquiltError(
                f"The run in {self.path} is of sites, which train it: go on with the same 'flwr run' (out is {self.path}), or "
                "'fedquilt rehearse' where it was one."
            )

    @property
    def result(self) -> dict[str, Any] | None:
        """The content of result.json, or None while the run is not done; assign a dict to write it."""
        return _read_json(self.path / "result.json")

    @result.setter
    def result(self, value: Mapping[str, Any]) -> None:
        write_json(self.path / "result.json", value)

    def seed(self, seed: int) -> SeedFolder:
        """The folder of one seed; it is made when something is first written to it."""
        return SeedFolder(self.path / f"seed-{seed}")

    def seeds(self) -> list[int]:
        """The seeds that have a folder, in rising order."""
        matches = (re.fullmatch(r"seed-(\d+)", path.name) for path in self.path.iterdir() if path.is_dir())
        return sorted(int(match[1]) for match in matches if match)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the folder for a `with` block, so that no other process trains or resumes in it."""
        return locked(self.path / _LOCK, self.path)


class SeedFolder:
    """The folder of one seed of a run."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._metrics = JsonLines(self.metrics_path, _is_record, "a round's record", compact=True)

    def __repr__(self) -> str:
        return f"SeedFolder({str(self.path)!r})"

    @property
    def metrics_path(self) -> Path:
        """The file with one record per round."""
        return self.path / "metrics.jsonl"

    def append(self, record: Mapping[str, Any], sync: bool = False) -> None:
        """Add a round's record to the metrics; with `sync` it is on the disk on return."""
        self._metrics.append(record, sync=sync)

    def records(self) -> list[dict[str, Any]]:
        """The records, oldest first; a last line that a kill left incomplete is left out."""
        return self._metrics.read()

    def truncate_after(self, round: int) -> None:
        """Delete the records and checkpoints of the rounds after `round`, from which training goes on."""
        checkpoints.drop_after(self._checkpoints, round)
        self._metrics.keep(lambda record: record["round"] <= round)

    def checkpoint(
        self, round: int, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], keep: int = 2
    ) -> None:
        """Save the state after `round` and keep the newest `keep`; see `runs.checkpoint.save`."""
        checkpoints.save(self._checkpoints, round, tensors, facts, keep)

    def latest_checkpoint(self) -> checkpoints.Checkpoint | None:
        """The newest checkpoint that verifies, or None."""
        return checkpoints.latest(self._checkpoints)

    def save_models(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Save the personal models and the facts needed to use them."""
        write_pair(self.path / "models", tensors, facts)

    def load_models(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """The tensors and facts that `save_models` wrote."""
        models = self._load_pair("models")
        if models is None:
            raise FedquiltError(f"{self.path} holds no trained models yet.")
        return models

    def save_server(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Save the server state that newcomers need, and the facts needed to admit them."""
        write_pair(self.path / "server", tensors, facts)

    def load_server(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """The tensors and facts that `save_server` wrote, or None where the method admits no newcomers."""
        return self._load_pair("server")

    def _load_pair(self, name: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        if not facts_path(self.path / name).exists():
            return None
        try:
            return read_pair(self.path / name)
        except DamagedError as error:
            raise FedquiltError(f"The {name} in {self.path} cannot be used: {error}.") from error

    def save_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Save named arrays as `<name>.npz`, e.g. "similarity" or "split-and-partition"."""
        write_npz(self.path / f"{name}.npz", arrays)

    def load_arrays(self, name: str) -> dict[str, np.ndarray] | None:
        """The arrays that `save_arrays` wrote, or None where there are none."""
        path = self.path / f"{name}.npz"
        if not path.exists():
            return None
        try:
            return read_arrays(path)
        except DamagedArchiveError as error:
            raise FedquiltError(f"{path} cannot be read as arrays; it may be damaged.") from error

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, which also marks this seed as done."""
        write_json(self.path / "summary.json", summary)

    @property
    def done(self) -> bool:
        """Whether `finish` was reached."""
        return (self.path / "summary.json").is_file()

    @property
    def summary(self) -> dict[str, Any] | None:
        """What `finish` wrote, or None before."""
        return _read_json(self.path / "summary.json")

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"


def _is_record(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("round"), int)


def _claim(path: Path) -> Path:
    """Make the folder that the user named, or take it where it exists and is empty."""
    taken = FedquiltError(
        f"{path} already holds a run; choose another --out, or continue it with 'fedquilt resume {path}'."
    )
    if path.exists() and not path.is_dir():
        raise FedquiltError(f"{path} is a file; choose another --out.")
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise taken
    try:
        # Of two processes that both found it empty, only one can make this file.
        os.close(os.open(path / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    except FileExistsError as error:
        raise taken from error
    return path


def _claim_free(parent: Path, name: str) -> Path:
    """Make the first of parent/name, name-2, name-3, ... that does not exist yet."""
    name = re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "run"
    parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = read_json(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FedquiltError(f"{path} is not valid JSON.") from error
    if not isinstance(value, dict):
        raise FedquiltError(f"{path} does not hold a JSON object.")
    return value
