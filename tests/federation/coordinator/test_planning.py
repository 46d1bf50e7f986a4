"""Which sites fit together, and which methods they may train."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.state import run_folders
from fedquilt.methods.base import federated_methods
from support.federations import ragged_clients
from support.flower_doubles import MemoryGrid, edit_site, federation, write_open_sites

SIZES = (25, 14, 31)


def test_sites_with_other_features_or_classes_are_refused(tmp_path: Path) -> None:
    clients = ragged_clients(SIZES)
    paths = write_open_sites(tmp_path / "a", clients[:2]) + write_open_sites(
        tmp_path / "b", ragged_clients((9, 9, 31), classes=5)[2:]
    )
    with pytest.raises(
        FedquiltError, match=r"Site 'site-0' has 3 classes and site 'site-2' has 5; all sites need the same"
    ):
        federation(tmp_path, clients, MemoryGrid(paths), method="fedavg").run()


@pytest.mark.parametrize("what", ["feature", "class"])
def test_sites_whose_names_are_in_another_order_are_refused(what: str, tmp_path: Path) -> None:
    clients = ragged_clients(SIZES)
    size = clients[0].graph.features if what == "feature" else clients[0].graph.classes
    names = tuple(map(str, range(size)))
    for m, client in enumerate(clients):
        named = replace(client.graph, **{f"{what}_names": names if m < 2 else names[::-1]})
        clients[m] = replace(client, graph=named)
    with pytest.raises(FedquiltError, match=f"'site-0' and 'site-2' have other {what} names, or in another order"):
        federation(tmp_path, clients, method="fedavg").run()


def test_a_method_that_a_site_does_not_permit_is_refused_before_training(tmp_path: Path) -> None:
    paths = write_open_sites(tmp_path, ragged_clients(SIZES))
    edit_site(paths[1], permits=["train_nodes", "figures"])
    with pytest.raises(FedquiltError) as error:
        federation(tmp_path, ragged_clients(SIZES), MemoryGrid(paths), method="fedavg").run()
    silent = ", ".join(name for name, kind in federated_methods().items() if not kind.uploads)
    assert str(error.value) == (
        "Site 'site-1' does not permit 'model.conv1.weight', 'model.conv1.bias', 'model.conv2.weight' and 3 more to leave, "
        f"which fedavg sends; choose a method that all sites permit ({silent}), or ask that site to write "
        "'permits: [train_nodes, figures, weights]' in its site.yaml."
    )
    assert run_folders(tmp_path / "site-1/state") == []
