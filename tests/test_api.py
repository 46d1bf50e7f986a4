"""fedquilt from Python: run, compare, resume."""

from __future__ import annotations

import json
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.graphs.npz import write_npz
from fedquilt.partition.make import make_partition
from fedquilt.partition.storage import save
from fedquilt.runs.config import GRAPH_FILE, RunConfig
from support.federations import assert_same, without_seconds
from support.small_runs import SMALL, own_graph, stop_after

pytestmark = pytest.mark.usefixtures("elsewhere")
RESULT = [
    *("method", "dataset", "partition", "clients", "rounds"),
    *("metric", "test_mean", "test_std", "val_mean", "seeds", "figures"),
]
SEED = [
    *("seed", "best_round", "val", "test", "seconds", "seconds_per_round"),
    *("upload_bytes", "download_bytes", "rounds_run", "figures"),
]


# -- run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["data", "graph", "file", "path", "name"])
def test_run_takes_any_graph(kind: str, tmp_path: Path) -> None:
    graph = own_graph()
    write_npz(graph, "mine.npz")
    both = torch.from_numpy(np.concatenate([graph.edges, graph.edges[::-1]], axis=1))
    source = {
        "data": Data(x=torch.from_numpy(graph.x), edge_index=both, y=torch.from_numpy(graph.y)),
        "graph": graph,
        "file": "mine.npz",
        "path": tmp_path / "mine.npz",
        "name": "patchwork",
    }[kind]
    run = fedquilt.run("fedavg", source, seeds=[0, 1], **SMALL)
    assert run.folder is None
    assert run.result["dataset"] == {"data": "graph", "name": "patchwork"}.get(kind, "mine")
    assert list(run.records) == list(run.models) == [0, 1]
    features = 200 if kind == "name" else 3
    assert run.models[0]["conv1.weight"].shape == (3, features, 8)
    if kind != "name":  # the same graph, whatever it came as
        expected = fedquilt.run("fedavg", graph, seeds=[0, 1], **SMALL)
        assert_same(run.models[1], expected.models[1])
    assert not list(tmp_path.glob("runs"))


def test_the_result_is_as_documented() -> None:
    run = fedquilt.run("fedpub", seeds=[3, 4], **SMALL)
    result = run.result
    assert list(result) == RESULT
    assert [list(line) for line in result["seeds"]] == [SEED, SEED]
    assert {key: result[key] for key in RESULT[:6]} == {
        "method": "fedpub",
        "dataset": "patchwork",
        "partition": "disjoint",
        "clients": 3,
        "rounds": 3,
        "metric": "accuracy",
    }
    for seed, line in zip((3, 4), result["seeds"], strict=True):
        records = run.records[seed]
        best = max(records, key=lambda record: record["val"])
        assert line["seed"] == seed
        assert (line["best_round"], line["val"], line["test"]) == (best["round"], best["val"], best["test"])
        assert line["upload_bytes"] == sum(sum(r["bytes_up"].values()) for r in records)
        assert line["download_bytes"] == sum(sum(r["bytes_down"].values()) for r in records)
        assert line["seconds"] == pytest.approx(sum(r["seconds"] for r in records))
        assert line["seconds_per_round"] == pytest.approx(line["seconds"] / 3)
        assert set(run.similarities[seed]) == {-1, 0}
    tests = [line["test"] for line in result["seeds"]]
    assert result["test_mean"] == pytest.approx(np.mean(tests))
    assert result["test_std"] == pytest.approx(np.std(tests))
    assert result["val_mean"] == pytest.approx(np.mean([line["val"] for line in result["seeds"]]))
    assert repr(run) == (
        f"<Run fedpub on patchwork, 3 clients: test accuracy {result['test_mean']:.2f} ± {result['test_std']:.2f}>"
    )
    json.dumps(result, allow_nan=False)


def test_the_folder_holds_what_the_run_returns(tmp_path: Path) -> None:
    run = fedquilt.run("fedpub", out="out", seeds=[0], **SMALL)
    assert run.folder == Path("out")
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == run.result
    again = fedquilt.resume("out")
    assert again.result == run.result
    assert again.records == json.loads(
        json.dumps(run.records), object_hook=lambda d: {int(k) if k.isdigit() else k: v for k, v in d.items()}
    )
    assert_same(again.models[0], run.models[0])
    assert again.similarities[0].keys() == run.similarities[0].keys()
    assert all(np.array_equal(again.similarities[0][r], s) for r, s in run.similarities[0].items())
    assert fedquilt.run("fedpub", seeds=[0], **SMALL).result["test_mean"] == run.result["test_mean"]
    with pytest.raises(FedquiltError, match="out already holds a run"):
        fedquilt.run("fedpub", out="out", **SMALL)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"client": 3}, "There is no option 'client'; did you mean 'clients'?"),
        ({"rounds": 0}, "The option rounds=0 is not possible"),
        ({"participation": 0}, "The option participation=0 is not possible"),
        ({"seeds": []}, "The option seeds=[] is not possible"),
        ({"seeds": [1, 1]}, "a seed is listed twice"),
        ({"settings": {"hiden": 3}}, "There is no setting of fedavg 'hiden'; did you mean 'hidden'?"),
        ({"method": "fedavgg"}, "There is no method 'fedavgg'; did you mean 'fedavg'?"),
        ({"dataset": "patchwrk"}, "There is no dataset 'patchwrk'; did you mean 'patchwork'?"),
        ({"dataset": 3}, "A int is not a graph"),
        ({"metric": "f1"}, "There is no metric 'f1'"),
        ({"metric": "f2"}, "There is no metric 'f2'"),
        ({"split": "given"}, "patchwork has no given split"),
        ({"split": "2fold"}, "The split '2fold' has too few folds"),
        ({"edge_noise": 1.5}, "The option edge_noise=1.5 is not possible"),
        ({"device": "tpu"}, "There is no device 'tpu'"),
        ({"clients": 9999}, "too few for 9999 clients"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_before_a_folder_is_made(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(FedquiltError) as caught:
        fedquilt.run(**({"method": "fedavg", "out": "out"} | SMALL | options))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


# -- compare -----------------------------------------------------------------------------------------


def test_compare_gives_each_setting_to_those_who_have_it(tmp_path: Path) -> None:
    settings = {"hidden": 8, "tau": 7.0, "mu": 0.5}
    runs = fedquilt.compare(["majority", "fedprox", "fedpub"], out="out", **(SMALL | {"settings": settings}))
    assert [run.result["method"] for run in runs] == ["majority", "fedprox", "fedpub"]
    kept = {}
    for method in ("majority", "fedprox", "fedpub"):
        config = json.loads((tmp_path / "out" / method / "config.json").read_text())
        kept[method] = config["settings"]
        assert config["resolved"]["graph"]["name"] == "patchwork"
    assert kept == {
        "majority": {},
        "fedprox": {"hidden": 8, "mu": 0.5},
        "fedpub": {"hidden": 8, "tau": 7.0},
    }


def test_compare_gives_what_single_runs_give_on_a_graph_of_ones_own() -> None:
    graph = own_graph()
    runs = fedquilt.compare(["local", "fedavg"], graph, **SMALL)
    for run in runs:
        alone = fedquilt.run(run.result["method"], graph, **SMALL)
        assert_same(alone.models[0], run.models[0])


# -- resume ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [True, False])
def test_resume_from_another_folder_gives_what_an_undisturbed_run_gives(
    given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = own_graph()
    write_npz(graph, "mine.npz")
    save(make_partition(graph, "random", 4, 1), "cut.npz")
    options = SMALL | {"partition": "cut.npz", "seeds": [0, 1], "participation": 0.6, "checkpoint_seconds": 0.0}
    source = graph if given else "mine.npz"
    whole = fedquilt.run("fedpub", source, out="whole", **options)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedpub", source, out="stopped", watch=stop_after(1, 1), **options)
    config = json.loads((tmp_path / "stopped" / "config.json").read_text())
    assert config["partition"] == str(tmp_path / "cut.npz")
    assert config["clients"] == 4
    # A graph that was given as an object is in the folder, so nothing else is needed.
    assert config["dataset"] == str(tmp_path / "stopped" / GRAPH_FILE if given else tmp_path / "mine.npz")
    assert (tmp_path / "stopped" / GRAPH_FILE).is_file() == given
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = fedquilt.resume(tmp_path / "stopped")
    for seed in (0, 1):
        assert without_seconds(resumed.records[seed]) == without_seconds(whole.records[seed])
        assert_same(resumed.models[seed], whole.models[seed])
        assert all(np.array_equal(s, whole.similarities[seed][r]) for r, s in resumed.similarities[seed].items())
    assert resumed.result["test_mean"] == whole.result["test_mean"]
    assert resumed.result["dataset"] == "mine"


def test_resume_of_no_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="There is no run folder at nowhere"):
        fedquilt.resume("nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FedquiltError, match="is not a run folder"):
        fedquilt.resume("empty")


@pytest.mark.parametrize("options", [{"split": "5fold", "seeds": [6]}, {"edge_noise": 0.3}], ids=str)
def test_a_stopped_run_goes_on_with_the_same_cut(options: dict[str, Any]) -> None:
    options = SMALL | {"checkpoint_seconds": 0.0} | options
    seed = options.get("seeds", [0])[0]
    whole = fedquilt.run("fedavg", **options)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", out="stopped", watch=stop_after(seed, 1), **options)
    resumed = fedquilt.resume("stopped")
    assert without_seconds(resumed.records[seed]) == without_seconds(whole.records[seed])
    assert_same(resumed.models[seed], whole.models[seed])
    plain = fedquilt.run("fedavg", **SMALL | {"seeds": [seed]})
    assert without_seconds(plain.records[seed]) != without_seconds(whole.records[seed])


def test_a_cohort_size_does_not_change_the_result() -> None:
    whole, cut = (fedquilt.run("fedavg", own_graph(), **SMALL, cohort_size=size) for size in (None, 2))
    for name, w in whole.models[0].items():
        assert torch.allclose(w, cut.models[0][name], atol=1e-5)


def test_the_public_names_are_there() -> None:
    for name in fedquilt.__all__:
        assert getattr(fedquilt, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fedquilt.nothing


def test_names_are_listed_before_they_are_imported() -> None:
    code = "import fedquilt, sys; print(*dir(fedquilt)); assert 'torch' not in sys.modules and 'pydantic' not in sys.modules"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(fedquilt.__all__) <= set(listed)
    assert "TYPE_CHECKING" not in listed


def test_help_shows_each_option_of_a_run() -> None:
    shown = pydoc.render_doc(fedquilt.run, renderer=pydoc.plaintext)
    for name in set(RunConfig.model_fields) - {"method", "dataset"}:
        assert f"\n        {name}: " in shown, name
    whole = pydoc.render_doc(fedquilt, renderer=pydoc.plaintext)
    for name in ("run", "compare", "resume", "load_run"):
        assert f"\n    {name}(" in whole
