"""What docs/predictions.md says is so: its commands run, its Python runs, its table of metrics is the tasks'."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedquilt.tasks.node_classification import METRICS
from support.trained_sites import make_site

PAGE = (Path(__file__).parents[2] / "docs" / "predictions.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    fedquilt (.+)$", PAGE, flags=re.MULTILINE)
CODE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_commands_and_the_code_run(
    call: Callable, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedquilt.reports.show.draw_overview", lambda *_: [])  # the figures have tests of their own
    (here / "people").mkdir()
    exec(CODE[0], {})
    assert len(COMMANDS) == 10
    for line in COMMANDS:
        if line.startswith("predict site.yaml"):
            continue  # of a site with other features; below
        called = call(line)
        assert called.status == 0, (line, called.err)
    header = (here / "own.csv").read_text().splitlines()[0]
    assert f"    {header}\n" in PAGE
    exec(CODE[1], {})
    assert "['q1' 'q2'] ('ill', 'well') (2, 2)" in capsys.readouterr().out
    assert (here / "new.parquet").is_file()


def test_a_site_predicts_for_a_table_of_nodes(call: Callable, here: Path) -> None:
    make_site(here)
    (here / "new.csv").write_text(f"id,{','.join(f'f{n}' for n in range(10))}\nq1{',1' * 10}\n")
    line = next(line for line in COMMANDS if line.startswith("predict site.yaml"))
    assert call(line).status == 0


def test_the_table_of_metrics_is_the_tasks() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| .+? \| (higher|lower) \|", PAGE, flags=re.MULTILINE)
    assert rows == [(name, "higher" if metric.higher_is_better else "lower") for name, metric in METRICS.items()]
