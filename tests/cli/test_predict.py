from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedquilt.graphs.npz import write_npz
from support.named_runs import CLASSES, named_run
from support.trained_sites import grown, make_site


def test_predictions_for_the_sites_graph_and_for_one_that_has_grown(call: Callable, here: Path) -> None:
    _, _, client, _ = make_site(here, "quilt")
    called = call("predict site.yaml --out now.csv")
    assert called.status == 0, called.err
    assert called.out == "Predicted 14 nodes in 3 classes; written to now.csv.\n"
    write_npz(grown(client, 3).graph, here / "new.npz")
    assert call("predict site.yaml --graph new.npz --out later.csv").status == 0
    now, later = (list(csv.DictReader((here / name).read_text().splitlines())) for name in ("now.csv", "later.csv"))
    assert [row["id"] for row in now] == [f"node-{n}" for n in range(14)]
    assert len(later) == 17
    for row in now + later:
        chances = {name: float(row[f"p_{name}"]) for name in ("blue", "green", "red")}
        assert np.isclose(sum(chances.values()), 1.0, atol=1e-4)
        assert row["class"] == max(chances, key=lambda name: chances[name])


def test_a_file_is_overwritten_only_when_told_to(call: Callable, refused: Callable, here: Path) -> None:
    make_site(here)
    (here / "out.csv").write_text("mine")
    assert "is already there" in refused("predict site.yaml --out out.csv")
    assert call("predict site.yaml --out out.csv --force").status == 0
    assert (here / "out.csv").read_text().startswith("id,class,p_blue,")


def test_what_is_wrong_is_one_sentence(refused: Callable, here: Path) -> None:
    _, _, client, _ = make_site(here)
    assert "has to end in .csv" in refused("predict site.yaml --out out.txt")
    assert refused("predict gone") == "There is no file or folder 'gone'; name a run's folder or a site's site.yaml."
    assert "--client and --seed are for a run's folder" in refused("predict site.yaml --client 0")
    assert "There is no file or folder 'new.npz'" in refused("predict site.yaml --graph new.npz --out out.csv")
    np.savez(here / "narrow.npz", edge_index=client.graph.edges, x=client.graph.x[:, :4])
    assert "has 4 features and the model was trained on 10" in refused("predict site.yaml -g narrow.npz -o out.csv")
    for file in (here / "state" / "run-1" / "model").glob("*.safetensors"):
        file.write_bytes(b"torn")
    assert "is damaged" in refused("predict site.yaml --out out.csv")


def test_a_class_that_the_model_does_not_know_is_said(call: Callable, here: Path) -> None:
    _, _, client, _ = make_site(here)
    write_npz(replace(client.graph, class_names=("blue", "green", "grey")), here / "new.npz")
    called = call("predict site.yaml --graph new.npz --out out.csv")
    assert called.status == 0, called.err
    assert called.out.startswith("Warning: ")
    assert "has the class 'grey', which the model was not trained on" in called.out
    assert (here / "out.csv").is_file()


def test_without_a_file_the_first_rows_are_printed(call: Callable, here: Path) -> None:
    make_site(here)
    called = call("predict site.yaml")
    assert called.status == 0, called.err
    assert "p_green" in called.out
    assert called.out.endswith(
        "... and 4 more.\nPredicted 14 nodes in 3 classes; write all of it with --out predictions.csv.\n"
    )


def test_a_runs_models_predict_as_a_sites_does(call: Callable, refused: Callable, here: Path) -> None:
    named_run(here)
    called = call("predict run --out own.csv")
    assert called.out == "Predicted 60 nodes with 3 clients' models in 3 classes; written to own.csv.\n", called.err
    (here / "new.csv").write_text("id,risk,dose,age\nq1,0.5,1,2\n")
    called = call("predict run --client 1 --nodes new.csv --seed 0 --out new.json")
    assert called.status == 0, called.err
    assert called.out.splitlines()[0].startswith("Warning: new.csv is a table of nodes without edges")
    assert called.out.endswith("Predicted 1 node with the model of client 1 in 3 classes; written to new.json.\n")
    assert "with the mean of all models" in call("predict run --client mean --nodes new.csv").out
    with open(here / "own.csv", newline="") as file:
        first = next(csv.DictReader(file))
    assert list(first)[:5] == ["client", "id", "part", "label", "class"]
    assert first["label"] in CLASSES
    assert "say whose predicts" in refused("predict run --nodes new.csv")
    assert "holds several runs; choose one of: ./run" in refused("predict .").replace("one of: run", "one of: ./run")


def test_the_help_says_what_a_site_is(call: Callable) -> None:
    assert "SITE is the site's site.yaml" in call("predict --help").out


def test_links_between_pairs_of_nodes(call: Callable, refused: Callable, here: Path) -> None:
    options = "--dataset communities-3 --clients 2 --rounds 1 --set hidden=8 --quiet"
    assert call(f"run --method local --task link --set-task width=8 {options} --out run").status == 0
    assert "Predicted" in call("predict run --out own.csv").out
    with open(here / "own.csv", newline="") as file:
        heading, first, *_ = csv.reader(file)
    assert heading == ["client", "source", "target", "part", "label", "probability"]
    (here / "pairs.csv").write_text(f"source,target\n{first[1]},{first[2]}\n")
    called = call("predict run --pairs pairs.csv --out out.csv")
    assert "Predicted 1 pair with the model of client 0; written to out.csv" in called.out
    assert (
        (here / "out.csv")
        .read_text()
        .startswith(f"client,source,target,label,probability\n0,{first[1]},{first[2]},edge,")
    )
    (here / "pairs.csv").write_text("source,target\nnobody,1\n")
    assert "There is no node 'nobody'" in refused("predict run --pairs pairs.csv")
    assert "--set-task width is not of the form name=value" in refused(f"run --task link --set-task width {options}")
