"""The cells of a study: one run for each place of its table, candidate and seed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedquilt.datasets.catalogue import in_catalogue
from fedquilt.methods.base import methods
from fedquilt.runs.compute_version import compute_version, run_kinds
from fedquilt.runs.config import RunConfig, copies_kept, copies_kept_before
from fedquilt.runs.seal import plugin_hashes
from fedquilt.scenarios.link_inference import VIEWS
from fedquilt.studies.digests import content_digest, file_digest, graph_digest, json_digest
from fedquilt.studies.latent_graphs import NAMES as LATENT
from fedquilt.studies.spec import MACHINE_OPTIONS, Coordinates, Level, Settings, Study

# Values of a study that need another evaluation of the trained models.
EXTRA_EVALUATIONS = (
    "test.neighbour",
    *(f"links.{view}{kind}" for view in VIEWS for kind in ("", ".auc")),
    *(f"latent.{name}" for name in LATENT),
)
# The options that have been part of a cell's identity from the start. An option that is added to `RunConfig` later counts only
# where it differs from its default, so that cells finished before stay valid.
_FIRST_OPTIONS = frozenset({
    "method", "dataset", "partition", "clients", "sizes", "seeds", "rounds", "epochs", "split", "metric", "settings",
    "participation", "evaluate_every", "patience", "min_train", "edge_noise", "hold_out_clients",
    "attack", "attack_scale", "attack_ratio", "aggregation", "aggregation_trim", "aggregation_clip",
    "dp_clip", "dp_noise", "dp_epsilon", "dp_delta", "precision",
})  # fmt: skip
_PATHS = ("dataset", "clients_from")  # options that name a user's own graph


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Attributes:
        study: the study's name. at: the place in its table.
        candidate: the index of its settings among the candidates of that place. settings: these settings.
        seed: its seed.
        kind: what is computed, see `Study.of`. alone: whether nothing else may run at the same time.
        config: the options of the run.
        extra: values of `EXTRA_EVALUATIONS` that the study shows.
    """

    study: str
    at: Coordinates
    candidate: int
    settings: Settings
    seed: int
    kind: str
    alone: bool
    config: RunConfig
    extra: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, ...]:
        """The labels of its place, to look it up by."""
        return tuple(self.at.values())

    @property
    def label(self) -> str:
        """The labels of its place, the candidate's settings and the seed, for a line of text."""
        tried = f" ({format_settings(self.settings)})" if self.settings else ""
        return ", ".join(self.place) + f"{tried}, seed {self.seed}"

    @property
    def identity(self) -> str:
        """A hash of what is computed. The same run in two studies or on two machines has the same identity.

        Of a user's own graph the content counts, not where it lies; only where it cannot be read it is `named`.
        """
        config = self.config
        own = config.clients_from is not None or not in_catalogue(config.dataset)
        content = content_digest(config.dataset, config.data, config.clients_from) if own else None
        if content is None:
            return self.named
        return self._digest({k: v for k, v in self._options().items() if k not in _PATHS} | {"graph": content})

    @property
    def named(self) -> str:
        """As `identity`, but with a user's own graph as the study names it, whatever lies there now."""
        return self._digest(self._options())

    def _options(self) -> dict[str, Any]:
        options = {name: value for name, value in self.config.model_dump().items() if _identifies(name, value)}
        options |= _kept_copies(self.config) | _prepared(self.config)
        if "plugins" in options:  # what they say counts, not where they lie
            options["plugins"] = plugin_hashes(options)
        return options

    def _digest(self, options: dict[str, Any]) -> str:
        # The key "dear" is part of the hash of every finished cell, so it keeps this name.
        return json_digest({"kind": self.kind, "alone": self.alone, "dear": self.extra, **options})

    @property
    def key(self) -> str:
        """A hash of all that determines the result: identity, content of graph and partition, version of the computation."""
        config = self.config
        partition = file_digest(config.partition) if config.partition.endswith(".npz") else ""
        graph = graph_digest(config.dataset, config.data, config.clients_from)
        return json_digest([self.identity, graph, partition, self.code])

    @property
    def code(self) -> str:
        """The version of the computation that determines the result; statistics of a partition do not depend on the method."""
        if self.kind == "partition":
            return compute_version(None)
        return compute_version(self.config.method, run_kinds(self.config.model_dump()))


def _identifies(option: str, value: Any) -> bool:
    """Whether an option with this value is part of a cell's identity."""
    if option in MACHINE_OPTIONS or option in ("keep_copies", "prepare"):
        return False
    return option in _FIRST_OPTIONS or value != RunConfig.model_fields[option].get_default(call_default_factory=True)


def _kept_copies(config: RunConfig) -> dict[str, str]:
    """Which copies a split keeps together, where that is not what was done before there was an option for it.

    The default follows the dataset, and it changed for Squirrel and Chameleon. So it is what a run does that counts: a cell
    that was finished before is the same as one with `keep_copies="never"`, not as one with today's default.
    """
    kept = copies_kept(config.dataset, config.keep_copies)
    return {} if kept == copies_kept_before(config.dataset) else {"keep_copies": kept}


def _prepared(config: RunConfig) -> dict[str, str]:
    """How features are prepared, where that is not what was done before there was an option for it: not at all."""
    kind = config.prepare or ("none" if in_catalogue(config.dataset) else "as the graph suggests")
    return {} if kind == "none" else {"prepare": kind}


@dataclass(frozen=True)
class Missing:
    """A place of the table that cannot be run, why, and the method where fedquilt does not have it."""

    at: Coordinates
    why: str
    method: str = ""


def with_others(study: Study) -> Study:
    """The study with a row for each method that the paper does not have, baselines apart, where the study asks for them."""
    if not study.others or "method" not in study.axes:
        return study
    levels = study.axes["method"]
    named = {level.options.get("method") for level in levels}
    others = {name: m for name, m in methods().items() if name not in named and not m.baseline}
    more = [Level(label=m.title, options={"method": name}) for name, m in others.items()]
    # Methods that learn nothing are the floor and come first.
    floor = [level for level in more if others[level.options["method"]].single_round]
    trained = [level for level in more if level not in floor]
    return study.model_copy(update={"axes": {**study.axes, "method": floor + levels + trained}})


def expand(
    study: Study, seeds: int | None = None, data: str | None = None, device: str = "auto"
) -> tuple[list[Cell], list[Missing]]:
    """All cells of a study, and the places that have none: fedquilt lacks the method, or the study says why.

    No graph is read: see `StudyPlan.available` for places whose graph is not available.

    Args:
        study: with the rows that `with_others` adds, where they are wanted.
        seeds: how many of those that are reported, instead of the study's number.
        data: the folder with graphs. device: where to compute.
    """
    cells: list[Cell] = []
    missing: list[Missing] = []
    for at in study.places():
        options = study.options_at(at)
        method = options.get("method")
        if method is not None and method not in methods():
            missing.append(Missing(at, f"the method {method} is not in fedquilt yet", method))
        elif (why := study.missing_at(at)) is not None:
            missing.append(Missing(at, why))
        else:
            cells += _cells_at(study, at, options | {"data": data, "device": device}, study.reported_seeds(seeds))
    # Seed by seed, so that a study that is stopped early has a whole table of fewer seeds.
    return sorted(cells, key=lambda cell: cell.seed), missing


def _cells_at(study: Study, at: Coordinates, options: dict[str, Any], reported: list[int]) -> Iterator[Cell]:
    compared = [seed for seed in study.choosing_seeds() if study.compares(at, seed)]
    seeds = list(dict.fromkeys([*compared, *reported]))
    extra = tuple(value for value in study.values if value in EXTRA_EVALUATIONS)
    for number, candidate in enumerate(study.candidates_at(at)):
        settings = options.get("settings", {}) | candidate
        built = RunConfig.build({**options, "settings": settings, "seeds": seeds})
        for seed in seeds:
            config = built.model_copy(update={"seeds": [seed]})
            yield Cell(study.name, at, number, candidate, seed, study.of, study.alone, config, extra)


def format_settings(settings: Settings) -> str:
    """Settings as a user types them: `lr=0.005 hidden=64`."""
    return " ".join(f"{name}={json.dumps(value)}".replace('"', "") for name, value in settings.items())
