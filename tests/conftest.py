"""What all tests share: where the real graphs are, and a quiet, repeatable set-up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

pytest_plugins = ["support.command_line", "support.plugins"]

# On CI the examples are the same in every run: what fails there fails here too (CI=true make test).
settings.register_profile(
    "fedquilt",
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("fedquilt")
torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "2"))))

# Only a power failure could tell whether a file has reached the disk, and on a busy disk waiting for it takes a fifth of the
# tests' time. Which files are synced, and in what order, is tested by functions in its place.
os.fsync = lambda handle: os.fstat(handle) and None
os.sync = lambda: None


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and no real graphs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path / "graphs"))
    return tmp_path


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with real graphs; tests that need it skip where there is none."""
    folder = os.environ.get("FEDQUILT_DATA")
    if not folder or not (Path(folder) / "cora.npz").exists():
        pytest.skip("set FEDQUILT_DATA to a folder with real graphs (cora.npz, ...) to run this test")
    return Path(folder)
