"""Options from files and texts: what they may be, and one sentence for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.config import GIVEN, GRAPH_FILE
from fedquilt.runs.read_config import parse_settings, read_config, read_options, stored_options


def test_a_config_file_is_yaml_or_json_and_says_each_thing_once(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("method: fedpub\nsettings: {lr: 0.1}\n")
    assert read_config(path) == {"method": "fedpub", "settings": {"lr": 0.1}}
    path.write_text(json.dumps({"rounds": 3}))
    assert read_config(path) == {"rounds": 3}
    for text, says in (
        ("rounds: 3\nrounds: 4\n", r"says 'rounds' twice \(line 2\)"),
        ("settings: {lr: 1, lr: 2}\n", "says 'lr' twice"),
        ("a: [", "is not valid YAML"),
        ("- 3", "must hold names and values"),
    ):
        path.write_text(text)
        with pytest.raises(FedquiltError, match=says):
            read_config(path)


def test_settings_are_read_as_people_write_them() -> None:
    pairs = ["lr=1e-3", "hidden=64", "masking=false", "model=gat", "head=null"]
    assert parse_settings(pairs) == {"lr": 0.001, "hidden": 64, "masking": False, "model": "gat", "head": None}
    with pytest.raises(FedquiltError, match="is not of the form name=value"):
        parse_settings(["lr"])


def test_the_options_in_a_run_folder_are_without_its_facts(tmp_path: Path) -> None:
    stored = {"method": "local", "dataset": "cora", "resolved": {"device": "cpu"}, "versions": {}}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert read_options(tmp_path / "config.json") == {"method": "local", "dataset": "cora"}


@pytest.mark.parametrize(("dataset", "then"), [("squirrel", "never"), ("syn-cora:h=all", None), ("cora", None)])
def test_a_run_from_before_copies_were_known_goes_on_as_it_began(
    tmp_path: Path, dataset: str, then: str | None
) -> None:
    assert stored_options({"dataset": dataset}, tmp_path).get("keep_copies") == then
    assert stored_options({"dataset": dataset, "keep_copies": "both"}, tmp_path)["keep_copies"] == "both"
    assert stored_options({"dataset": dataset, "keep_copies": None}, tmp_path)["keep_copies"] is None


def test_a_run_from_before_features_were_prepared_goes_on_as_it_began(tmp_path: Path) -> None:
    assert stored_options({"dataset": GIVEN}, tmp_path)["prepare"] == "none"
    assert stored_options({"dataset": GIVEN, "prepare": None}, tmp_path)["prepare"] is None
    assert "prepare" not in stored_options({"dataset": "cora"}, tmp_path)


@pytest.mark.parametrize("dataset", [GIVEN, GRAPH_FILE, f"/gone/{GRAPH_FILE}"])
def test_the_graph_of_a_run_is_its_own_copy_or_that_of_its_comparison(tmp_path: Path, dataset: str) -> None:
    folder = tmp_path / "comparison" / "local"
    folder.mkdir(parents=True)
    stored = {"dataset": dataset, "prepare": "standard"}
    assert stored_options(stored, folder) == stored
    (folder.parent / GRAPH_FILE).touch()
    assert stored_options(stored, folder) == stored | {"dataset": str(folder.parent / GRAPH_FILE)}
    (folder / GRAPH_FILE).touch()
    assert stored_options(stored, folder) == stored | {"dataset": str(folder / GRAPH_FILE)}
    other = tmp_path / GRAPH_FILE  # a user's own file of that name stays
    other.touch()
    assert stored_options(stored | {"dataset": str(other)}, folder) == stored | {"dataset": str(other)}


LAUGHS = b"a: &a [x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%b]\n" % (name, name, b", ".join([b"*%c" % (name - 1)] * 8)) for name in b"bcdefghij"
)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (LAUGHS, "stands for more than 20,000 values"),
        (b"a: " + b"[" * 900, "is nested more than 50 levels deep"),
        (b"rounds: 1" + b"0" * 400, "has a whole number of more than 64 bits (line 1)"),
        (b'dataset: "\\ud800"', "has text with a character that is not text"),
        (b"x" * 2**19, "cannot be read: it is larger than"),
        (b"\xff", "is not valid YAML"),
    ],
)
def test_a_hostile_config_file_is_one_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(FedquiltError) as caught:
        read_config(tmp_path / "c.yaml")
    assert says in str(caught.value)


def test_a_config_without_an_end_is_not_read_to_its_end() -> None:
    with pytest.raises(FedquiltError, match="The config file /dev/zero cannot be read: it is larger than"):
        read_config(Path("/dev/zero"))


def test_a_setting_of_the_command_line_is_read_within_limits() -> None:
    for value in ("[" * 500, '"\\ud800"', "[0x" + "f" * 5000 + "]"):
        with pytest.raises(FedquiltError, match="the value cannot be read"):
            parse_settings([f"lr={value}"])
