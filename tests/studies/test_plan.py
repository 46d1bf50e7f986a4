"""A part of a study, its cells and its command."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.studies import plan as module
from fedquilt.studies.plan import plan_study
from support.tiny_studies import no_network, write_study


@pytest.mark.parametrize(
    ("only", "seeds", "command"),
    [
        (None, None, "fedquilt study run NAME"),
        ({"method": ["local", "fedavg"]}, 3, "fedquilt study run NAME --only method=local,fedavg --seeds 3"),
        ({"clients": ["2"], "method": ["Fed Pub"]}, None, "fedquilt study run NAME --only 'clients=2,method=Fed Pub'"),
    ],
)  # fmt: skip
def test_the_command_that_runs_it(
    tmp_path: Path, only: dict[str, list[str]] | None, seeds: int | None, command: str
) -> None:
    name = write_study(tmp_path)
    assert plan_study(name, only, seeds).command == command.replace("NAME", name)


def test_a_part_has_the_cells_of_its_levels_and_seeds(tmp_path: Path) -> None:
    plan = plan_study(write_study(tmp_path), {"method": ["local"]}, 1, "graphs", "cpu")
    assert [cell.label for cell in plan.cells] == ["Local, 2, seed 0", "Local, 3, seed 0"]
    assert {(cell.config.data, cell.config.device) for cell in plan.cells} == {("graphs", "cpu")}
    assert plan.missing == []


def test_places_without_a_graph_are_named_in_the_order_of_the_table_and_the_rest_is_available(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_network(monkeypatch)
    axes = {
        "method": [
            "local",
            {"label": "Of tomorrow", "method": "tomorrows"},
            {"label": "X", "method": "fedavg", "missing": "why not"},
        ],
        "dataset": ["cora", "communities-3"],
    }
    plan = plan_study(write_study(elsewhere, axes=axes, columns=["dataset"], options={"clients": 2}), seeds=1)
    cells, missing = plan.available()
    assert [cell.at for cell in cells] == [{"method": "local", "dataset": "communities-3"}]
    assert [tuple(one.at.values()) for one in missing] == [
        ("local", "cora"),
        ("Of tomorrow", "cora"),
        ("Of tomorrow", "communities-3"),
        ("X", "cora"),
        ("X", "communities-3"),
    ]
    assert missing[0].why == "the graph cora cannot be had here (see 'fedquilt datasets')"
    assert missing[1].why == "the method tomorrows is not in fedquilt yet"
    assert missing[3].why == "why not"


def test_the_cells_of_a_plan_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expanded = []
    whole = module.expand
    monkeypatch.setattr(module, "expand", lambda *args: expanded.append(args) or whole(*args))
    plan = plan_study(write_study(tmp_path))
    assert plan.available()[0] == plan.cells
    assert len(expanded) == 1
