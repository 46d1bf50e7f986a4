"""What TensorBoard reads from what was written."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorboard", reason="needs pip install 'fedquilt[tensorboard]'")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.summary.writer import event_file_writer

import fedquilt
from support.loggers import LONG, STOPS, Series, expected, logs, stopped_and_resumed, untimed

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture(autouse=True)
def counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one process in one second are told apart by a number, and the tenth would be read before the ninth."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))


def opened(path: str = "out", seed: int = 3) -> EventAccumulator:
    return EventAccumulator(str(logs(path) / "tensorboard" / f"seed-{seed}"), {"scalars": 0, "histograms": 0}).Reload()


def series(events: EventAccumulator) -> Series:
    tags = [tag for tag in events.Tags()["scalars"] if not tag.startswith("best/")]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def test_all_rounds_are_there() -> None:
    run = fedquilt.run("fedpub", out="out", log="tensorboard", **LONG)
    events, records = opened(), run.records[3]
    assert series(events) == expected(records)
    line = run.result["seeds"][0]
    for tag, name in (("best/val", "val"), ("best/test", "test"), ("best/round", "best_round")):
        assert [event.value for event in events.Scalars(tag)] == [pytest.approx(line[name])]
    measured = [record for record in records if "val" in record]
    histograms = events.Histograms("clients/test")
    assert [event.step for event in histograms] == [record["round"] for record in measured]
    for event, record in zip(histograms, measured, strict=True):
        tests = record["clients"]["test"]
        assert event.histogram_value.num == sum(event.histogram_value.bucket) == len(tests)
        assert event.histogram_value.sum == pytest.approx(sum(tests))


def test_hyperparameters_are_in_the_table() -> None:
    fedquilt.run("fedpub", out="out", log="tensorboard", **LONG)
    found = opened().SummaryMetadata
    parts = {}
    for tag in ("_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info"):
        data = HParamsPluginData()
        data.ParseFromString(found(tag).plugin_data.content)
        parts[tag.split("/")[1]] = data
    settings = parts["session_start_info"].session_start_info.hparams
    assert settings["method"].string_value == "fedpub"
    assert settings["settings/hidden"].number_value == 8
    assert settings["seed"].number_value == 3
    columns = [info.name.tag for info in parts["experiment"].experiment.metric_infos]
    assert columns == ["best/val", "best/test", "best/round"]
    assert parts["session_end_info"].session_end_info.status == 1  # success


@pytest.mark.parametrize(("round", "save_every"), STOPS)
def test_stopped_and_resumed_is_the_same_as_whole(round: int, save_every: float) -> None:
    whole = fedquilt.run("fedpub", out="whole", log="tensorboard", **LONG)
    watching: list[EventAccumulator] = []

    def look() -> None:
        watching.append(opened())
        steps = [step for step, _ in series(watching[0])["seconds"]]
        assert steps == list(range(round + 1))  # what was done is there, though it was stopped

    resumed = stopped_and_resumed("tensorboard", round, save_every, look)
    for events in (opened(), watching[0].Reload()):  # read now, and by one who had it open all the time
        assert series(events) == expected(resumed.records[3])
        assert untimed(series(events)) == untimed(expected(whole.records[3]))


def test_a_run_in_memory_is_logged_here() -> None:
    fedquilt.run("majority", clients=3, log="tensorboard")
    place = Path("logs/majority-patchwork-disjoint-3/tensorboard/seed-0")
    assert EventAccumulator(str(place)).Reload().Scalars("val")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is written in a thread of TensorBoard's, so the error comes later, by itself."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    def full(self: RecordWriter, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RecordWriter, "write", full)
    run = fedquilt.run("fedpub", out="out", log="tensorboard", **LONG)
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("fedquilt: ")] == [
        "fedquilt: Logging to TensorBoard failed (OSError: [Errno 28] No space left on device); "
        "the training goes on without it."
    ]
    assert len(run.records[3]) == 5
