"""From a table as people have it to predictions for another one: read, train, predict, all encoded alike."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedquilt.runs.finished import load_run
from support.messy_tables import write_large_messy

NEW = "Patient;CRP;Alter;Größe;Stadt;Raucher\nq1;12,5;71;;Rom;yes\nq2;;30;1,8;Köln;no\n"


def test_a_run_and_its_predictions(tmp_path: Path, call: Callable) -> None:
    folder = write_large_messy(tmp_path / "clinic", 90)
    out = tmp_path / "run"
    run = f"run --dataset {folder} --method fedavg --clients 2 --rounds 2 --split 40/30/30 --out {out}"
    called = call(run)
    assert called.status == 0, called.err
    (tmp_path / "new.csv").write_bytes(NEW.encode("cp1252"))
    called = call(f"predict {out} --client 1 --nodes {tmp_path / 'new.csv'} --out {tmp_path / 'p.csv'}")
    assert called.status == 0, called.err
    rows = list(csv.DictReader((tmp_path / "p.csv").open(encoding="utf-8")))
    assert [row["id"] for row in rows] == ["q1", "q2"]
    assert {row["class"] for row in rows} <= {"gesund", "krank"}
    assert np.allclose([float(row["p_gesund"]) + float(row["p_krank"]) for row in rows], 1, atol=1e-5)
    facts = load_run(out).facts[0]
    assert facts["encoding"]["id"] == "Patient"
    assert [column["name"] for column in facts["encoding"]["columns"]] == ["Alter", "Größe", "CRP", "Raucher", "Stadt"]
    (tmp_path / "new.csv").write_bytes(NEW.replace("Alter", "Age").encode("cp1252"))
    called = call(f"predict {out} --client 1 --nodes {tmp_path / 'new.csv'} --out {tmp_path / 'q.csv'}")
    assert called.status == 2
    assert "it has no column 'Alter', which the model was trained on" in called.err
    assert "it has a column 'Age', which the model was not trained on" in called.err
    assert not (tmp_path / "q.csv").exists()
