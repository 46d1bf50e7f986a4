"""The options that commands share. Those of a run are generated from `RunConfig`."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel

from fedquilt.common.registry import load_plugins
from fedquilt.errors import FedquiltError
from fedquilt.runs.client_settings import parse_client_settings
from fedquilt.runs.config import PARTITION_KINDS, RunConfig
from fedquilt.runs.options import GROUPS, HOW, OUTPUT, WHAT, WHERE, RunOption, options_of
from fedquilt.runs.read_config import parse_settings, read_options

__all__ = ["HOW", "OUTPUT", "PARTITION_KINDS", "WHAT", "WHERE"]

RUN_OPTIONS = "options"  # the parameter of a command that gets the run options; see `takes_run_options`
_OPTIONS = options_of(RunConfig)
_DATA = ("dataset", "partition", "clients", "sizes", "alpha")  # options of a file that given clients take the place of


def _typer_option(option: RunOption) -> Any:
    """Convert a run option to a Typer option."""
    about = option.about
    return typer.Option(
        *(flag for flag in (option.flag, about.short) if flag),
        metavar=about.metavar or None,
        help=re.sub(r"`(.*?)`", r"[bold]\1[/]", option.help),
        rich_help_panel=about.group,
    )


def _command_line_type(option: RunOption) -> Any:
    """Return the type in which Typer reads a run option; its value is None if the option is not given."""
    if option.about.kind is not None:
        return option.about.kind | None
    if get_origin(option.type) is dict or option.type == list[str]:
        return list[str] | None  # NAME=VALUE or a path, repeated
    if option.type in (bool, int, float):
        return option.type | None
    return str | None  # also for choices and comma-separated lists, which `RunConfig` checks


def takes_run_options(
    leave_out: Sequence[str] = (), panels: Sequence[str] = GROUPS, schema: type[BaseModel] = RunConfig
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a run.

    The command has a keyword-only parameter `options`, which receives a dict of their values by name, None for an option that
    was not given. In a panel of `--help`, the command's parameters before `options` come first, then the run's, then the rest.

    Args:
        leave_out: options of a run that the command does not have.
        panels: the panels of `--help`, in their order.
        schema: the model that declares the options; a test may use its own.
    """
    run_options = {name: option for name, option in options_of(schema).items() if name not in leave_out}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command).parameters.items():
            if name != RUN_OPTIONS:
                parameters.append(parameter.replace(annotation=hints[name]))
                continue
            for key, option in run_options.items():
                annotation: Any = Annotated[_command_line_type(option), _typer_option(option)]
                parameters.append(inspect.Parameter(key, parameter.kind, default=None, annotation=annotation))
        parameters.sort(key=lambda parameter: panels.index(get_args(parameter.annotation)[1].rich_help_panel))

        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            options = {name: values.pop(name) for name in run_options}
            command(**values, **{RUN_OPTIONS: options})

        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_options

    return decorate


def run_values(given: Mapping[str, Any], config: Path | None, schema: type[BaseModel] = RunConfig) -> dict[str, Any]:
    """Merge the values of a run's options: those given on the command line override those of the config file.

    Args:
        given: the dict from `takes_run_options`; for None, the value of the file or the default is used.
        config: the config file, if any.
        schema: the model that declares the options.
    """
    values = read_options(config) if config is not None else {}
    # Given clients and a dataset exclude each other: what the command line says overrides the other in the file.
    overridden: tuple[str, ...] = _DATA if given.get("clients_from") is not None else ()
    if given.get("dataset") is not None and values.get("clients_from") is not None:
        overridden = ("clients_from", *_DATA)
    values = {name: value for name, value in values.items() if name not in overridden}
    declared = options_of(schema)
    for name, value in given.items():
        if value is None or name == "settings":
            continue
        if name == "plugins":
            value = load_plugins(value, named=True)
        elif name == "client_settings":
            value = parse_client_settings(value)
        elif name == "task_settings":
            own = values.get(name)
            value = {**(own if isinstance(own, Mapping) else {}), **parse_settings(value, "--set-task", "decoder=mlp")}
        elif declared[name].type == list[str]:
            value = [piece for text in value for piece in _pieces(text)]
        elif get_origin(declared[name].type) is list:
            value = whole_numbers(declared[name].flag.removeprefix("--"), value)
        values[name] = str(value) if isinstance(value, Path) else value
    if given.get("sizes") is not None and given.get("clients") is None:
        values["clients"] = len(values["sizes"])
    settings, assigned = values.get("settings") or {}, parse_settings(given.get("settings") or [])
    if not isinstance(settings, Mapping):
        raise FedquiltError(f"The settings in {config} must be names and values, such as 'lr: 0.005'.")
    # Local epochs are both an option and a setting. If the command line gives one, it overrides the other in the file.
    if given.get("epochs") is not None:
        settings = {name: value for name, value in settings.items() if name != "epochs"}
    elif "epochs" in assigned:
        values.pop("epochs", None)
    values["settings"] = {**settings, **assigned}
    return values


def _pieces(text: str) -> list[str]:
    """The paths in a list with commas; a path that is there may have commas in it."""
    return [text] if os.path.lexists(text) else [piece.strip() for piece in text.split(",") if piece.strip()]


def whole_numbers(option: str, text: str) -> list[int]:
    """Parse the whole numbers in the text of an option, such as "0,1,2"."""
    try:
        return [int(piece) for piece in text.split(",")]
    except ValueError:
        raise FedquiltError(
            f"--{option} {text!r} is not a list of whole numbers; write it like --{option} 0,1,2."
        ) from None


# Run options that other commands have too.
Sizes = Annotated[str | None, _typer_option(_OPTIONS["sizes"])]
Alpha = Annotated[float | None, _typer_option(_OPTIONS["alpha"])]
Epochs = Annotated[int | None, _typer_option(_OPTIONS["epochs"])]
Set = Annotated[list[str] | None, _typer_option(_OPTIONS["settings"])]
SetTask = Annotated[list[str] | None, _typer_option(_OPTIONS["task_settings"])]
Device = Annotated[str | None, _typer_option(_OPTIONS["device"])]
Data = Annotated[Path | None, _typer_option(_OPTIONS["data"])]
Plugin = Annotated[list[str] | None, _typer_option(_OPTIONS["plugins"])]

# Options of commands that train, beside those of a run.
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="A YAML or JSON file with options; a run's config.json will do. Options given here come first.",
        rich_help_panel=WHERE,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="The folder to write; it must be new. By default one under runs/.",
        rich_help_panel=OUTPUT,
    ),
]
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
