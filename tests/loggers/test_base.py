from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.loggers.base import LOGGERS, Logger, check_loggers, find_logger, register_logger
from support.small_runs import SMALL

pytest.importorskip("tensorboard", reason="needs pip install 'fedquilt[tensorboard]'")


def test_names_are_taken_apart_and_once() -> None:
    assert check_loggers(()) == check_loggers("") == ()
    assert (
        check_loggers("tensorboard, tensorboard") == check_loggers(["tensorboard", "tensorboard,"]) == ("tensorboard",)
    )
    assert find_logger("tensorboard").name == "tensorboard"


def test_a_wrong_name_is_one_sentence_with_the_nearest_right_one() -> None:
    with pytest.raises(FedquiltError, match=r"^There is no logger 'tensorbord'; did you mean 'tensorboard'\?$"):
        find_logger("tensorbord")


@pytest.mark.parametrize("tool", sorted(LOGGERS.all()))
def test_a_missing_package_is_one_sentence_before_anything_is_written(
    tool: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("tensorboard", "torch.utils.tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, package, None)
    for train in (fedquilt.run, lambda **options: fedquilt.compare(["local", "fedavg"], **options)):
        with pytest.raises(FedquiltError) as caught:
            train(out="out", log=[tool], **SMALL)
        assert str(caught.value) == (
            f"Logging to {LOGGERS.find(tool).title} needs its package; install it with: pip install 'fedquilt[{tool}]'."
        )
    assert not list(elsewhere.iterdir())


def test_a_new_logger_is_one_class_that_registers_itself(tmp_path: Path) -> None:
    @register_logger("notebook")
    class Notebook(Logger):
        title = "Notebook"

        def start(self, run: str, seed: int, settings: Mapping[str, Any]) -> None:
            self.lines: list[str] = []

        def round(self, record: Mapping[str, Any]) -> None:
            self.lines.append(str(record["round"]))

        def finish(self, summary: Mapping[str, Any] | None) -> None:
            self.root.mkdir(parents=True)
            (self.root / "notebook.txt").write_text(" ".join(self.lines))

    try:
        fedquilt.run("fedavg", out=tmp_path / "out", log="notebook", **SMALL)
        assert (tmp_path / "out" / "logs" / "notebook.txt").read_text() == "0 1 2"
        with pytest.raises(FedquiltError, match=r"no logger 'notbook'; did you mean 'notebook'\?"):
            find_logger("notbook")
    finally:
        LOGGERS.remove("notebook")


def test_tools_do_not_call_home_unless_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.delenv("WANDB_ERROR_REPORTING", raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")
    for tool in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, tool, None)
        with pytest.raises(FedquiltError):
            find_logger(tool)
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "false"


def test_notes_are_kept_by_tool_and_seed(tmp_path: Path) -> None:
    class Plain(Logger):
        start = round = finish = None  # type: ignore[assignment]

    Plain.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]

    one, two = Plain(tmp_path / "logs"), Plain(tmp_path / "logs")
    one.name, two.name = "one", "two"  # type: ignore[misc]
    assert one.noted(0) == {}
    one.note(0, id="a")
    two.note(0, id="b")
    one.note(0, finished=True)
    one.note(1, id="c")
    assert one.noted(0) == {"id": "a", "finished": True}
    assert one.noted(1) == {"id": "c"}
    assert two.noted(0) == {"id": "b"}
    assert two.noted(1) == {}
    for content in ("[]", "{", '{"plain": 3}', '{"plain": {"0": 3}}'):
        (tmp_path / "loggers.json").write_text(content)
        with pytest.raises(FedquiltError, match=r"loggers\.json is damaged; delete it"):
            Plain(tmp_path).noted(0)
