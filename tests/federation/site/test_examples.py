"""Example sites: a folder for each client, from which the client comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import read_site
from fedquilt.federation.site.examples import write_sites
from support.federations import ragged_clients
from support.trained_sites import client_at


def test_a_site_is_its_client(tmp_path: Path) -> None:
    clients = ragged_clients()
    for path, client in zip(write_sites(tmp_path, clients), clients, strict=True):
        back = client_at(read_site(path), client.id)
        labelled = client.graph.y >= 0
        assert np.array_equal(back.split[labelled], client.split[labelled])
        assert np.array_equal(back.graph.edges, client.graph.edges)
        assert np.array_equal(back.graph.x, client.graph.x)
        assert (path.parent / "graph.npz").stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700


def test_names_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    paths = write_sites(tmp_path, ragged_clients((9,) * 11), device="cpu")
    assert [path.parent.name for path in paths] == sorted(path.parent.name for path in paths)
    assert paths[10].parent.name == "site-10"
    assert all(read_site(path).device == "cpu" for path in paths)


def test_a_place_that_cannot_be_written_to_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedquilt.federation.site.examples.write_text", full)
    with pytest.raises(FedquiltError, match="No space left on device"):
        write_sites(tmp_path, ragged_clients((9,)))
