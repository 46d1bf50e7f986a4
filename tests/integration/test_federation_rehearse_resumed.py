"""A rehearsal that was stopped, gone on with by the same command: real processes through the command line. `make test-e2e`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fedquilt
from fedquilt.federation.site.examples import write_sites
from fedquilt.runs.folder import RunFolder
from support.federations import ragged_clients

pytestmark = pytest.mark.e2e
SIZES, ROUNDS = (25, 14, 31), 3


@contextmanager
def rehearsing(folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """The command, as it would be typed in `folder`; a child of a background shell would not heed Ctrl-C otherwise."""
    order = ["--method", "fedavg", "--set", "hidden=8", "--rounds", str(ROUNDS), "--seed", "3", "--out", "out"]
    command = [sys.executable, "-P", "-m", "fedquilt.cli", "rehearse", "--sites", "sites/*/site.yaml", *order, *more]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        assert process.stderr is not None
        process.stderr.close()


def lines_until(process: subprocess.Popen[str], begins: str, seconds: float = 240) -> list[str]:
    """What it says, until a line begins so."""
    assert process.stderr is not None
    until, said = time.monotonic() + seconds, list[str]()
    for line in process.stderr:
        said.append(line.rstrip("\n"))
        if line.startswith(begins):
            return said
        assert time.monotonic() < until, said
    raise AssertionError(f"it never said '{begins}': {said}")


def nodes(out: Path) -> dict[str, str]:
    return {one["name"]: one["node"] for one in json.loads((out / "run" / "sites.json").read_bytes())["nodes"]}


def mine(out: Path) -> list[int]:
    """Processes that were given something of this rehearsal."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if str(out).encode() in (each / "cmdline").read_bytes():
                found.append(int(each.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_a_stopped_rehearsal_is_gone_on_with(tmp_path: Path, number: signal.Signals) -> None:
    clients, out = ragged_clients(SIZES), tmp_path / "out"
    write_sites(tmp_path / "sites", clients)
    with rehearsing(tmp_path) as first:
        lines_until(first, f"Round 1 of {ROUNDS}")
        first.send_signal(number)
        if number == signal.SIGINT:
            assert lines_until(first, "fedquilt:")[-1] == "fedquilt: stopped; the same command goes on."
            assert first.wait(60) == 130
        first.wait(60)
    until = time.monotonic() + 20
    while mine(out):
        assert time.monotonic() < until
        time.sleep(0.2)
    assert not (out / "run" / "result.json").exists()
    assert (out / "private").stat().st_mode & 0o777 == 0o700
    before = nodes(out)
    with rehearsing(tmp_path, "--method", "fedpub") as other:
        assert "another method" in lines_until(other, "fedquilt:")[-1]
        assert other.wait(60) == 2
    with rehearsing(tmp_path) as again:
        said = lines_until(again, "done:")
        assert again.wait(60) == 0
    assert any(line.startswith("Going on with the run") for line in said)
    # One that was killed could not tell that it left, and Flower keeps its place for a while.
    assert any("waiting" in line for line in said) == (number == signal.SIGKILL)
    assert not any("sites are there" in line for line in said)  # what the first attempt said
    assert nodes(out) == before
    assert not (out / "private").exists()
    assert not (out / "run" / "incidents.jsonl").exists()
    # Real sites end with the numbers of a run on the same files.
    sites, options = str(tmp_path / "sites/*/site.yaml"), {"rounds": ROUNDS, "settings": {"hidden": 8}, "device": "cpu"}
    here = fedquilt.run("fedavg", clients_from=[sites], seeds=[3], **options)
    for mine_, other_ in zip(RunFolder.open(out / "run").seed(3).records(), here.records[3], strict=True):
        for key in ("val", "test", "train_loss", "val_loss"):
            assert mine_[key] == pytest.approx(other_[key], rel=1e-5, abs=1e-5), (mine_["round"], key)
    assert not mine(out)
