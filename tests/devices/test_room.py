"""How much memory there is: the least of what the machine, the container and the process allow."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from fedquilt.devices import room
from fedquilt.devices.room import Room, room_of

CPU, GB = torch.device("cpu"), 2**30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 16 GB, of which 12 are free, and 4 of swap; no container, no limits."""
    (tmp_path / "meminfo").write_text(
        f"MemTotal: {16 * 2**20} kB\nMemAvailable: {12 * 2**20} kB\nSwapTotal: {4 * 2**20} kB\nHugePages: none\n"
    )
    (tmp_path / "status").write_text(f"Name: python\nVmSize: {2**20} kB\nVmData: {2**19} kB\n")
    monkeypatch.setattr(room, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(room, "_STATUS", tmp_path / "status")
    monkeypatch.setattr(room, "_GROUPS", ((tmp_path / "max", tmp_path / "current"),))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return tmp_path


def test_the_machine(machine: Path) -> None:
    assert room_of(CPU) == Room(12 * GB, 20 * GB)


def test_a_container_has_less(machine: Path) -> None:
    (machine / "max").write_text(f"{8 * GB}\n")
    (machine / "current").write_text(f"{3 * GB}\n")
    assert room_of(CPU) == Room(5 * GB, 8 * GB)
    (machine / "max").write_text("max\n")
    assert room_of(CPU) == Room(12 * GB, 20 * GB)


def test_a_limited_process_has_less(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_AS: 4 * GB, resource.RLIMIT_DATA: 3 * GB}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], resource.RLIM_INFINITY))
    assert room_of(CPU) == Room(GB * 5 // 2, 3 * GB)


def test_what_is_unknown_is_none(machine: Path) -> None:
    (machine / "meminfo").unlink()
    assert room_of(CPU) is None
    assert room_of(torch.device("mps")) is None


def test_an_accelerator_counts_what_pytorch_holds_and_does_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * GB, 8 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 4 * GB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1 * GB)
    assert room_of(torch.device("cuda")) == Room(6 * GB, 8 * GB)


def test_this_machine() -> None:
    here = room_of(CPU)
    assert here is not None
    assert 0 < here.free <= here.most
