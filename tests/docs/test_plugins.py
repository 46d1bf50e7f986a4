"""docs/plugins.md: each of its examples is a plug-in that loads and trains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedquilt

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
TABLE = re.findall(r"```text\n(client,.*?)```", PAGE, re.DOTALL)
OPTIONS = {"clients": 4, "rounds": 2, "device": "cpu", "min_train": 1}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)):
        (tmp_path / f"plugin_{number}.py").write_text(block)
        paths.append(str(tmp_path / f"plugin_{number}.py"))
    return paths


@pytest.mark.usefixtures("elsewhere", "no_plugins")
def test_the_examples_are_plugins(files: list[str]) -> None:
    assert len(files) == 5
    compared = fedquilt.compare(
        ["mean-only", "smooth"], "ring:nodes=80", partition="striped", plugins=files, settings={"near": 0.4}, **OPTIONS
    )
    assert [run.result["method"] for run in compared] == ["mean-only", "smooth"]
    Path("clients.csv").write_text(TABLE[0])
    for method in ("mean-only", "fedper", "local"):
        run = fedquilt.run(
            method, "ring", backbone="my-gat", settings={"hidden": 4}, client_settings="clients.csv", **OPTIONS
        )
        assert "conv1.att" in run.models[0]


def test_a_method_takes_thirty_lines() -> None:
    smooth = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class Smooth(" in block)
    body = smooth[smooth.index("@register") :]
    assert len([line for line in body.splitlines() if line.strip()]) <= 30
