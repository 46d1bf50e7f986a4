"""The run folder: config, metrics, checkpoints, models and result of a run.

<run>/config.json
      seal.json                            fingerprints of what decides the result; see `fedquilt.runs.seal`
      result.json
      machine.json                         when and on what it was last trained, for readers
      stopped.json                         optional: where and why a callback stopped the run, until it is resumed
      graph.npz                            optional: a copy of a graph that was given as an object
      seed-<s>/metrics.jsonl               one record per round
               checkpoints/                the state after the last rounds
               models.safetensors, .json   the personal models, and facts about them
               server.safetensors, .json   optional: the server state that newcomers need, and facts about it
               similarity.npz              optional
               findings.npz                optional
               confusion.npz               optional: each client's test nodes by true and predicted class
               split-and-partition.npz     the nodes of each client, and the split
               seal.json                   hashes of metrics.jsonl and summary.json
               retry.json                  optional: how the seed is trained again after it diverged
               summary.json                written last; the seed is done
      logs/<tool>/                         optional: written by `fedquilt.loggers`

A run folder appears whole (`RunFolder.create`), so that a kill leaves nothing or a run that can be resumed.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.common.archives import DamagedArchiveError, read_arrays
from fedquilt.common.files import json_text, sync_file, sync_folder, write_json, write_npz, write_text
from fedquilt.common.json_lines import JsonLines
from fedquilt.common.json_text import read_json
from fedquilt.common.lock import locked
from fedquilt.common.new_folder import LOCK, fill_folder, make_folder, sweep_files
from fedquilt.common.sealed import DamagedError, facts_path, file_sha256, read_facts, read_pair, write_facts, write_pair
from fedquilt.errors import FedquiltError
from fedquilt.runs import checkpoint as checkpoints
from fedquilt.runs.config import GRAPH_FILE, RunConfig
from fedquilt.runs.cross_check import check_result, check_summary
from fedquilt.runs.read_config import stored_options
from fedquilt.runs.result import build_result
from fedquilt.runs.retry import Retry
from fedquilt.runs.seal import FIXED, SEAL, Facts, config_differences, mapping, read_seal, write_seal

if TYPE_CHECKING:
    import torch

RETRY = "retry.json"
FEDERATION = "federation"  # the key in config.json that only a run with sites has


class RunFolder:
    """One run on disk. Make it with `create` or `open`. Nothing is cached: every read sees the present files."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @classmethod
    def create(
        cls,
        path: Path | None,
        name: str,
        parent: Path = Path("runs"),
        fill: Callable[[Path, Path], None] = lambda folder, place: None,
    ) -> RunFolder:
        """A new run folder: `path`, or when None the first free of name, name-2, ... in `parent`.

        `fill` writes what a run needs to be resumed: it is called with the folder to write to and with the place where the
        folder will be. It writes config.json, or another file that makes the folder whole, last. Two processes that ask at
        once never get the same folder.
        """
        try:
            if path is not None:
                return cls(_claim(Path(path), fill))
            return cls(_claim_free(Path(parent), name, fill))
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
    def seal(self) -> Facts | None:
        """The seal of the run, or None where an earlier version made it; assign facts to write it."""
        return read_seal(self.path, self.config)

    @seal.setter
    def seal(self, facts: Facts) -> None:
        write_seal(self.path, facts)

    def check_config(self) -> None:
        """Refuse to report on a run whose config.json does not say what it was trained with.

        More rounds or seeds that were only written there are left to `fedquilt resume`; a federation checks its own.
        """
        seal = None if self.of_sites else self.seal
        if seal is None:
            return
        changed = [each.what for each in config_differences(seal, self.config, self.done) if each.kind == FIXED]
        if changed:
            raise FedquiltError(
                f"{self.path / 'config.json'} was changed since the run began: {changed[0]}; put it back."
            )

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
        """The content of result.json, or None while the run is not done; assign a dict to write it.

        An error where it, or a summary that it is made from, was changed since.
        """
        result = _read_json(self.path / "result.json")
        if result is not None and self.seal is not None:  # an earlier version's may have other entries
            check_result(self.path / "result.json", result, self.expected_result())
        return result

    @result.setter
    def result(self, value: Mapping[str, Any]) -> None:
        write_json(self.path / "result.json", value)

    def drop_result(self) -> None:
        """Delete a result.json of which a seed is trained again, or is new."""
        (self.path / "result.json").unlink(missing_ok=True)

    @property
    def stopped(self) -> dict[str, Any] | None:
        """Where and why a callback stopped the run; None where none did. Assign a dict to write it."""
        return _read_json(self.path / "stopped.json")

    @stopped.setter
    def stopped(self, value: Mapping[str, Any]) -> None:
        write_json(self.path / "stopped.json", value)

    def drop_stopped(self) -> None:
        """Forget that the run was stopped, as it goes on."""
        (self.path / "stopped.json").unlink(missing_ok=True)

    def expected_result(self) -> dict[str, Any]:
        """What result.json has to say, by config.json and the summaries of the seeds."""
        config = self.config
        config["dataset"] = self.graph_name or config.get("dataset")  # the option may be a path
        summaries = [summary for seed in config.get("seeds", []) if (summary := self.seed(seed).summary) is not None]
        return build_result(config, summaries)

    @property
    def graph_name(self) -> str | None:
        """What results call the graph: the name that it had when the run began."""
        name = mapping(mapping(self.config.get("resolved")).get("graph")).get("name")
        return name if isinstance(name, str) else None

    @property
    def done(self) -> list[int]:
        """The seeds that are finished."""
        return [seed for seed in self.seeds() if self.seed(seed).done]

    def seed(self, seed: int) -> SeedFolder:
        """The folder of one seed; it is made when something is first written to it."""
        return SeedFolder(self.path / f"seed-{seed}")

    def seeds(self) -> list[int]:
        """The seeds that have a folder, in rising order."""
        matches = (re.fullmatch(r"seed-(\d+)", path.name) for path in self.path.iterdir() if path.is_dir())
        return sorted(int(match[1]) for match in matches if match)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the folder for a `with` block, so that no other process trains or resumes in it."""
        return locked(self.path / LOCK, self.path)

    def sweep(self) -> None:
        """Delete temporary files that a kill left; the lock must be held."""
        for folder in (self.path, *self.path.glob("seed-*/"), *self.path.glob("seed-*/checkpoints/")):
            if folder.is_dir():
                sweep_files(folder)


class SeedFolder:
    """The folder of one seed of a run."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._metrics = JsonLines(self.metrics_path, _is_record, "a round's record", compact=True)
        self._named = False  # whether the names of this folder and of its files have reached the disk

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
        """The records, oldest first; a last line that a kill left incomplete is left out.

        An error where the seed is done and its metrics are not those that were sealed.
        """
        if self.done and (seal := self._read_seal()) is not None:
            self._check_metrics(seal)
        return self._metrics.read()

    def truncate_after(self, round: int) -> None:
        """Delete the records and checkpoints of the rounds after `round`, from which training goes on."""
        checkpoints.drop_after(self._checkpoints, round)
        self._metrics.keep(lambda record: record["round"] <= round)

    @property
    def retry(self) -> Retry | None:
        """The second try of the seed, whose first one diverged; None where there was none."""
        if not (self.path / RETRY).exists():
            return None
        try:
            facts = read_facts(self.path / RETRY)
            return Retry({str(name): float(value) for name, value in facts["changed"].items()}, str(facts["why"]))
        except (DamagedError, KeyError, AttributeError, TypeError, ValueError) as error:
            raise FedquiltError(f"{self.path / RETRY} is damaged; {self._train_again}.") from error

    def begin_again(self, retry: Retry) -> None:
        """Drop what the first try left and note the second one.

        In this order: a kill in between leaves a seed that begins with the first try, which diverges again.
        """
        self.truncate_after(-1)
        self.path.mkdir(parents=True, exist_ok=True)
        write_facts(self.path / RETRY, {"changed": dict(retry.changed), "why": retry.why})

    def checkpoint(
        self, round: int, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], keep: int = 2
    ) -> None:
        """Save the state after `round` and keep the newest `keep`; see `runs.checkpoint.save`.

        Order: first the records of all rounds up to this one reach the disk, then the checkpoint is written, then older ones
        are deleted. A resume goes on after the checkpoint and never trains those rounds again, so their records must not be
        lost with a power failure that the checkpoint survives. The other order of loss is harmless: records after the newest
        checkpoint are dropped and written again. The checkpoint seals the records by their length and hash.
        """
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        sealed = self._sync_metrics()
        checkpoints.save(self._checkpoints, round, tensors, facts, keep, beside={"metrics": sealed})

    def latest_checkpoint(self) -> checkpoints.Checkpoint | None:
        """The newest checkpoint that verifies, or None; an error where the records up to it are not those it sealed."""
        found = checkpoints.latest(self._checkpoints)
        sealed = None if found is None else found.beside.get("metrics")
        if found is not None and sealed is not None and self._metrics_digest(sealed["bytes"]) != sealed["sha256"]:
            raise FedquiltError(
                f"{self.metrics_path} was changed or damaged: its records up to round {found.round} are not those that the "
                f"checkpoint of that round sealed; {self._train_again}."
            )
        return found

    def _sync_metrics(self) -> dict[str, Any]:
        """Have the records reach the disk; returns their length and hash."""
        if not self.metrics_path.exists():
            return {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}
        sync_file(self.metrics_path)
        if not self._named:
            sync_folder(self.path)
            sync_folder(self.path.parent)
            self._named = True
        return {"bytes": self.metrics_path.stat().st_size, "sha256": file_sha256(self.metrics_path)}

    def _metrics_digest(self, size: int) -> str | None:
        """The hash of the first bytes of the metrics; None where there are fewer."""
        data = b""
        if self.metrics_path.exists():
            with open(self.metrics_path, "rb") as file:
                data = file.read(size)
        return hashlib.sha256(data).hexdigest() if len(data) == size else None

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
        """Write the summary, which also marks this seed as done.

        The records reach the disk first, then their hash and the summary's, then the summary: a kill in between leaves a seed
        that is not done, whose seal is written again.
        """
        metrics, text = self._sync_metrics(), json_text(summary)
        hashes = {"metrics.jsonl": metrics["sha256"], "summary.json": hashlib.sha256(text.encode()).hexdigest()}
        write_facts(self.path / SEAL, hashes)
        write_text(self.path / "summary.json", text)

    @property
    def done(self) -> bool:
        """Whether `finish` was reached."""
        return (self.path / "summary.json").is_file()

    @property
    def summary(self) -> dict[str, Any] | None:
        """What `finish` wrote, or None before; an error where it, or the metrics that it sums up, changed since."""
        path = self.path / "summary.json"
        summary = _read_json(path)
        if summary is None:
            return None
        seal = self._read_seal()
        if seal is None:  # an earlier version wrote it
            check_summary(path, summary, self._metrics.read(), self._train_again)
        elif file_sha256(path) != seal.get("summary.json"):
            self._check_metrics(seal)
            check_summary(path, summary, self._metrics.read(), self._train_again)  # names what was changed
            raise FedquiltError(f"{path} was changed since the seed ended; {self._train_again}.")
        return summary

    def _read_seal(self) -> dict[str, Any] | None:
        """The hashes that `finish` wrote; None where an earlier version finished the seed."""
        if not (self.path / SEAL).exists():
            return None
        try:
            return read_facts(self.path / SEAL)
        except DamagedError as error:
            raise FedquiltError(f"The seal in {self.path} is damaged: {error}; {self._train_again}.") from error

    def _check_metrics(self, seal: Mapping[str, Any]) -> None:
        """Refuse metrics that are not those with which the seed ended."""
        if not self.metrics_path.exists() or file_sha256(self.metrics_path) != seal.get("metrics.jsonl"):
            raise FedquiltError(f"{self.metrics_path} was changed since the seed ended; {self._train_again}.")

    @property
    def _train_again(self) -> str:
        again = f"delete {self.path} and train the seed again with 'fedquilt resume {self.path.parent}'"
        return f"put it back from a copy, or {again}"

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"


def _is_record(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("round"), int)


# Files that a folder may hold which a process was filling when it was killed.
_LEFTOVERS = (GRAPH_FILE, SEAL)


def _claim(path: Path, fill: Callable[[Path, Path], None]) -> Path:
    """Make the folder that the user named, or take it where it exists and is empty."""
    if path.exists() and not path.is_dir():
        raise FedquiltError(f"{path} is a file; choose another --out.")
    if path.is_dir():
        made = fill_folder(path, partial(_swapped, fill, path), _LEFTOVERS)
    else:
        made = make_folder(path, partial(_swapped, fill, path))
    if not made:
        found = [path / name for name in ("config.json", "compare.json") if (path / name).exists()]
        if found and not found[0].is_file():
            raise FedquiltError(f"{found[0]} is not a file; put the file back, or choose another --out.")
        if found:
            raise FedquiltError(
                f"{path} already holds a run; choose another --out, or continue it with 'fedquilt resume {path}'."
            )
        raise FedquiltError(f"{path} is not empty, and holds no run that could be resumed; choose another --out.")
    return path


def _claim_free(parent: Path, name: str, fill: Callable[[Path, Path], None]) -> Path:
    """Make the first of parent/name, name-2, name-3, ... that does not exist yet."""
    name = re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "run"
    for number in itertools.count(1):
        path = parent / (name if number == 1 else f"{name}-{number}")
        if not path.exists() and make_folder(path, partial(_swapped, fill, path)):
            return path
    raise AssertionError("unreachable")


def _swapped(fill: Callable[[Path, Path], None], place: Path, folder: Path) -> None:
    fill(folder, place)


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
