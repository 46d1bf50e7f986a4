"""Limits of the machine, met for real: one sentence, status 3, nothing half-written, and the run goes on afterwards."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from fedquilt.cli.errors import LIMIT
from fedquilt.studies import workers
from support.cli import SMALL, environment, outcome
from support.limits import largest_file, open_files
from support.tiny_studies import Inline, write_study

RUN = f"run -m fedpub {SMALL} --rounds 4 --seeds 0,1 --checkpoint-every 0 -q --out"


@contextmanager
def full_disk(after: int) -> Iterator[list[int]]:
    """Let so many files and folders reach the disk, and none after them; yields a list that grows by each."""
    reached: list[int] = []
    sync = os.fsync

    def fsync(handle: int) -> None:
        if len(reached) >= after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reached.append(handle)
        sync(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield reached


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_run_on_a_full_disk_is_resumed_to_the_same_numbers(call: Callable, here: Path) -> None:
    with full_disk(10**6) as reached:
        assert call(f"{RUN} whole").status == 0
    whole, writes = outcome(here / "whole"), len(reached)
    for after in (4, writes // 3, writes // 2, writes - 12, writes - 1):  # in each seed, and among what is written last
        folder = f"full-{after}"
        with full_disk(after):
            called = call(f"{RUN} {folder}")
        assert called.status == LIMIT, (after, called)
        assert "No space left on device" in called.sentence
        assert not [name for name in files(here) if name.endswith(".tmp")]
        if (here / folder).exists():
            assert called.sentence.endswith(f"then resume with 'fedquilt resume {folder}'.")
            assert call(f"resume {folder} -q").status == 0
        else:  # the folder appears with its first files in it, or not at all
            assert called.sentence.endswith("then run the same command again.")
            assert call(f"{RUN} {folder}").status == 0
        assert outcome(here / folder) == whole


def test_a_file_that_may_not_grow_ends_a_run_with_a_sentence(call: Callable, here: Path) -> None:
    line = f"run -m fedavg {SMALL} --rounds 40 -q --out"  # no checkpoint: only metrics.jsonl grows
    with largest_file(8_000):
        called = call(f"{line} full")
    assert called.status == LIMIT, called
    assert "File too large" in called.sentence
    assert (here / "full/seed-0/metrics.jsonl").read_bytes().endswith(b"}\n")
    assert call("resume full -q").status == 0
    assert call(f"{line} whole").status == 0
    assert outcome(here / "full") == outcome(here / "whole")


@pytest.mark.parametrize(
    "line",
    [
        f"compare --methods local,fedavg {SMALL} -q --out made",
        f"tune -m fedavg {SMALL} --trials 2 -q --into made",
        "site example made --clients 2",
        "partition patchwork --clients 2 --out made.npz",
        "report whole --out made.html",
        "show whole --format svg",
        "predict whole --out made.csv",
        "predict whole --out made.json",
        "predict whole --out made.parquet",
        "rehearse --sites sites/*/site.yaml --rounds 1 -q --out made",
    ],
)
def test_every_command_says_that_the_disk_is_full(call: Callable, here: Path, line: str) -> None:
    if "whole" in line:
        assert call(f"run -m local {SMALL} -q --out whole").status == 0
    if "sites" in line:
        assert call("site example sites --clients 2").status == 0
    with largest_file(100):
        called = call(line)
    assert called.status == LIMIT, called
    assert "File too large" in called.sentence
    left = [name for name in files(here) if name.endswith(".tmp") or name.startswith("made.")]
    assert not left


def test_a_study_stops_on_a_full_disk_and_goes_on(call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WorkerProcess", Inline)
    study = write_study(here, options={"dataset": "patchwork", "rounds": 1, "settings": {"hidden": 8}}, seeds=1)
    line = f"study run {study} --only method=Local -q --device cpu"
    with full_disk(8):
        called = call(line)
    assert called.status == LIMIT, called
    assert called.sentence.endswith("then run the same command again.")
    assert call(line).status == 0


def test_too_many_open_files(call: Callable) -> None:
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    with open_files(lowest):
        called = call("graph check graph.npz")
        assert called.status in (2, LIMIT)
        called = call(f"run -m local {SMALL} -q --out made")
    assert called.status == LIMIT, called
    assert "Too many open files" in called.sentence


@pytest.mark.e2e
def test_output_that_cannot_be_written_and_no_memory(here: Path) -> None:
    command = [sys.executable, "-m", "fedquilt.cli"]
    with open("/dev/full", "w") as full:  # as a log on a full disk
        line = f"run -m local {SMALL} --out made-without-log"
        assert subprocess.run([*command, *line.split()], env=environment(), stderr=full).returncode == 0
        done = subprocess.run([*command, "run", "-m", "nothing"], env=environment(), stderr=full)
        assert done.returncode == 2
        done = subprocess.run([*command, "methods"], env=environment(), stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == LIMIT
    assert done.stderr.count("\n") == 1, done.stderr
    assert "No space left on device" in done.stderr
    limited = (
        "import resource, sys; from pathlib import Path; import fedquilt.runs.execute; from fedquilt.cli import main;"
        "size = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize() + 100 * 2**20;"
        "resource.setrlimit(resource.RLIMIT_AS, (size, size));"
        "sys.exit(main(sys.argv[1:]))"
    )
    line = "run -m fedavg --clients 3 --rounds 2 --device cpu -q --out made --set hidden=60000"
    done = subprocess.run(
        [sys.executable, "-c", limited, *line.split()], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == LIMIT, done
    assert "emory ran out" in done.stderr
    assert done.stderr.strip().endswith("then resume with 'fedquilt resume made'."), done.stderr
    assert "Traceback" not in done.stderr


def test_an_accelerator_without_memory_says_how_much(call: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 9 GiB of which 1.00 GiB is free."
        )

    monkeypatch.setattr("fedquilt.methods.fedavg.FedAvg.local_update", no_memory)
    called = call(f"run -m fedavg {SMALL} -q --out made")
    assert called.status == LIMIT
    assert "2.0 GiB were asked for, 1.0 GiB were free" in called.err
    assert called.err.strip().endswith("resume with 'fedquilt resume made'.")


def test_a_folder_without_permission(call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        (here / "closed").mkdir(mode=0o500)
    else:  # root may write anywhere
        mkdir = Path.mkdir

        def refused(self: Path, *args: object, **kwargs: object) -> None:
            if "closed" in str(self):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
            mkdir(self, *args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(Path, "mkdir", refused)
    for line in (f"run -m local {SMALL} -q --out closed/made", "site example closed/made"):
        called = call(line)
        assert called.status == 2, called
        assert "Permission denied" in called.sentence
    assert not (here / "closed" / "made").exists()
