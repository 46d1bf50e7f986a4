from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.runs.folder import RunFolder, SeedFolder


def record(round: int) -> dict[str, object]:
    return {
        "round": round,
        "val": 80.0 + round,
        "test": math.nan,
        "clients": {"val": [1.0, 2.0], "test": [math.nan, np.float32(50)]},
        "bytes_up": {"model.conv1.weight": 123},
        "participants": "all",
    }


@pytest.fixture
def seed(tmp_path: Path) -> SeedFolder:
    return RunFolder.create(tmp_path / "run", "run").seed(3)


def test_names_that_are_taken(tmp_path: Path) -> None:
    made = [RunFolder.create(None, "fedpub-cora", tmp_path / "runs").path.name for _ in range(3)]
    assert made == ["fedpub-cora", "fedpub-cora-2", "fedpub-cora-3"]


def test_a_name_is_made_fit_for_a_folder(tmp_path: Path) -> None:
    assert RunFolder.create(None, "../my graph/x", tmp_path).path == tmp_path / "my-graph-x"
    assert RunFolder.create(None, "..", tmp_path).path == tmp_path / "run"


def test_an_explicit_path(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    RunFolder.create(path, "ignored").config = {"method": "fedavg"}
    with pytest.raises(FedquiltError, match=r"already holds a run; choose another --out, or continue it with 'fed"):
        RunFolder.create(path, "ignored")
    (tmp_path / "empty").mkdir()
    assert RunFolder.create(tmp_path / "empty", "ignored").path == tmp_path / "empty"
    (tmp_path / "file").write_text("x")
    with pytest.raises(FedquiltError, match="is a file"):
        RunFolder.create(tmp_path / "file", "ignored")
    with pytest.raises(FedquiltError, match="Cannot make a run folder"):
        RunFolder.create(tmp_path / "file" / "below", "ignored")


def test_racing_for_names(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def create(_: int) -> Path:
        start.wait()
        return RunFolder.create(None, "run", tmp_path).path

    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(create, range(8)))
    assert len(set(paths)) == 8


def test_racing_for_one_path(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def create(_: int) -> bool:
        start.wait()
        try:
            RunFolder.create(tmp_path / "run", "run")
        except FedquiltError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(8))) == 1


def test_open(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="There is no run folder"):
        RunFolder.open(tmp_path / "none")
    with pytest.raises(FedquiltError, match=r"no config\.json"):
        RunFolder.open(tmp_path)
    created = RunFolder.create(tmp_path / "run", "run")
    with pytest.raises(FedquiltError, match=r"no config\.json"):
        _ = created.config
    created.config = {"rounds": 3, "lr": math.nan}
    opened = RunFolder.open(tmp_path / "run")
    assert opened.config == {"rounds": 3, "lr": None}
    assert opened.result is None
    opened.result = {"test_mean": 80.5}
    assert created.result == {"test_mean": 80.5}


@pytest.mark.parametrize(("text", "message"), [("{", "not valid JSON"), ("[1]", "JSON object")])
def test_a_config_that_someone_broke(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(FedquiltError, match=message):
        _ = RunFolder.open(tmp_path).config


def test_seeds_are_listed_in_order_and_reading_makes_none(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "run")
    assert run.seed(5).records() == []
    assert run.seed(5).latest_checkpoint() is None
    run.seed(5).truncate_after(2)
    assert run.seeds() == []
    for seed in (10, 2):
        run.seed(seed).append(record(0))
    assert run.seeds() == [2, 10]


def test_records_round_trip(seed: SeedFolder) -> None:
    for round in range(3):
        seed.append(record(round), sync=round == 2)
    read = seed.records()
    assert [line["round"] for line in read] == [0, 1, 2]
    assert read[1]["test"] is None
    assert read[1]["clients"] == {"val": [1.0, 2.0], "test": [None, 50.0]}
    assert seed.metrics_path.read_text().count("\n") == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_last_line_torn_anywhere(tmp_path: Path, data: st.DataObject) -> None:
    seed = SeedFolder(tmp_path)
    seed.metrics_path.unlink(missing_ok=True)
    for round in range(3):
        seed.append(record(round))
    whole = seed.metrics_path.read_bytes()
    second = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    cut = data.draw(st.integers(second, len(whole)))
    seed.metrics_path.write_bytes(whole[:cut])
    expected = [0, 1, 2] if cut >= len(whole) - 1 else [0, 1]
    again = SeedFolder(tmp_path)
    assert [line["round"] for line in again.records()] == expected
    again.append(record(9))
    assert [line["round"] for line in again.records()] == [*expected, 9]


def test_a_torn_line_in_the_middle_of_a_letter(seed: SeedFolder) -> None:
    seed.append({"round": 0})
    with open(seed.metrics_path, "ab") as file:
        file.write('{"note": "é'.encode()[:-1])
    assert seed.records() == [{"round": 0}]


def test_damage_in_the_middle_is_not_passed_over(seed: SeedFolder) -> None:
    for round in range(3):
        seed.append(record(round))
    lines = seed.metrics_path.read_text().splitlines()
    for bad, message in (("{", "Line 2 .* is not JSON"), ("3", "Line 2 .* not a round's record")):
        seed.metrics_path.write_text("\n".join([lines[0], bad, lines[2]]) + "\n")
        with pytest.raises(FedquiltError, match=message):
            seed.records()


def test_truncate_after_keeps_exactly_the_earlier_lines(seed: SeedFolder) -> None:
    for round in range(1, 6):
        seed.append(record(round))
        seed.checkpoint(round, {"w": torch.ones(1) * round}, {}, keep=3)
    before = seed.metrics_path.read_bytes().splitlines(keepends=True)
    seed.truncate_after(4)
    assert seed.metrics_path.read_bytes() == b"".join(before[:4])
    found = seed.latest_checkpoint()
    assert found is not None
    assert found.round == 4
    seed.append(record(5))
    assert seed.metrics_path.read_bytes() == b"".join(before)
    seed.truncate_after(0)
    assert seed.records() == []
    assert seed.latest_checkpoint() is None


def test_server(seed: SeedFolder) -> None:
    assert seed.load_server() is None
    seed.save_server({"average": torch.ones(3)}, {"method": "keeping"})
    assert {path.name for path in seed.path.iterdir()} == {"server.json", "server.safetensors"}
    saved = seed.load_server()
    assert saved is not None
    assert torch.equal(saved[0]["average"], torch.ones(3))
    assert saved[1] == {"method": "keeping"}
    (seed.path / "server.safetensors").unlink()
    with pytest.raises(FedquiltError, match=r"The server in .* cannot be used: server.safetensors cannot be read"):
        seed.load_server()


def test_models(seed: SeedFolder) -> None:
    with pytest.raises(FedquiltError, match="no trained models yet"):
        seed.load_models()
    seed.save_models({"conv1.weight": torch.ones(2, 3)}, {"method": "fedpub", "clients": 2})
    assert {path.name for path in seed.path.iterdir()} == {"models.json", "models.safetensors"}
    tensors, facts = seed.load_models()
    assert torch.equal(tensors["conv1.weight"], torch.ones(2, 3))
    assert facts == {"method": "fedpub", "clients": 2}
    path = seed.path / "models.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FedquiltError, match="cannot be used"):
        seed.load_models()


def test_arrays(seed: SeedFolder) -> None:
    assert seed.load_arrays("similarity") is None
    seed.save_arrays("similarity", {"round-10": np.eye(3)})
    read = seed.load_arrays("similarity")
    assert read is not None
    np.testing.assert_array_equal(read["round-10"], np.eye(3))
    (seed.path / "similarity.npz").write_bytes(b"PK")
    with pytest.raises(FedquiltError, match="cannot be read as arrays"):
        seed.load_arrays("similarity")


def test_done(seed: SeedFolder) -> None:
    assert not seed.done
    assert seed.summary is None
    seed.finish({"seed": 3, "test": 81.5})
    assert seed.done
    assert seed.summary == {"seed": 3, "test": 81.5}


def test_the_lock_is_for_one(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "run")
    busy = f"is being written by process {os.getpid()};"
    with run.lock(), pytest.raises(FedquiltError, match=busy), run.lock():
        pass
    with run.lock():
        pass


def test_the_lock_is_free_after_kill_9(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "run")
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom fedquilt.runs.folder import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).lock():\n    print('held', flush=True)\n    time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(run.path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FedquiltError, match=f"process {holder.pid};"), run.lock():
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with run.lock():
        assert json.loads((run.path / ".lock").read_text()) == os.getpid()
