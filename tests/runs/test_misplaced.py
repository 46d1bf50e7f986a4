from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.runs.misplaced import setting_as_option


def test_a_setting_given_as_an_option_is_answered_with_its_place() -> None:
    with pytest.raises(
        FedquiltError, match=r"'lr' is a setting of the method fedavg, .* settings=\{'lr': 0\.1\} in Python"
    ):
        fedquilt.run("fedavg", lr=0.1)  # type: ignore[call-arg]
    with pytest.raises(FedquiltError, match=r"'tau' is a setting of methods \(fediih, fedpub\), not an option"):
        fedquilt.compare(["fedavg", "local"], tau=3)  # type: ignore[call-arg]


def test_an_option_given_as_a_setting_is_answered_with_its_place() -> None:
    with pytest.raises(
        FedquiltError, match=r"'rounds' is an option of the run, .* rounds=3 in Python, --rounds 3 on the"
    ):
        fedquilt.run("fedavg", settings={"rounds": 3})
    with pytest.raises(FedquiltError, match="'rounds' is an option"):
        fedquilt.compare(["fedavg", "local"], settings={"rounds": 3})


def test_a_wrong_name_still_names_the_nearest_right_one() -> None:
    assert setting_as_option("rouns") is None
    with pytest.raises(FedquiltError, match="There is no option 'rouns'; did you mean 'rounds'"):
        fedquilt.run("fedavg", rouns=3)  # type: ignore[call-arg]


def test_the_command_line_and_config_files_are_answered_too(refused: Callable[[str], str], here: Path) -> None:
    said = refused("run --method fedavg --lr 0.1")
    assert said.startswith("There is no option '--lr'; 'lr' is a setting of methods (")
    assert "--set lr=... on the command line" in said
    assert "--rounds 3 on the command line" in refused("run --set rounds=3")
    (here / "run.yaml").write_text("method: fedavg\nweight_decay: 0.1\n")
    said = refused("run --config run.yaml")
    assert "'weight_decay' is a setting of the method fedavg" in said
    assert "under 'settings:' in a config file" in said
