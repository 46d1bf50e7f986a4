"""The options of a run on the command line are made from `RunConfig`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from fedquilt.cli import app
from fedquilt.cli.options import run_values, whole_numbers
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig
from fedquilt.runs.options import options_of


@pytest.mark.parametrize(
    ("command", "leaves_out"),
    [("run", set()), ("compare", {"method"}), ("tune", {"checkpoint_seconds"})],
)
def test_the_commands_have_every_option_of_a_run(command: str, leaves_out: set[str]) -> None:
    parameters = {p.name: p for p in typer.main.get_command(app.app).commands[command].params}  # type: ignore[attr-defined]
    options = options_of(RunConfig)
    assert {*options} - {*parameters} == leaves_out
    for name in {*options} & {*parameters}:
        flags = [flag for flag in (options[name].flag, options[name].about.short) if flag]
        assert parameters[name].opts == flags
        assert parameters[name].default is None
        if (command, name) != ("tune", "settings"):
            assert parameters[name].help == options[name].help.replace("`f", "[bold]f").replace("`", "[/]")


def given(**options: Any) -> dict[str, Any]:
    return dict.fromkeys(options_of(RunConfig)) | options


def test_what_is_given_goes_over_the_config_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("rounds: 7\nepochs: 2\nsettings: {hidden: 8, lr: 0.1}\n")
    values = run_values(given(rounds=3, seeds="0,4", settings=["lr=1e-3"], data=Path("graphs")), file)
    assert values == {
        "rounds": 3,
        "epochs": 2,
        "seeds": [0, 4],
        "data": "graphs",
        "settings": {"hidden": 8, "lr": 0.001},
    }


def test_local_epochs_given_here_come_before_both_ways_to_write_them_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("settings: {epochs: 2}\n")
    assert run_values(given(epochs=3), file) == {"epochs": 3, "settings": {}}
    file.write_text("epochs: 2\n")
    assert run_values(given(settings=["epochs=3"]), file) == {"settings": {"epochs": 3}}


def test_sizes_say_how_many_clients() -> None:
    assert run_values(given(sizes="5,3,2"), None)["clients"] == 3
    assert run_values(given(sizes="5,3,2", clients=4), None)["clients"] == 4


def test_a_list_of_something_else_is_one_sentence() -> None:
    assert whole_numbers("seeds", "0, 3") == [0, 3]
    with pytest.raises(
        FedquiltError, match=r"^--seeds 'a,b' is not a list of whole numbers; write it like --seeds 0,1,2"
    ):
        whole_numbers("seeds", "a,b")


def test_given_clients_and_a_dataset_take_each_others_place_in_a_file(tmp_path: Path) -> None:
    stored = tmp_path / "config.yaml"
    stored.write_text("{dataset: cora, partition: overlapping, clients: 50, rounds: 7}")
    values = run_values({"clients_from": ["a/,b/", "c"]}, stored)
    assert values == {"clients_from": ["a/", "b/", "c"], "rounds": 7, "settings": {}}
    stored.write_text("{clients_from: [a, b], dataset: '@clients', partition: natural, clients: 2, rounds: 7}")
    assert run_values({"dataset": "cora"}, stored) == {"dataset": "cora", "rounds": 7, "settings": {}}
