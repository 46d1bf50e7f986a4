"""A plug-in file in runs: sealed, followed by resume, loaded by worker processes, and never executed for a stranger's run."""

from __future__ import annotations

import importlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fedquilt
from fedquilt.common.registry import load_plugins
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import read_site
from fedquilt.methods.base import find_method
from fedquilt.studies.plan import plan_study
from fedquilt.studies.run_cell import DONE, run_cell
from fedquilt.studies.store import CellStore
from support.command_line import Call
from support.federations import without_seconds
from support.plugins import METHOD, forget
from support.small_runs import SMALL, stop_after
from support.tiny_studies import write_study

OPTIONS = SMALL | {"checkpoint_seconds": 0.0, "rounds": 4}
PARTITION = """
import numpy as np
from fedquilt.partition.kind import register_kind


@register_kind("striped", "every M-th node")
def striped(graph, clients, seed):
    return [np.arange(m, graph.nodes, clients) for m in range(clients)], {}
"""
DATASET = """
import numpy as np
from fedquilt.datasets.catalogue import register_synthetic
from fedquilt.graphs.graph import Graph


@register_synthetic("ring", "a ring of nodes", size=(60, 60, 4, 2))
def ring(nodes: int = 60) -> Graph:
    y = np.arange(nodes) // 5 % 2
    x = np.random.default_rng(0).normal(size=(nodes, 4)) + y[:, None]
    return Graph.from_arrays("ring", np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes]), x, y)
"""

pytestmark = pytest.mark.usefixtures("elsewhere", "no_plugins")


@pytest.fixture
def half(tmp_path: Path) -> Path:
    (tmp_path / "half.py").write_text(METHOD)
    return tmp_path / "half.py"


def test_a_run_keeps_the_path_and_the_hash_and_resume_follows_them(half: Path) -> None:
    whole = fedquilt.run("half", plugins=["half.py"], **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("half", plugins=[half], out="run", watch=stop_after(0, 1), **OPTIONS)
    assert json.loads(Path("run/config.json").read_text())["plugins"] == [str(half)]
    assert list(json.loads(Path("run/seal.json").read_text())["facts"]["plugins"]) == ["half.py"]
    forget()  # another process, which loads it anew
    again = fedquilt.resume("run")
    assert without_seconds(again.records[0]) == without_seconds(whole.records[0])
    assert again.models[0].keys() == whole.models[0].keys()


def test_a_changed_plugin_is_named_and_refused(half: Path, call: Call) -> None:
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("half", plugins=[half], out="run", watch=stop_after(0, 1), **OPTIONS)
    half.write_text(METHOD + "\n# another\n")
    forget()
    with pytest.raises(
        FedquiltError, match=r"cannot be resumed: the plug-in half\.py changed since it began; insist with"
    ):
        fedquilt.resume("run")
    with pytest.raises(FedquiltError, match=r"half\.py was not executed, as you never ran it with this content"):
        fedquilt.resume("run", anyway=True)
    called = call("resume run --anyway --plugin half.py --quiet")
    assert called.status == 0, called
    accepted = json.loads(Path("run/seal.json").read_text())["facts"]["accepted"]
    assert accepted == ["the plug-in half.py changed since it began"]
    half.unlink()
    (Path("run") / "seed-0" / "summary.json").unlink()
    with pytest.raises(FedquiltError, match=r"begun with the plug-in half\.py, which is not there"):
        fedquilt.resume("run")


def test_a_plugin_that_lies_elsewhere_by_now_is_named(half: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("half", plugins=[half], out="run", watch=stop_after(0, 1), **OPTIONS)
    forget()
    (tmp_path / "moved").mkdir()
    half.rename(tmp_path / "moved" / "half.py")
    (tmp_path / "other.py").write_text(METHOD.replace('"half"', '"other"'))
    with pytest.raises(FedquiltError, match="has no plug-in called other"):
        fedquilt.resume("run", plugins=["other.py"])
    assert fedquilt.resume("run", plugins=["moved/half.py"]).result["seeds"]


def test_a_strangers_run_folder_and_config_execute_nothing(half: Path, tmp_path: Path, call: Call) -> None:
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("half", plugins=[half], out="run", watch=stop_after(0, 1), **OPTIONS)
    fedquilt.run("half", plugins=[half], out="done", **OPTIONS)
    forget()
    shutil.rmtree(tmp_path / "state")  # somebody else's home
    mark = tmp_path / "executed"
    half.write_text(METHOD + f"\nopen({str(mark)!r}, 'w')\n")
    for line in ("resume run", "resume run --anyway", "run --config run/config.json", "show run"):
        call(line)
        assert not mark.exists(), line
    stranger = fedquilt.load_run("done")
    assert stranger.result["method"] == "half"
    assert stranger.servers == {}
    assert not mark.exists()
    assert "name it if you trust it: --plugin" in call("run --config done/config.json").sentence
    assert call(f"run --config done/config.json --plugin {half} --quiet").status == 0
    assert mark.exists()


def test_it_is_listed_with_its_origin(half: Path, call: Call, refused: Callable[[str], str]) -> None:
    Path("more.py").write_text(PARTITION + DATASET)
    called = call("methods --plugin half.py --plugin more.py")
    assert called.status == 0
    assert "half.py registers: method half." in called.out
    assert "more.py registers: dataset ring, partition striped." in called.out
    (line,) = [line for line in called.out.splitlines() if "│ half " in line]
    assert "half.py" in line
    (line,) = [line for line in call("datasets").out.splitlines() if "│ ring " in line]
    assert "more.py" in line
    assert "Half" in call("methods half").out
    assert call("partition ring --kind striped --clients 4").status == 0
    assert refused("methods --plugin none.py").startswith("The plug-in ")


def test_a_comparison_and_a_search_take_plugins(half: Path, call: Call) -> None:
    Path("more.py").write_text(PARTITION + DATASET)
    line = "--plugin half.py --plugin more.py --dataset ring --partition striped --clients 3 --rounds 2 --quiet"
    called = call(f"compare --methods half,fedavg --set hidden=4 --out both {line}")
    assert called.status == 0, called
    assert "half" in called.out
    forget()
    Path("both/fedavg/seed-0/summary.json").unlink()
    assert call("resume both --quiet").status == 0
    half.write_text(METHOD + "\n")
    Path("both/fedavg/result.json").unlink(missing_ok=True)
    Path("both/fedavg/seed-0/summary.json").unlink()
    assert "the plug-in half.py changed since it began" in call("resume both --quiet").sentence
    called = call(f"tune --method half --trials 2 --into search {line}")
    assert called.status == 0, called


def test_a_study_takes_plugins_in_its_workers(half: Path, call: Call) -> None:
    axes = {"method": [{"label": "Half", "method": "half"}], "clients": [3]}
    options = {"dataset": "communities-3", "rounds": 2, "plugins": ["half.py"], "settings": {"hidden": 4}}
    write_study(Path(), "mine", seeds=1, axes=axes, options=options)
    refused = call("study show mine.yaml")
    assert "never ran it with this content" in refused.sentence, refused
    load_plugins([half], named=True)
    (cell,) = plan_study("mine.yaml", {}, device="cpu").cells
    identity = cell.identity
    forget()  # a worker process, which is sent the cell
    assert run_cell(pickle.loads(pickle.dumps(cell)), CellStore(Path("studies"))) == DONE
    half.write_text(METHOD + "\n")
    assert cell.identity != identity  # another plug-in is another cell


def test_workers_on_ray_load_plugins(half: Path) -> None:
    ray = pytest.importorskip("ray")
    worker = importlib.import_module("fedquilt.training.engines.ray_worker").RayWorker()
    load_plugins([half], named=True)
    sent = ray.cloudpickle.dumps(find_method("half"))
    forget()
    with pytest.raises(ModuleNotFoundError):
        ray.cloudpickle.loads(sent)
    worker.load([str(half)])
    assert ray.cloudpickle.loads(sent) is find_method("half")


def test_a_site_names_its_own_plugins(half: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    shutil.copy(half, tmp_path / "site")
    path = tmp_path / "site" / "site.yaml"
    path.write_text("name: a\ngraph: graph.npz\nstate: state\nplugins: [half.py]\n")
    assert read_site(path).plugins == [str(tmp_path / "site" / "half.py")]
    assert find_method("half").title == "Half"
