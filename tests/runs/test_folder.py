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

from fedquilt.common.files import write_json
from fedquilt.errors import FedquiltError
from fedquilt.runs import checkpoint as checkpoints
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


def test_a_folder_in_place_of_the_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "run/config.json").mkdir(parents=True)
    with pytest.raises(FedquiltError, match=r"run/config.json is not a file; put the file back, or choose"):
        RunFolder.create(tmp_path / "run", "ignored")


def test_racing_for_names(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def create(_: int) -> Path:
        start.wait()
        return RunFolder.create(None, "run", tmp_path).path

    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(create, range(8)))
    assert len(set(paths)) == 8


@pytest.mark.parametrize("exists", [False, True])
def test_racing_for_one_path(tmp_path: Path, exists: bool) -> None:
    start = threading.Barrier(8)
    if exists:
        (tmp_path / "run").mkdir()

    def create(_: int) -> bool:
        start.wait()
        try:
            RunFolder.create(tmp_path / "run", "run", fill=lambda folder, place: write_json(folder / "config.json", {}))
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


# -- a folder appears whole, or is none ------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [[], [".lock"], [".lock", ".config.json.77-0123abcd.tmp"], [".lock", "graph.npz"]])
def test_a_folder_that_was_killed_before_its_config_is_made_again(tmp_path: Path, left: list[str]) -> None:
    """Earlier versions made the folder first: `run` said resume, and `resume` said that there is no config."""
    path = tmp_path / "run"
    path.mkdir()
    for name in left:
        (path / name).touch()

    def fill(folder: Path, place: Path) -> None:
        assert place == path
        RunFolder(folder).config = {"method": "fedavg"}

    RunFolder.create(path, "run", fill=fill)
    assert sorted(each.name for each in path.iterdir()) == [".lock", "config.json"]
    with pytest.raises(FedquiltError, match="already holds a run"):
        RunFolder.create(path, "run", fill=fill)


def test_another_persons_graph_is_no_leftover(tmp_path: Path) -> None:
    (tmp_path / "graph.npz").write_text("mine")
    with pytest.raises(
        FedquiltError, match="is not empty, and holds no run that could be resumed; choose another --out"
    ):
        RunFolder.create(tmp_path, "run")
    assert [path.name for path in tmp_path.iterdir()] == ["graph.npz"]


def test_a_folder_behind_a_link_is_filled(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    made = RunFolder.create(tmp_path / "out", "run", fill=lambda folder, place: write_json(folder / "config.json", {}))
    assert made.path == tmp_path / "out"
    assert (tmp_path / "disk" / "config.json").exists()


def test_sweeping_leaves_everything_else(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "run")
    run.config = {"method": "fedavg"}
    run.seed(0).append(record(0))
    run.seed(0).checkpoint(0, {"w": torch.ones(1)}, {})
    before = sorted(path for path in run.path.rglob("*"))
    for folder in (run.path, run.path / "seed-0", run.path / "seed-0" / "checkpoints"):
        (folder / ".x.77-0123abcd.tmp").touch()
    run.sweep()
    assert sorted(path for path in run.path.rglob("*")) == before


# -- what is sealed ---------------------------------------------------------------------------------------------------


def finished(seed: SeedFolder) -> SeedFolder:
    for round in range(3):
        seed.append(record(round) | {"test": 51.35})
    seed.finish({"seed": 3, "best_round": 2, "val": 82.0, "test": 51.35, "seconds": 1.5})
    return seed


def test_one_digit_of_a_summary_is_named(seed: SeedFolder) -> None:
    path = finished(seed).path / "summary.json"
    assert seed.summary is not None
    text = path.read_text()
    path.write_text(text.replace("51.35", "91.35"))
    with pytest.raises(
        FedquiltError, match=r"its test is 91\.35, and by metrics\.jsonl it is 51\.35; put it back from a copy, or"
    ):
        _ = seed.summary
    path.write_text(text.replace("1.5", "0.5"))
    with pytest.raises(FedquiltError, match=r"summary\.json was changed since the seed ended"):
        _ = seed.summary
    (seed.path / "seal.json").unlink()  # an earlier version's: only what the metrics say is checked
    assert seed.summary is not None
    path.write_text(text.replace("51.35", "91.35"))
    with pytest.raises(FedquiltError, match=r"its test is 91\.35"):
        _ = seed.summary


def test_metrics_of_a_finished_seed_are_sealed(seed: SeedFolder) -> None:
    text = finished(seed).metrics_path.read_text()
    for damaged in (text.replace("51.35", "91.35", 1), text[:-10], text + text.splitlines()[-1] + "\n"):
        seed.metrics_path.write_text(damaged)
        with pytest.raises(FedquiltError, match=r"metrics\.jsonl was changed since the seed ended"):
            seed.records()
    seed.metrics_path.unlink()
    with pytest.raises(FedquiltError, match=r"metrics\.jsonl was changed since the seed ended"):
        seed.records()
    seed.metrics_path.write_text(text)
    assert len(seed.records()) == 3
    (seed.path / "seal.json").write_text("{}")
    with pytest.raises(FedquiltError, match=r"^The seal in .* is damaged: seal\.json has no facts; put it back"):
        seed.records()


def test_a_checkpoint_seals_the_records_before_it(seed: SeedFolder) -> None:
    for round in range(3):
        seed.append(record(round))
        seed.checkpoint(round, {"w": torch.ones(1) * round}, {})
    seed.append(record(3))  # after the checkpoint: dropped on resume, and not sealed
    text = seed.metrics_path.read_text()
    found = seed.latest_checkpoint()
    assert found is not None
    assert found.round == 2
    seed.metrics_path.write_text(text.replace("82.0", "92.0"))
    with pytest.raises(
        FedquiltError, match="its records up to round 2 are not those that the checkpoint of that round sealed"
    ):
        seed.latest_checkpoint()
    seed.metrics_path.write_text("".join(text.splitlines(keepends=True)[:2]))
    with pytest.raises(FedquiltError, match="its records up to round 2"):
        seed.latest_checkpoint()
    newest = seed.path / "checkpoints" / "round-000002.json"
    newest.write_text("{}")  # the one before it fits
    found = seed.latest_checkpoint()
    assert found is not None
    assert found.round == 1
    seed.metrics_path.unlink()
    with pytest.raises(FedquiltError, match="its records up to round 1"):
        seed.latest_checkpoint()


def test_a_checkpoint_of_an_earlier_version_seals_no_records(seed: SeedFolder) -> None:
    checkpoints.save(seed.path / "checkpoints", 4, {"w": torch.ones(1)}, {})
    found = seed.latest_checkpoint()
    assert found is not None
    assert found.round == 4
