"""The options that several commands share, and how they become a run's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedquilt.common.registry import module_names
from fedquilt.errors import FedquiltError

# A kind's module has its name. Listing the modules imports nothing, so that help stays fast.
PARTITION_KINDS = ", ".join(name.replace("_", "-") for name in module_names("fedquilt.partition.kinds"))
WHAT, HOW, WHERE, OUTPUT = "What to train on", "How to train", "Where", "Output"

Dataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        "-d",
        help="A name (see [bold]fedquilt datasets[/]), an npz file, a folder of tables. Default: patchwork.",
        rich_help_panel=WHAT,
    ),
]
Partition = Annotated[
    str | None,
    typer.Option(
        "--partition",
        "-p",
        help=f"{PARTITION_KINDS}, or a file that [bold]fedquilt partition[/] wrote. Default: disjoint.",
        rich_help_panel=WHAT,
    ),
]
Clients = Annotated[
    int | None,
    typer.Option("--clients", "-c", help="Into how many clients. Default: 10.", rich_help_panel=WHAT),
]
Sizes = Annotated[
    str | None,
    typer.Option("--sizes", help="For imbalanced: parts a client, such as 5,3,2,2,1.", rich_help_panel=WHAT),
]
Split = Annotated[
    str | None,
    typer.Option(
        "--split",
        help="Training, validation and test shares, such as 20/40/40; or 5fold: five groups, of which seed s tests on "
        "the s-th; or given: the graph's own. Default: the dataset's.",
        rich_help_panel=WHAT,
    ),
]
MinTrain = Annotated[
    int | None,
    typer.Option(
        "--min-train",
        help="Draw the split again until each client has so many training nodes.",
        rich_help_panel=WHAT,
    ),
]
EdgeNoise = Annotated[
    float | None,
    typer.Option(
        "--edge-noise",
        help="Chance of each of a client's edges to be moved between two random nodes. Default: 0.",
        rich_help_panel=WHAT,
    ),
]
HoldOutClients = Annotated[
    float | None,
    typer.Option(
        "--hold-out-clients",
        help="Share of the clients that is kept out of training and admitted after it. Default: 0.",
        rich_help_panel=WHAT,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option("--metric", help="accuracy or auc. Default: the dataset's.", rich_help_panel=WHAT),
]
Seeds = Annotated[
    str | None,
    typer.Option("--seeds", "-s", help="One training a seed, such as 0,1,2. Default: 0.", rich_help_panel=HOW),
]
Rounds = Annotated[
    int | None,
    typer.Option("--rounds", "-r", help="Communication rounds. Default: the dataset's.", rich_help_panel=HOW),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        help="Local epochs a round. Default: the method's own for the dataset, else the dataset's.",
        rich_help_panel=HOW,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the method, such as lr=0.005; may be repeated; see [bold]fedquilt methods[/].",
        rich_help_panel=HOW,
    ),
]
Participation = Annotated[
    float | None,
    typer.Option("--participation", help="Share of the clients in each round. Default: 1.", rich_help_panel=HOW),
]
EvalEvery = Annotated[
    int | None,
    typer.Option("--eval-every", help="Rounds between evaluations. Default: 1.", rich_help_panel=HOW),
]
Patience = Annotated[
    int | None,
    typer.Option(
        "--patience",
        help="Stop after so many rounds without a better validation metric. Default: never.",
        rich_help_panel=HOW,
    ),
]
Attack = Annotated[
    str | None,
    typer.Option(
        "--attack",
        help="Some clients send a false embedding: same-value (one number throughout) or gaussian (noise). Default: none.",
        rich_help_panel=HOW,
    ),
]
AttackScale = Annotated[
    float | None,
    typer.Option(
        "--attack-scale",
        help="Standard deviation of what malicious clients send. Default: 5.",
        rich_help_panel=HOW,
    ),
]
AttackRatio = Annotated[
    float | None,
    typer.Option("--attack-ratio", help="Share of the clients that is malicious. Default: 0.2.", rich_help_panel=HOW),
]
Aggregation = Annotated[
    str | None,
    typer.Option(
        "--aggregation",
        help="How servers that average do so: mean, or, against hostile clients, median, trimmed (mean) or clipped (toward "
        "the median). Default: mean.",
        rich_help_panel=HOW,
    ),
]
AggregationTrim = Annotated[
    float | None,
    typer.Option(
        "--aggregation-trim",
        help="For trimmed: share of the clients left out on each side. Default: 0.2.",
        rich_help_panel=HOW,
    ),
]
AggregationClip = Annotated[
    float | None,
    typer.Option(
        "--aggregation-clip",
        help="For clipped: how far a client may be from the median, in median distances. Default: 1.",
        rich_help_panel=HOW,
    ),
]
DpClip = Annotated[
    float | None,
    typer.Option(
        "--dp-clip",
        help="Protect uploads by differential privacy: cut each to this norm, and add noise (see docs/privacy.md).",
        rich_help_panel=HOW,
    ),
]
DpNoise = Annotated[
    float | None,
    typer.Option(
        "--dp-noise",
        help="The noise's standard deviation over the norm. Default: what the budget asks for.",
        rich_help_panel=HOW,
    ),
]
DpEpsilon = Annotated[
    float | None,
    typer.Option(
        "--dp-epsilon",
        help="The budget of a client over all rounds; a run stops before it would exceed it.",
        rich_help_panel=HOW,
    ),
]
DpDelta = Annotated[
    float | None,
    typer.Option("--dp-delta", help="The chance that epsilon does not hold. Default: 1e-5.", rich_help_panel=HOW),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="auto, cpu or cuda. Default: auto.", rich_help_panel=WHERE),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        help="float32, or mixed: on an accelerator dense products have fewer bits (TF32). Default: float32.",
        rich_help_panel=WHERE,
    ),
]
CohortSize = Annotated[
    int | None,
    typer.Option(
        "--cohort-size",
        help="Clients computed at once; fewer need less memory. Default: all.",
        rich_help_panel=WHERE,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Train the clients in so many processes on Ray, on this machine or on a cluster. Default: all in this one.",
        rich_help_panel=WHERE,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The folder with graphs; by default FEDQUILT_DATA, else the user's cache.",
        rich_help_panel=WHERE,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="A YAML or JSON file with options; a run's config.json will do. Options given here come first.",
        rich_help_panel=WHERE,
    ),
]
CheckpointEvery = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-every", metavar="SECONDS", help="Seconds between checkpoints. Default: 30.",
        rich_help_panel=OUTPUT,
    ),
]  # fmt: skip
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The folder to write; it must be new. By default one under runs/.",
                 rich_help_panel=OUTPUT),
]  # fmt: skip
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="TOOL",
        help="Also log to tensorboard, mlflow or wandb (offline), in the run's folder under logs; may be repeated.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", rich_help_panel=OUTPUT)]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as one JSON object, and nothing else.", rich_help_panel=OUTPUT),
]

# How an option is called in a run's configuration, where that differs.
_RENAMED = {"eval_every": "evaluate_every", "checkpoint_every": "checkpoint_seconds"}
# What is in a run folder's config.json for the record only.
_FOR_THE_RECORD = ("resolved", "versions")


def chosen(given: Mapping[str, Any], config: Path | None, assignments: list[str] | None) -> dict[str, Any]:
    """The options of the config file, then those given on the command line over them.

    Args:
        given: options by name; None is one that was not given, and is left to the file or the default.
        config: the config file, if any.
        assignments: the `--set`s, which go over the file's `settings`.
    """
    from fedquilt.runs.config import parse_settings, read_config

    values = read_config(config) if config is not None else {}
    values = {name: value for name, value in values.items() if name not in _FOR_THE_RECORD}
    for name, value in given.items():
        if value is not None:
            values[_RENAMED.get(name, name)] = str(value) if isinstance(value, Path) else value
    for name in ("seeds", "sizes"):
        if isinstance(given.get(name), str):
            values[name] = whole_numbers(name, given[name])
    if given.get("sizes") is not None and given.get("clients") is None:
        values["clients"] = len(values["sizes"])
    settings, assigned = values.get("settings") or {}, parse_settings(assignments or [])
    if not isinstance(settings, Mapping):
        raise FedquiltError(f"The settings in {config} must be names and values, such as 'lr: 0.005'.")
    # Local epochs have two places. What is given here in one comes before what the file says in the other.
    if given.get("epochs") is not None:
        settings = {name: value for name, value in settings.items() if name != "epochs"}
    elif "epochs" in assigned:
        values.pop("epochs", None)
    values["settings"] = {**settings, **assigned}
    if values.get("dataset") == "graph.npz":
        # In a run folder's config the bare name means a copy inside that folder.
        values["dataset"] = "./graph.npz"
    return values


def whole_numbers(option: str, text: str) -> list[int]:
    """`"0,1,2"` as numbers."""
    try:
        return [int(piece) for piece in text.split(",")]
    except ValueError:
        raise FedquiltError(
            f"--{option} {text!r} is not a list of whole numbers; write it like --{option} 0,1,2."
        ) from None
