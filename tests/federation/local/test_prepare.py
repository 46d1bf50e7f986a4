"""Preparing a rehearsal: sites are copied, and a stopped one can be resumed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.config import FederationConfig
from fedquilt.federation.local.prepare import prepared
from fedquilt.federation.site.config import read_site
from fedquilt.graphs.npz import write_npz
from support.small_runs import own_graph


def write_site(folder: Path, name: str) -> Path:
    write_npz(own_graph(), folder / name / "graph.npz")
    path = folder / name / "site.yaml"
    path.write_text(yaml.safe_dump({"name": name, "graph": "graph.npz", "state": "state"}))
    return path


@pytest.fixture
def sites(tmp_path: Path) -> list[Path]:
    """Three sites: a, b, c."""
    return [write_site(tmp_path, name) for name in "abc"]


def prepare(out: Path, sites: Sequence[Path], **options: object) -> AbstractContextManager[tuple[list[Path], dict]]:
    return prepared(sites, {"method": "fedavg", **options}, out)


def test_copies_keep_their_state_in_the_rehearsal(tmp_path: Path, sites: list[Path]) -> None:
    with prepare(tmp_path / "out", sites[::-1]) as (copies, run_config):
        assert run_config["out"] == str(tmp_path / "out" / "run")
        assert run_config["sites"] == 3
        for copy, name in zip(copies, "abc", strict=True):  # sorted by name, in whatever order they are listed
            site = read_site(copy)
            assert Path(site.graph) == tmp_path / name / "graph.npz"
            assert Path(site.state) == tmp_path / "out" / "sites" / name / "state"
    assert not any((tmp_path / name / "state").exists() for name in "abc")


def test_sites_that_say_nothing_permit_what_the_method_needs_and_the_others_keep_their_word(
    tmp_path: Path, sites: list[Path]
) -> None:
    sites[1].write_text(sites[1].read_text() + "permits: all\n")
    said: list[str] = []
    with prepared(sites, {"method": "fedpub"}, tmp_path / "out", said.append) as (copies, _):
        assert [read_site(copy).permits for copy in copies] == [
            ["weights", "counts", "embedding", "figures"],
            "all",
            ["weights", "counts", "embedding", "figures"],
        ]
        assert all(copy.parent.stat().st_mode & 0o077 == 0 for copy in copies)
    assert said == [
        "Sites 'a', 'c' do not say what may leave (permits). Nothing leaves this machine in a rehearsal, so it lets out what "
        "fedpub sends; for a federation write 'permits: [weights, counts, embedding, figures]' in site.yaml."
    ]
    assert "permits" not in sites[0].read_text()
    sites[1].write_text(sites[1].read_text().replace("all", "[weights, counts]"))
    with (
        pytest.raises(FedquiltError, match="Site 'b' does not permit 'embedding'"),
        prepared(sites, {"method": "fedpub"}, tmp_path / "other", said.append),
    ):
        pass
    assert len(said) == 1


@pytest.fixture
def stopped(tmp_path: Path, sites: list[Path]) -> Path:
    """The folder of a rehearsal that was stopped in a round."""
    out = tmp_path / "out"
    with prepare(out, sites, rounds=3, settings={"hidden": 8}) as (_, run_config):
        saved = {"order": FederationConfig.read(run_config).model_dump(), "federation": {"sites": list("abc")}}
        (out / "run").mkdir()
        (out / "run" / "config.json").write_text(json.dumps(saved))
        (out / "private").mkdir()
    return out


def test_a_stopped_rehearsal_is_resumed_by_the_same_sites(tmp_path: Path, stopped: Path, sites: list[Path]) -> None:
    def resume(sites: Sequence[Path]) -> AbstractContextManager[tuple[list[Path], dict]]:
        return prepare(stopped, sites, rounds=3, settings={"hidden": 8})

    for others in (sites[:2], [*sites[:2], write_site(tmp_path, "d")]):
        with pytest.raises(FedquiltError, match=r"another sites \(a, b, c\)"), resume(others):
            pass
    with (
        pytest.raises(FedquiltError, match=r"another rounds \(3\)"),
        prepare(stopped, sites, rounds=4, settings={"hidden": 8}),
    ):
        pass
    with resume(sites):
        assert (stopped / "private").is_dir()
    (stopped / "run" / "result.json").write_text("{}")
    with pytest.raises(FedquiltError, match="holds a rehearsal that is over"), resume(sites):
        pass
    assert not (stopped / "private").exists()  # left by one that was killed at its end


def test_before_sites_are_known_their_keys_are_made_anew(tmp_path: Path, sites: list[Path]) -> None:
    for _ in range(2):
        with prepare(tmp_path / "out", sites):
            assert not (tmp_path / "out" / "private").exists()
            (tmp_path / "out" / "private").mkdir()


def test_two_rehearsals_do_not_share_a_folder(tmp_path: Path, sites: list[Path]) -> None:
    with prepare(tmp_path / "out", sites), pytest.raises(FedquiltError, match="is being written by process"):
        prepare(tmp_path / "out", sites).__enter__()
