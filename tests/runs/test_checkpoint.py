from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedquilt.common.sealed import write_pair
from fedquilt.runs import checkpoint

shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def save(folder: Path, round: int, keep: int = 2) -> None:
    checkpoint.save(folder, round, {"w": torch.full((3,), float(round))}, {"best": round / 10}, keep)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_nothing_there(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "no such folder") is None


def test_every_kind_of_tensor_comes_back(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "base": base,
        "transposed": base.T,
        "row": base[1],
        "again": base,
        "strided": base[:, ::2],
        "expanded": torch.ones(1).expand(4),
        "bool": torch.tensor([True, False]),
        "int": torch.tensor(7),
        "byte": torch.tensor([255], dtype=torch.uint8),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "double": torch.tensor([0.1], dtype=torch.float64),
        "empty": torch.zeros(0, 5),
        "also empty": torch.zeros(0),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "nan": torch.tensor([float("nan"), float("inf")]),
    }
    facts = {"round": "a fact may have this name", "list": [1, 2.5, None], "deep": {"é": True}}
    checkpoint.save(tmp_path, 12, tensors, facts)
    assert names(tmp_path) == ["round-000012.json", "round-000012.safetensors"]
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert (found.round, found.facts, found.skipped) == (12, facts, [])
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        read = found.tensors[name]
        assert read.dtype == tensor.dtype
        torch.testing.assert_close(read, tensor.detach(), rtol=0, atol=0, equal_nan=True)
    # What was loaded is the caller's own, to train on.
    found.tensors["base"] += 1
    assert torch.equal(found.tensors["again"], base)


def test_no_tensors_at_all(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 0, {}, {})
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert (found.round, found.tensors, found.facts) == (0, {}, {})


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".round-000003.json.1-ab.tmp").write_bytes(b"left by a kill")
    (tmp_path / "round-000001.safetensors").write_bytes(b"half of a pair")
    (tmp_path / "notes.txt").write_text("the user's own")
    for round in range(2, 8):
        save(tmp_path, round, keep=3)
    kept = [f"round-00000{round}.{kind}" for round in (5, 6, 7) for kind in ("json", "safetensors")]
    assert names(tmp_path) == ["notes.txt", *kept]


def test_going_back_forgets_the_later_rounds(tmp_path: Path) -> None:
    save(tmp_path, 8)
    save(tmp_path, 10)
    save(tmp_path, 9)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert (found.round, found.skipped) == (9, [])
    assert {name[:12] for name in names(tmp_path)} == {"round-000008", "round-000009"}


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least"):
        save(tmp_path, -1)
    with pytest.raises(ValueError, match="at least"):
        save(tmp_path, 1, keep=0)


def expect_fallback(folder: Path) -> None:
    found = checkpoint.latest(folder)
    assert found is not None
    assert (found.round, found.facts) == (1, {"best": 0.1})
    assert torch.equal(found.tensors["w"], torch.ones(3))
    assert len(found.skipped) == 1
    assert "round 2" in found.skipped[0]


@pytest.mark.parametrize("kind", ["json", "safetensors"])
@shared_folder
@given(data=st.data())
def test_truncated_anywhere(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    path = tmp_path / f"round-000002.{kind}"
    whole = path.read_bytes()
    # The line end after the closing brace is the one byte that JSON can do without.
    length = data.draw(st.integers(0, len(whole) - (2 if kind == "json" else 1)))
    path.write_bytes(whole[:length])
    expect_fallback(tmp_path)


@shared_folder
@given(data=st.data())
def test_a_flipped_bit_in_the_tensors(tmp_path: Path, data: st.DataObject) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    path = tmp_path / "round-000002.safetensors"
    altered = bytearray(path.read_bytes())
    altered[data.draw(st.integers(0, len(altered) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(altered)
    expect_fallback(tmp_path)


@shared_folder
@given(data=st.data())
def test_a_flipped_bit_in_the_facts_never_gives_other_facts(tmp_path: Path, data: st.DataObject) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    path = tmp_path / "round-000002.json"
    altered = bytearray(path.read_bytes())
    altered[data.draw(st.integers(0, len(altered) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(altered)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    # A bit in the white space may change nothing.
    assert (found.round, found.facts) in [(1, {"best": 0.1}), (2, {"best": 0.2})]


@pytest.mark.parametrize("missing", ["json", "safetensors"])
def test_half_of_a_pair(tmp_path: Path, missing: str) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    (tmp_path / f"round-000002.{missing}").unlink()
    expect_fallback(tmp_path)


@pytest.mark.parametrize(
    "text", ["[]", "null", "{}", '{"facts": 3, "tensors_sha256": ""}', "\x00" * 40, '{"facts": {"a": NaN}']
)
def test_json_that_is_something_else(tmp_path: Path, text: str) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    (tmp_path / "round-000002.json").write_text(text)
    expect_fallback(tmp_path)


def test_altered_facts(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    path = tmp_path / "round-000002.json"
    seal = json.loads(path.read_text())
    seal["facts"]["facts"]["best"] = 99.0
    path.write_text(json.dumps(seal))
    expect_fallback(tmp_path)


def test_a_renamed_pair(tmp_path: Path) -> None:
    save(tmp_path, 1)
    for kind in ("json", "safetensors"):
        whole = (tmp_path / f"round-000001.{kind}").read_bytes()
        (tmp_path / f"round-000002.{kind}").write_bytes(whole)
    expect_fallback(tmp_path)


def test_new_tensors_under_an_old_seal(tmp_path: Path) -> None:
    """A kill between the two files when a round is saved a second time."""
    save(tmp_path, 1)
    save(tmp_path, 2)
    write_pair(tmp_path / "other", {"w": torch.zeros(3)}, {})
    (tmp_path / "other.safetensors").rename(tmp_path / "round-000002.safetensors")
    expect_fallback(tmp_path)


def test_all_damaged(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "round-000001.safetensors").write_bytes(b"")
    assert checkpoint.latest(tmp_path) is None


def test_a_failed_save_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: real(a, b) if str(b).endswith("rs") else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save(tmp_path, 2)
    monkeypatch.undo()
    expect_fallback(tmp_path)
    assert not list(tmp_path.glob(".*"))


SAVER = """
import sys, torch
from pathlib import Path
from fedquilt.runs.folder import SeedFolder
folder = SeedFolder(Path(sys.argv[1]))
weights = torch.zeros(200_000)
for round in range(1, 1_000_000):
    weights += 1
    folder.append({"round": round, "val": 1.0})
    folder.checkpoint(round, {"w": weights, "view": weights[:10]}, {"round": round})
    print(round, flush=True)
"""


def test_kill_9_while_saving(tmp_path: Path) -> None:
    from fedquilt.runs.folder import SeedFolder

    delays = (0.02, 0.11)
    processes = [
        subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path / str(i))], stdout=subprocess.PIPE, text=True)
        for i in range(len(delays))
    ]
    for i, (process, delay) in enumerate(zip(processes, delays, strict=True)):
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        process.wait()
        told = int((rest or [first])[-1])
        folder = SeedFolder(tmp_path / str(i))
        found = folder.latest_checkpoint()
        assert found is not None
        # What was reported as saved is there, and at most the one after it.
        assert told <= found.round <= told + 1
        assert found.facts == {"round": found.round}
        assert torch.equal(found.tensors["w"], torch.full((200_000,), float(found.round)))
        folder.truncate_after(found.round)
        assert [record["round"] for record in folder.records()] == list(range(1, found.round + 1))
        again = folder.latest_checkpoint()
        assert again is not None
        assert again.round == found.round


def test_the_newest_from_before_a_round(tmp_path: Path) -> None:
    for round in (3, 5):
        save(tmp_path, round)
    found = {before: checkpoint.latest(tmp_path, before) for before in (None, 6, 5, 4, 3)}
    assert {before: one and one.round for before, one in found.items()} == {None: 5, 6: 5, 5: 3, 4: 3, 3: None}
