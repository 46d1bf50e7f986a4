"""What a comparison runs, and what is found wrong with it before anything trains."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.graphs.npz import write_npz
from fedquilt.runs.compare import Comparison, check_configs, comparison_configs
from fedquilt.runs.resolve import ResolvedRun
from support.federations import assert_same, without_seconds
from support.small_runs import SMALL, own_graph
from support.thoroughness import EPOCHS, NAME, thorough

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize(
    ("methods", "settings", "says"),
    [
        ([], {}, "Say which methods to compare"),
        (["local", "fedavg"], {"tua": 3}, "There is no setting of these methods 'tua'"),
        (["local", "fedpub"], {"tua": 3}, "did you mean 'tau'?"),
        (["majority"], {"lr": 1}, "None of these methods has settings"),
        (["local", "fedpub"], {"tau": -3}, "The setting tau=-3 of method 'fedpub' is not possible"),
        (["local", "fedsheafhn"], {"stalk": 3}, "stalk=3 does not divide width=128"),
        (["local", "nobody"], {}, "There is no method 'nobody'"),
    ],
)
def test_what_is_wrong_with_any_method_is_said_first(
    methods: list[str], settings: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(FedquiltError) as caught:
        fedquilt.compare(methods, out="out", **(SMALL | {"settings": settings}))
    assert says in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_method_listed_twice_is_refused_before_anything_trains(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="listed twice"):
        fedquilt.compare(["local", "local"], "patchwork", out=tmp_path / "both", rounds=1)
    assert not (tmp_path / "both").exists()


def test_configurations_leave_everything_else_alike() -> None:
    plans = comparison_configs(["local", "fedpub"], {"rounds": 7, "settings": {"tau": 2}})
    assert [p.method for p in plans] == ["local", "fedpub"]
    assert [p.settings for p in plans] == [{}, {"tau": 2}]
    assert {p.rounds for p in plans} == {7}


@pytest.mark.parametrize("methods", [[NAME, "fedavg", "majority"], ["fedavg", NAME]], ids=str)
def test_each_method_has_epochs_of_its_own_unless_the_user_says(methods: list[str]) -> None:
    with thorough():
        own, told = (comparison_configs(methods, SMALL | {"settings": {}} | more) for more in ({}, {"epochs": 5}))
        resolved = check_configs(own)
        assert (
            {c.method: resolved.method_of(c).context.epochs for c in own}
            == {c.method: ResolvedRun(c).config.epochs for c in own}
            == {method: EPOCHS if method == NAME else 1 for method in methods}
        )
        assert {ResolvedRun(c).config.epochs for c in told} == {5}
        with pytest.raises(FedquiltError, match="Local epochs are given twice"):
            check_configs(comparison_configs(methods, SMALL | {"settings": {"epochs": 2}, "epochs": 5}))


def test_from_python_each_run_keeps_its_epochs_and_can_be_run_again(tmp_path: Path) -> None:
    with thorough():
        runs = fedquilt.compare([NAME, "fedavg"], out="out", **SMALL)
        for run, epochs in zip(runs, (EPOCHS, 1), strict=True):
            config = json.loads((tmp_path / "out" / run.result["method"] / "config.json").read_text())
            assert config["epochs"] == config["resolved"]["settings"]["epochs"] == epochs
            again = fedquilt.run(**{key: value for key, value in config.items() if key not in ("resolved", "versions")})
            assert without_seconds(again.records[0]) == without_seconds(run.records[0])
            assert_same(again.models[0], run.models[0])


def begun(tmp_path: Path) -> Path:
    """A comparison on a graph in a file, of which the first of two runs is done."""
    write_npz(own_graph(), tmp_path / "mine.npz")
    options = {"clients": 3, "rounds": 2, "device": "cpu", "dataset": str(tmp_path / "mine.npz")}
    comparison = Comparison.create(comparison_configs(["majority", "local"], options), tmp_path / "out")
    next(iter(comparison.runs()))
    return tmp_path / "out"


def test_a_comparison_is_not_resumed_on_another_graph(tmp_path: Path) -> None:
    out, graph = begun(tmp_path), own_graph()
    write_npz(replace(graph, y=graph.y[::-1].copy()), tmp_path / "mine.npz")
    with pytest.raises(
        FedquiltError, match=r"^The comparison in .* cannot be resumed: the graph .* its labels differ; put"
    ):
        list(Comparison.open(out, anyway=True).runs())
    assert not (out / "local").exists()
    write_npz(graph, tmp_path / "mine.npz")
    assert [run.result["method"] for run in Comparison.open(out).runs()] == ["majority", "local"]


def test_a_comparison_is_not_resumed_with_other_options_or_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = begun(tmp_path)
    path = out / "compare.json"
    content = json.loads(path.read_text())
    content["configs"][1]["rounds"] = 9
    path.write_text(json.dumps(content))
    with pytest.raises(FedquiltError, match=r"local\.rounds was 2 and is now 9 in compare\.json"):
        Comparison.open(out, anyway=True)
    content["configs"][1] |= {"rounds": 2, "device": "auto", "cohort_size": 1}
    path.write_text(json.dumps(content))
    Comparison.open(out)
    (out / "seal.json").rename(out / "kept")
    with pytest.raises(FedquiltError, match=r"seal\.json is gone"):
        Comparison.open(out)
    (out / "kept").rename(out / "seal.json")
    monkeypatch.setattr("fedquilt.runs.seal.VERSION", "9.9.9")
    with pytest.raises(FedquiltError, match=r"begun with fedquilt 0\.1\.0 and this is 9\.9\.9; insist with --anyway"):
        Comparison.open(out)
    Comparison.open(out, anyway=True)
    assert [run.result["method"] for run in Comparison.open(out).runs()] == ["majority", "local"]


FAILING: dict[str, Any] = {
    "dataset": "patchwork",
    "clients": 3,
    "rounds": 2,
    "device": "cpu",
    "settings": {"filter_lr": 1000.0},
}


def test_a_method_that_fails_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    runs = fedquilt.compare(["local", "fedssa", "majority"], out=tmp_path / "out", **FAILING)
    assert [run.result["method"] for run in runs] == ["local", "majority"]
    stored = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert list(stored["failed"]) == ["fedssa"]
    assert stored["failed"]["fedssa"].startswith("Training diverged")
    table = (tmp_path / "out" / "comparison.md").read_text().splitlines()
    assert [line.split("|")[1].strip(" *") for line in table[4:7]] == ["local", "fedssa", "majority"]
    assert "| failed |" in table[5]
    assert "Training diverged" in table[5]
    assert fedquilt.compare(["local", "fedssa"], **FAILING)[0].result["method"] == "local"  # in memory


def test_resume_tries_failed_methods_again_and_forgets_them_where_they_end_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("fedquilt.methods.fedavg.FedAvg.aggregate", broken)
        fedquilt.compare(["fedavg", "majority"], own_graph(), out=tmp_path / "out", clients=3, rounds=2, device="cpu")
    assert "Memory ran out" in json.loads((tmp_path / "out" / "compare.json").read_text())["failed"]["fedavg"]
    comparison = Comparison.open(tmp_path / "out")
    assert list(comparison.failed) == ["fedavg"]
    assert [run.result["method"] for run in comparison.runs()] == ["fedavg", "majority"]
    assert "failed" not in json.loads((tmp_path / "out" / "compare.json").read_text())


def test_a_method_that_does_not_fit_the_scenario_fails_alone(tmp_path: Path) -> None:
    options: dict[str, Any] = {"clients": 3, "rounds": 2, "device": "cpu", "aggregation": "median"}
    runs = fedquilt.compare(["local", "fedavg"], own_graph(), out=tmp_path / "out", **options)
    assert [run.result["method"] for run in runs] == ["fedavg"]
    assert not (tmp_path / "out" / "local").exists()
    with pytest.raises(FedquiltError, match="local"):
        fedquilt.compare(["local"], own_graph(), out=tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()
