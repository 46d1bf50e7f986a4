from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fedquilt.datasets.entries.patchwork import patchwork
from fedquilt.graphs.npz import write_npz
from fedquilt.partition.storage import load


def test_datasets_lists_the_catalogue_and_what_is_here(call: Callable, here: Path) -> None:
    (here / "no-graphs").mkdir()
    (here / "no-graphs" / "cora.npz").write_bytes(b"")
    (here / "no-graphs" / "syn-cora-h0.50-r2.npz").write_bytes(b"")
    called = call("datasets")
    rows = {line.split("│")[1].strip(): line.split("│")[-2].strip() for line in called.out.splitlines() if "│" in line}
    assert rows["patchwork"] == "built in"
    assert rows["cora"] == "yes"
    assert rows["syn-cora"] == "yes"
    assert rows["pubmed"] == "no"


def test_partition_prints_the_statistics_and_saves(call: Callable, here: Path) -> None:
    called = call("partition patchwork --kind disjoint --clients 4 --out cut.npz --picture cut.png")
    assert called.status == 0, called.err
    assert "Heterogeneity" in called.out
    assert "350.0" in called.out
    assert load(here / "cut.npz").clients == 4
    assert (here / "cut.png").read_bytes().startswith(b"\x89PNG")


def test_partition_overwrites_only_when_told_to(call: Callable, refused: Callable, here: Path) -> None:
    (here / "cut.npz").write_text("mine")
    assert refused("partition patchwork --out cut.npz") == (
        "cut.npz is already there; choose another name, or overwrite it with --force."
    )
    assert call("partition patchwork --clients 2 --out cut.npz --force").status == 0
    assert load(here / "cut.npz").clients == 2


def test_partition_knows_natural_clients(call: Callable, refused: Callable) -> None:
    assert "10 clients" in call("partition patchwork --kind natural").out
    write_npz(patchwork(), Path("mine.npz"))
    assert "has no natural clients" in refused("partition mine.npz --kind natural")


def test_a_federation_of_homophily_levels_is_cut_and_trained_on(call: Callable, data_folder: Path) -> None:
    where = f"--data {data_folder}"
    called = call(f"partition syn-cora:h=all --kind natural --out cut.npz {where}")
    assert called.status == 0, called.err
    assert "11 clients" in called.out
    assert "16,390" in called.out
    options = f"--dataset syn-cora:h=all {where} -m majority -q"
    tests = []
    for cut in ("natural", "cut.npz"):
        called = call(f"run {options} --partition {cut} --json")
        assert called.status == 0, called.err
        result = json.loads(called.out)
        assert (result["dataset"], result["clients"]) == ("syn-cora:h=all", 11)
        tests.append(result["test_mean"])
    assert tests[0] == tests[1]


def test_what_is_wrong_with_a_partition_is_one_sentence(refused: Callable) -> None:
    assert "There is no dataset 'patchwrk'" in refused("partition patchwrk")
    assert "did you mean 'random'?" in refused("partition patchwork --kind randm")
    assert "has to end in .npz" in refused("partition patchwork --out cut.txt")
    assert "has to end in .png" in refused("partition patchwork --picture cut.txt")
    assert "multiple of 5" in refused("partition patchwork --kind overlapping --clients 7")
    assert "takes no 'sizes'" in refused("partition patchwork --sizes 1,2")
