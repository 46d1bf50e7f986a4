"""How many CPUs a process may use, and that its threads wait for each other without spinning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fedquilt
from fedquilt.devices import threads
from fedquilt.devices.threads import asked_threads, available_cpus, cpu_quota, threads_for, use_available_cpus


def group(root: Path, path: str, **files: str) -> None:
    (root / path).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / path / name.replace("__", ".")).write_text(text)


def test_the_smallest_quota_of_version_2_counts(tmp_path: Path) -> None:
    member = tmp_path / "cgroup"
    member.write_text("0::/a/b\n")
    group(tmp_path, "a/b", cpu__max="max 100000\n")
    assert cpu_quota(tmp_path, member) is None
    group(tmp_path, "a", cpu__max="150000 100000\n")
    assert cpu_quota(tmp_path, member) == 1.5
    group(tmp_path, "a/b", cpu__max="400000 100000\n")
    assert cpu_quota(tmp_path, member) == 1.5
    group(tmp_path, "a", cpu__max="garbage")
    assert cpu_quota(tmp_path, member) == 4.0


def test_the_quota_of_version_1_is_known_too(tmp_path: Path) -> None:
    member = tmp_path / "cgroup"
    member.write_text("4:memory:/m\n2:cpu,cpuacct:/box\n0::/\n")
    group(tmp_path, "cpu/box", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert cpu_quota(tmp_path, member) is None
    group(tmp_path, "cpu", cpu__cfs_quota_us="300000", cpu__cfs_period_us="100000")
    assert cpu_quota(tmp_path, member) == 3.0
    assert cpu_quota(tmp_path, tmp_path / "none") is None


def test_affinity_and_quota_bound_the_cpus_and_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for quota, expected in ((None, 8), (2.5, 2), (0.3, 1), (99.0, 8)):
        monkeypatch.setattr(threads, "cpu_quota", lambda quota=quota: quota)
        assert available_cpus() == expected
    assert [threads_for(processes) for processes in (1, 3, 20)] == [8, 2, 1]
    for given, count in (("3", 3), ("4,2", 4), ("0", None), ("many", None)):
        monkeypatch.setenv("OMP_NUM_THREADS", given)
        assert asked_threads() == count
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_for(20) == 3


def test_a_run_has_the_threads_it_asks_for_and_never_more_than_its_cpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "available_cpus", lambda: 2)
    before, seen = torch.get_num_threads(), []

    class Looks(fedquilt.Callback):
        def round(self, record: dict[str, Any]) -> None:
            seen.append(torch.get_num_threads())

    torch.set_num_threads(4)
    use_available_cpus.cache_clear()
    try:
        for asked in (None, 3):
            fedquilt.run(
                "local",
                "patchwork",
                clients=2,
                rounds=1,
                device="cpu",
                threads=asked,
                watch=Looks(),
            )
        assert seen == [1, 3]  # patchwork is small work
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
        use_available_cpus.cache_clear()


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active"), ({"GOMP_SPINCOUNT": "9"}, None)]
)
def test_threads_wait_passively_unless_the_user_says_how(given: dict[str, str], expected: str | None) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    code = "import os, sys, fedquilt; assert 'torch' not in sys.modules; print(os.environ.get('OMP_WAIT_POLICY'))"
    done = subprocess.run([sys.executable, "-c", code], env=kept | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(expected)
