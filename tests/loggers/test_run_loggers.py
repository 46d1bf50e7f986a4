"""The loggers of a run, with one that only stores what it was called with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import fedquilt
from fedquilt.loggers.base import LOGGERS, Logger, register_logger
from fedquilt.runs.folder import RunFolder
from support.federations import assert_same, without_seconds
from support.small_runs import SMALL, Seen, stop_after

pytestmark = pytest.mark.usefixtures("elsewhere")


class Parrot(Logger):
    """Remembers what it was told, and fails where it is asked to."""

    title = "Parrot"
    told: ClassVar[list[tuple]] = []
    fails: ClassVar[str] = ""

    def _tell(self, what: str, *facts: Any) -> None:
        if self.fails == f"{what} {facts[0]}":
            raise OSError(28, "No space\nleft on device")
        self.told.append((what, *facts))

    def start(self, run: str, seed: int, settings: Mapping[str, Any]) -> None:
        self.settings = dict(settings)
        self._tell("start", seed, run, self.root)

    def round(self, record: Mapping[str, Any]) -> None:
        self._tell("round", record["round"])

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        self._tell("finish", None if summary is None else summary["seed"])


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Parrot]]:
    monkeypatch.setattr(Parrot, "told", [])
    yield register_logger("parrot")(Parrot)
    LOGGERS.remove("parrot")


def story(seed: int, root: str, name: str = "fedavg-patchwork-disjoint-3") -> list[tuple]:
    return [("start", seed, name, Path(root)), *(("round", r) for r in range(3)), ("finish", seed)]


def test_a_logger_hears_of_each_seed_from_start_to_finish(parrot: type[Parrot]) -> None:
    seen = Seen()
    fedquilt.run("fedavg", out="out", seeds=[0, 5], log=["parrot"], watch=seen, **SMALL)
    assert parrot.told == story(0, "out/logs") + story(5, "out/logs")
    assert [round for _, round in seen.rounds] == [0, 1, 2] * 2
    # A run that is done was logged, and is not logged again.
    parrot.told.clear()
    fedquilt.resume("out", log="parrot")
    assert parrot.told == []


def test_compare_logs_each_method(parrot: type[Parrot]) -> None:
    fedquilt.compare(["fedavg", "local"], out="out", log="parrot", **SMALL)
    local = story(0, "out/local/logs", "local-patchwork-disjoint-3")
    assert parrot.told == story(0, "out/fedavg/logs") + local


def test_runs_in_memory_have_folders_of_their_name(parrot: type[Parrot]) -> None:
    fedquilt.run("fedavg", log="parrot", **SMALL)
    fedquilt.run("fedavg", log="parrot", **SMALL)
    name = "logs/fedavg-patchwork-disjoint-3"
    assert parrot.told == story(0, name) + story(0, f"{name}-2")


def test_without_loggers_nothing_is_written() -> None:
    fedquilt.run("fedavg", **SMALL)
    fedquilt.run("fedavg", out="out", **SMALL)
    assert not list(Path().rglob("logs"))


def test_a_stopped_seed_is_finished_without_a_summary_and_comes_again(parrot: type[Parrot]) -> None:
    options = SMALL | {"seeds": [0, 1], "checkpoint_seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", out="out", log="parrot", watch=stop_after(1, 1), **options)
    start, *rounds, _ = story(1, "out/logs")
    assert parrot.told[5:] == [start, *rounds[:2], ("finish", None)]
    parrot.told.clear()
    fedquilt.resume("out", log="parrot")
    assert parrot.told == story(1, "out/logs")


def test_seeds_that_trained_without_it_are_logged_afterwards(parrot: type[Parrot]) -> None:
    run = fedquilt.run("fedavg", out="out", seeds=[0, 1], **SMALL)
    assert fedquilt.resume("out", log="parrot").result == run.result
    assert parrot.told == story(0, "out/logs") + story(1, "out/logs")


@pytest.mark.parametrize(
    ("fails", "heard"), [("start 0", 0), ("round 1", 2), ("finish 0", 4), ("start 1", 5), ("round 7", 10)]
)
def test_a_logger_that_fails_is_left_out_and_the_training_goes_on(
    fails: str, heard: int, parrot: type[Parrot], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parrot, "fails", fails)
    options = SMALL | {"seeds": [0, 1]}
    run = fedquilt.run("fedavg", out="out", log="parrot", **options)
    assert len(parrot.told) == heard
    sentence = (
        "fedquilt: Logging to Parrot failed (OSError: [Errno 28] No space left on device); "
        "the training goes on without it.\n"
    )
    assert capsys.readouterr().err == ("" if heard == 10 else sentence)
    alone = fedquilt.run("fedavg", out="alone", **options)
    for seed in (0, 1):
        assert without_seconds(run.records[seed]) == without_seconds(alone.records[seed])
        assert_same(run.models[seed], alone.models[seed])
    # What is missing can be had later.
    monkeypatch.setattr(parrot, "fails", "")
    parrot.told.clear()
    fedquilt.resume("out", log="parrot")
    missing = [seed for seed in (0, 1) if heard < 5 * (seed + 1)]
    assert parrot.told == [told for seed in missing for told in story(seed, "out/logs")]


def test_logging_is_no_part_of_what_a_run_is(parrot: type[Parrot]) -> None:
    fedquilt.run("fedavg", out="out", log="parrot", **SMALL)
    fedquilt.run("fedavg", out="alone", **SMALL)
    assert RunFolder.open(Path("out")).config == RunFolder.open(Path("alone")).config


def test_a_seed_that_is_trained_again_begins_its_log_again(parrot: type[Parrot]) -> None:
    fedquilt.run(
        "fedssa", out="out", log="parrot", clients=3, rounds=3, device="cpu", settings={"lr": 1.0, "filter_lr": 0.05}
    )
    starts = [place for place, told in enumerate(parrot.told) if told[0] == "start"]
    assert len(starts) == 2
    assert parrot.told[starts[1] - 1] == ("finish", None)
    assert parrot.told[starts[1] :] == story(0, "out/logs", "fedssa-patchwork-disjoint-3")
