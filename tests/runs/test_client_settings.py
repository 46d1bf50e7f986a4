"""Settings of single clients: how they are given, and that a client with its own trains as in a run where all have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import State, find_method
from fedquilt.runs.client_settings import client_number, parse_client_settings, read_client_table
from fedquilt.training.plan import Plan
from support.command_line import Call
from support.federations import make_method, make_training, ragged_clients
from support.small_runs import SMALL, own_graph, stop_after

pytestmark = pytest.mark.usefixtures("elsewhere")
OPTIONS = SMALL | {"rounds": 4}


def test_they_are_read_from_texts_and_tables(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("client, lr,weight_decay\n0,0.1,\n2,1e-3,0.5\n1,,\n")
    table = {"0": {"lr": 0.1}, "2": {"lr": 0.001, "weight_decay": 0.5}}
    assert read_client_table(tmp_path / "own.csv") == table
    texts = ["3:lr=0.005", "03:epochs=2", str(tmp_path / "own.csv"), "0:lr=0.2"]
    assert parse_client_settings(texts) == {**table, "0": {"lr": 0.2}, "3": {"lr": 0.005, "epochs": 2}}
    (tmp_path / "own.csv").write_text("﻿client;lr\n4;0,5\n".replace("0,5", "0.5"), encoding="utf-8")
    assert read_client_table(tmp_path / "own.csv") == {"4": {"lr": 0.5}}


@pytest.mark.parametrize("text", ["lr=0.1", "3:lr", ":lr=1", "3:=1"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(
        FedquiltError, match=r"is neither client:name=value, such as --set-client 3:lr=0.005, nor a csv file"
    ):
        parse_client_settings([text])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lr\n1\n", "needs a column 'client' and one for each setting"),
        ("client\n1\n", "needs a column 'client' and one for each setting"),
        ("client,lr,lr\n1,2,3\n", "needs a column 'client'"),
        ("client,lr\n,1\n", "line 2: the row says no client"),
        ("client,lr\n1,1\n1,2\n", "line 3: client 1 is there twice"),
        ("client,lr\n1,1,3\n", "line 2: the row has more cells than the header"),
    ],
)
def test_other_tables_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(FedquiltError, match=sentence):
        read_client_table(tmp_path / "own.csv")
    with pytest.raises(FedquiltError, match="cannot be read: No such file"):
        read_client_table(tmp_path / "none.csv")


def test_a_client_that_is_not_there_is_refused() -> None:
    assert client_number("2", 3) == 2
    assert client_number("north", 3, ["south", "north"]) == 1
    with pytest.raises(FedquiltError, match=r"There is no client '3' to set something for; .* numbered 0 to 2"):
        client_number("3", 3)
    with pytest.raises(FedquiltError, match=r"There is no client 'east' .* called south, north"):
        client_number("east", 2, ["south", "north"])
    with pytest.raises(FedquiltError, match="There is no client '7'"):
        fedquilt.run("local", own_graph(), client_settings={7: {"lr": 0.1}}, **OPTIONS)


def trained(
    own: dict[int, dict[str, Any]], cohort_size: int | None = None, name: str = "local", **settings: Any
) -> State:
    clients = [replace(client, settings=own.get(client.id, {})) for client in ragged_clients()]
    training = make_training(make_method(name, clients, **settings), clients, Plan(3), cohort_size)
    training.run()
    return training.engine.personal()


@pytest.mark.parametrize("own", [{"lr": 0.05}, {"weight_decay": 0.3}, {"epochs": 3}, {"lr": 0.002, "epochs": 2}])
def test_a_client_with_its_own_trains_as_where_all_have_it(own: dict[str, Any]) -> None:
    usual, everyone = trained({}), trained({}, **own)
    mixed, cut = (trained({1: own}, cohort_size) for cohort_size in (None, 2))
    for name, w in mixed.items():
        others = [m for m in range(len(w)) if m != 1]
        torch.testing.assert_close(w[1], everyone[name][1], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(w[others], usual[name][others], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(w, cut[name], rtol=1e-4, atol=1e-6)
    assert any(not torch.allclose(w[1], everyone[name][1], atol=1e-4) for name, w in usual.items())


@pytest.mark.parametrize("name", ["fedavg", "quilt", "fedssa", "fediih", "fedhero", "fedpub", "fedsheafhn"])
def test_every_method_that_trains_takes_what_it_says(name: str) -> None:
    usual = trained({}, name=name)
    for setting in find_method(name).client_settings:
        value = {"lr": 0.03, "weight_decay": 0.1, "epochs": 2}[setting]
        other = trained({0: {setting: value}}, name=name)
        assert any(not torch.allclose(w[0], other[n][0]) for n, w in usual.items()), setting


def test_settings_that_all_share_and_impossible_values_are_refused() -> None:
    for method, own, sentence in (
        (
            "fedavg",
            {"hidden": 4},
            "'hidden' of method 'fedavg' cannot be set for client 0 alone; lr, weight_decay, epochs can",
        ),
        ("majority", {"lr": 1.0}, "no setting of it can differ between clients"),
        ("fedpub", {"lr": 1.0}, "weight_decay, epochs can differ"),
        ("fedavg", {"lr": -1.0}, "The setting lr=-1.0 of method 'fedavg' is not possible"),
        ("fedavg", {"epochs": 0}, "The setting epochs=0"),
    ):
        options = OPTIONS | {"settings": {}}
        with pytest.raises(FedquiltError, match=sentence):
            fedquilt.run(method, own_graph(), client_settings={0: own}, **options)


def test_a_run_keeps_them_and_is_resumed_with_them() -> None:
    own = {0: {"lr": 0.05, "epochs": 2}}
    options = OPTIONS | {"checkpoint_seconds": 0.0}
    whole = fedquilt.run("fedavg", own_graph(), client_settings=own, **options)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", own_graph(), client_settings=own, out="run", watch=stop_after(0, 1), **options)
    again = fedquilt.resume("run")
    for name, w in whole.models[0].items():
        assert torch.equal(w, again.models[0][name])
    config = Path("run/config.json")
    (Path("run/seed-0/summary.json")).unlink()
    config.write_text(config.read_text().replace("0.05", "0.06"))
    with pytest.raises(FedquiltError, match=r"client_settings\.0\.lr was 0\.05 and is now 0\.06 in config\.json"):
        fedquilt.resume("run")


def test_commands_take_them_and_a_comparison_gives_them_to_those_that_can(
    call: Call, refused: Callable[[str], str]
) -> None:
    line = "--clients 3 --rounds 2 --set hidden=4 --quiet"
    assert call(f"run --method fedavg --set-client 1:lr=0.1 --set-client 2:epochs=2 --out one {line}").status == 0
    assert '"1": {' in Path("one/config.json").read_text()
    called = call(f"compare --methods majority,fedpub,fedavg --set-client 1:lr=0.1 --out three {line}")
    assert called.status == 0, called
    assert '"lr"' not in Path("three/fedpub/config.json").read_text().partition('"resolved"')[0]
    assert "None of these methods lets 'hidden' differ" in refused(
        f"compare --methods fedper,fedavg --set-client 0:hidden=2 {line}"
    )


def test_clients_with_names_are_set_and_listed_by_name() -> None:
    graphs = {"north": own_graph(60), "south": own_graph(90)}
    options = {"rounds": 2, "device": "cpu", "settings": {"hidden": 8}}
    run = fedquilt.run("local", graphs, client_settings={"south": {"lr": 0.1}}, **options)
    by_number = fedquilt.run("local", graphs, client_settings={1: {"lr": 0.1}}, **options)
    assert list(run.clients["name"]) == ["north", "south"]
    assert run.result["test_mean"] == by_number.result["test_mean"]
    assert run.records[0][-1]["train_loss"] != fedquilt.run("local", graphs, **options).records[0][-1]["train_loss"]
    with pytest.raises(FedquiltError, match=r"There is no client 'east' .* called north, south"):
        fedquilt.run("local", graphs, client_settings={"east": {"lr": 0.1}}, **options)
