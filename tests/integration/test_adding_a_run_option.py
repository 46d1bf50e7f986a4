"""Adding a run option: one field of `RunConfig`, and commands, config file, help, typed arguments and docs have it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from fedquilt.cli import options as o
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig
from fedquilt.runs.option_files import options_page, typed_source, with_option_signature
from fedquilt.runs.options import HOW, WHAT, Option, options_of


class Extended(RunConfig):
    """`RunConfig` with two more options; this is all that is written for them."""

    label_noise: Annotated[
        float, Field(ge=0, le=1), Option(WHAT, "Share of the training labels that is wrong.", short="-l")
    ] = 0.0
    schedule: Annotated[
        Literal["constant", "cosine"] | None,
        Option(HOW, "How the rate falls.", flag="--lr-schedule", unset="it does not"),
    ] = None


def called(line: str) -> tuple[str, dict[str, Any]]:
    """Call a command that takes the options of `Extended`: its output, and the values it got."""
    got: dict[str, Any] = {}
    app = typer.Typer(rich_markup_mode="rich")

    @app.command()
    @o.takes_run_options(schema=Extended)
    def train(*, options: dict[str, Any], config: o.Config = None) -> None:
        got.update(o.run_values(options, config, Extended))

    return CliRunner().invoke(app, line.split(), env={"COLUMNS": "120", "TERM": "dumb"}).output, got


def test_the_command_has_the_option_and_its_help() -> None:
    output, _ = called("--help")
    assert "--label-noise" in output
    assert "Share of the training labels that is wrong. Default: 0." in output
    assert "How the rate falls. Default: it does not." in output
    _, values = called("-l 0.25 --lr-schedule cosine --rounds 3")
    assert values == {"label_noise": 0.25, "schedule": "cosine", "rounds": 3, "settings": {}}


def test_the_config_file_has_the_option_and_wrong_values_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("label_noise: 0.5\nrounds: 7\n")
    _, values = called(f"--config {tmp_path / 'run.yaml'} --rounds 3")
    config = Extended.build(values)
    assert isinstance(config, Extended)
    assert (config.label_noise, config.rounds) == (0.5, 3)
    with pytest.raises(FedquiltError, match="The option label_noise=2 is not possible: input should be less than"):
        Extended.build({"label_noise": 2})
    with pytest.raises(FedquiltError, match="did you mean 'label_noise'"):
        Extended.build({"label_nose": 1})


def test_help_typed_arguments_and_the_page_have_the_option() -> None:
    def run(method: str = "quilt", dataset: str = "patchwork", **options: object) -> None:
        """Train.

        Args:
            method: a name. dataset: a name.
            **options: more.
        """

    shown = with_option_signature(run, Extended)
    assert inspect.signature(shown).parameters["label_noise"].default == 0.0
    assert (
        "    label_noise: Share of the training labels that is wrong. Default: 0." in inspect.getdoc(shown).splitlines()
    )
    assert "    label_noise: float\n" in typed_source(Extended)
    assert '    schedule: Literal["constant", "cosine"] | None\n' in typed_source(Extended)
    row = (
        "| `label_noise` | `--label-noise`, `-l` | number ≥ 0, ≤ 1 | 0 | Share of the training labels that is wrong. |"
    )
    assert row in options_page(Extended).splitlines()


def test_a_field_that_people_cannot_see_is_an_error() -> None:
    class Hidden(RunConfig):
        secret: int = 0

    with pytest.raises(TypeError, match=r"Hidden\.secret has no Option"):
        options_of(Hidden)
