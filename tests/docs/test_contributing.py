"""The example of CONTRIBUTING.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import fedquilt
from fedquilt.methods import base
from support.small_runs import SMALL, own_graph

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_method_of_the_example_trains_and_shares_its_first_layer() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Adding a method")[2]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example is not None
    try:
        exec(compile(example[1], str(PAGE), "exec"), {})
        run = fedquilt.run("headless", own_graph(), **SMALL)
        robust = fedquilt.run("headless", own_graph(), aggregation="median", **SMALL)
    finally:
        base.METHODS.remove("headless")
    sent = {name for record in run.records[0] for name in record["bytes_up"]}
    assert sent == {"model.conv1.weight", "model.conv1.bias"}
    assert robust.result["test_mean"] is not None
