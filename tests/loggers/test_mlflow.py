"""What MLflow reads from what was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("mlflow", reason="needs pip install 'fedquilt[mlflow]'")
pytest.importorskip("alembic", reason="needs pip install 'fedquilt[mlflow]'")
import mlflow

import fedquilt
from support.loggers import LONG, STOPS, Series, expected, logs, stopped_and_resumed, untimed


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all tests: making one takes longer than they do."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture(autouse=True)
def client(elsewhere: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> mlflow.MlflowClient:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", str(elsewhere))
    return mlflow.MlflowClient(database)


def only(client: mlflow.MlflowClient) -> mlflow.entities.Run:
    """The only run of the test's experiment."""
    (experiment,) = [e for e in client.search_experiments() if e.name == str(Path.cwd())]
    (run,) = client.search_runs([experiment.experiment_id])
    return run


def series(client: mlflow.MlflowClient) -> Series:
    run = only(client)
    tags = [tag for tag in run.data.metrics if not tag.startswith("best/")]
    histories = {tag: client.get_metric_history(run.info.run_id, tag) for tag in tags}
    return {tag: sorted((m.step, m.value) for m in history) for tag, history in histories.items()}


def test_all_rounds_are_there(client: mlflow.MlflowClient) -> None:
    done = fedquilt.run("fedpub", out="out", log="mlflow", **LONG)
    run = only(client)
    assert series(client) == expected(done.records[3])
    line = done.result["seeds"][0]
    best = {"best/val": line["val"], "best/test": line["test"], "best/round": line["best_round"]}
    assert {tag: run.data.metrics[tag] for tag in best} == pytest.approx(best)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "fedpub-patchwork-disjoint-3 seed 3"
    assert run.data.params["method"] == "fedpub"
    assert run.data.params["settings/hidden"] == "8"
    assert run.data.tags["fedquilt.logs"] == str(logs().resolve())
    assert json.loads((logs() / "loggers.json").read_text()) == {
        "mlflow": {"3": {"id": run.info.run_id, "finished": True}}
    }


@pytest.mark.parametrize(("round", "save_every"), STOPS)
def test_stopped_and_resumed_is_the_same_as_whole(round: int, save_every: float, client: mlflow.MlflowClient) -> None:
    ids = []

    def look() -> None:
        assert only(client).info.status == "KILLED"
        ids.append(only(client).info.run_id)
        assert [step for step, _ in series(client)["seconds"]] == list(range(round + 1))

    resumed = stopped_and_resumed("mlflow", round, save_every, look)
    assert untimed(series(client)) == untimed(expected(resumed.records[3]))
    assert only(client).info.run_id == ids[0]
    assert only(client).info.status == "FINISHED"


def test_rounds_that_were_killed_before_they_were_sent_come_again(
    client: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedquilt.loggers.mlflow import MLflow

    with monkeypatch.context() as patch:
        patch.setattr(MLflow, "finish", lambda self, summary: None)  # as after a kill: nothing was sent
        resumed = stopped_and_resumed("mlflow", 3, 0.0, patch.undo)
    assert untimed(series(client)) == untimed(expected(resumed.records[3]))


def test_a_run_that_is_gone_is_logged_anew(client: mlflow.MlflowClient) -> None:
    resumed = stopped_and_resumed("mlflow", 3, 0.0, lambda: client.delete_run(only(client).info.run_id))
    assert series(client) == expected(resumed.records[3])


def test_many_rounds_are_sent_together(client: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    batch = mlflow.MlflowClient.log_batch

    def counted(self: mlflow.MlflowClient, run_id: str, metrics: tuple = (), **rest: object) -> None:
        sent.append(len(metrics))
        batch(self, run_id, metrics, **rest)

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", counted)
    done = fedquilt.run("fedavg", out="out", log="mlflow", **(LONG | {"rounds": 120, "evaluate_every": 1}))
    assert series(client) == expected(done.records[3])
    assert max(sent) <= 1000
    assert len(sent) < 12


def test_the_database_is_in_the_folder_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME")
    fedquilt.run("majority", out="out", clients=3, log="mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{(logs() / 'mlflow' / 'mlflow.db').resolve()}")
    experiment = client.get_experiment_by_name("fedquilt")
    assert len(client.search_runs([experiment.experiment_id])) == 1
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in Path().iterdir()) == ["out"]


def test_a_store_that_cannot_be_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://mlflow")
    run = fedquilt.run("fedavg", out="out", log="mlflow", **LONG)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedquilt: ")]
    assert len(said) == 1
    assert said[0].startswith("fedquilt: Logging to MLflow failed (")
    assert len(run.records[3]) == 5
