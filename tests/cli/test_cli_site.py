from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from federations import ragged_clients
from fedquilt.experiment import Experiment
from fedquilt.methods import methods
from fedquilt.runs.config import RunConfig
from fedquilt.sites.config import read_site, site_client
from trained_sites import as_file, write_site

CLIENT = ragged_clients((40,))[0]


def test_a_site_that_is_ready_says_what_would_leave_it(call: Callable, here: Path) -> None:
    write_site(here, as_file(CLIENT), permits=["model.conv", "train_nodes", "figures"])
    before = sorted(here.rglob("*"))
    called = call("site check site.yaml")
    assert called.status == 0, called.err
    assert called.err == ""
    assert sorted(here.rglob("*")) == before
    assert all(name in called.out for name in methods())
    assert "How many training nodes the client has." in called.out
    assert "model (not permitted)" in called.out
    assert "14 train, 12 val, 13 test" in called.out
    assert "no differential privacy" in called.out
    assert called.out.endswith("Permitted: fedper, local, majority.\nSite 'st-anna' is ready.\n")


def test_a_site_that_permits_nothing_is_told_what_that_means(call: Callable, here: Path) -> None:
    write_site(here, as_file(CLIENT), permits=[])
    called = call("site check site.yaml")
    assert "no method may run here but those that send nothing: local, majority." in called.out


def test_brackets_in_names_are_no_markup(call: Callable, here: Path) -> None:
    write_site(here, as_file(CLIENT), state="[bold]")
    called = call("site check site.yaml")
    assert called.status == 0, called.err
    assert "[bold]" in called.out


def test_what_is_wrong_is_one_sentence(refused: Callable, here: Path) -> None:
    assert "cannot be read" in refused("site check site.yaml")
    write_site(here, as_file(CLIENT), permits=["modle"])
    assert refused("site check site.yaml") == "There is no upload 'modle'; did you mean 'model'?"
    write_site(here, as_file(CLIENT), graph="lost.npz")
    assert "lost.npz" in refused("site check site.yaml")
    write_site(here, as_file(CLIENT), dp={"clip": -1, "noise": 1})
    assert "dp.clip=-1 is not possible" in refused("site check site.yaml")
    (here / "graph.npz").write_text("no graph")
    (here / "site.yaml").write_text("{name: a, graph: graph.npz, state: s}")
    assert "graph.npz is not an npz file" in refused("site check site.yaml")


def test_example_sites_are_the_clients_of_a_cut(call: Callable, refused: Callable, here: Path) -> None:
    called = call("site example sites --clients 3")
    assert called.status == 0, called.err
    assert "fedquilt rehearse --sites" in called.out
    paths = sorted(here.glob("sites/*/site.yaml"))
    clients = Experiment(RunConfig(dataset="patchwork", clients=3, seeds=[0])).clients(0)
    for client, path in zip(clients, paths, strict=True):
        own = site_client(read_site(path))
        assert np.array_equal(own.graph.edges, client.graph.edges)
        assert np.array_equal(own.split, client.split)
        assert call(f"site check {path}").status == 0
    assert "sites is already there" in refused("site example sites")
    assert "There is no dataset 'coral'" in refused("site example others --dataset coral")
    assert not (here / "others").exists()
