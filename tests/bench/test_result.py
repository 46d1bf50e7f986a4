from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedquilt.bench.result import OURS, PLAIN_LOOP, read_result, write_result
from fedquilt.errors import FedquiltError
from support.bench import made_up


def test_ratios_are_those_of_the_same_turn() -> None:
    rows = {(row.side, row.method): row for row in made_up().rows}
    fedavg, plain, quilt = rows[OURS, "fedavg"], rows[PLAIN_LOOP, "fedavg"], rows[OURS, "quilt"]
    assert (fedavg.ms, fedavg.best_ms, plain.ms) == pytest.approx((11.0, 10.0, 88.0))
    assert (fedavg.speedup, fedavg.speedup_best) == pytest.approx((8.0, 8.0))
    assert (quilt.to_fedavg, quilt.to_plain_fedavg, quilt.best_to_plain_fedavg) == pytest.approx((1.6, 0.2, 0.2))
    assert quilt.speedup is None
    assert plain.speedup is None


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = made_up()
    write_result(result, tmp_path / "r.json")
    assert read_result(tmp_path / "r.json") == result


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": "another"}', '{"format": "fedquilt bench 1", "rows": [{}]}']
)
def test_what_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(FedquiltError, match="is not a result of 'fedquilt bench'"):
        read_result(tmp_path / "r.json")


def test_a_result_that_lacks_something_or_is_not_there_is_refused(tmp_path: Path) -> None:
    write_result(made_up(), tmp_path / "r.json")
    values = json.loads((tmp_path / "r.json").read_text())
    del values["rows"][0]["ms"]
    (tmp_path / "r.json").write_text(json.dumps(values))
    with pytest.raises(FedquiltError, match="is not a result"):
        read_result(tmp_path / "r.json")
    with pytest.raises(FedquiltError, match="cannot be read: No such file"):
        read_result(tmp_path / "none.json")
