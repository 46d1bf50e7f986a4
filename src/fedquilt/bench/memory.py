"""Peak memory of a method on a cell: of a process of its own on the CPU, of what is allocated on an accelerator."""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from pathlib import Path

import torch

from fedquilt.bench.cases import Ready, load_cases, parse_case
from fedquilt.bench.result import Memory
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.errors import FedquiltError

ROUNDS = 5
_STATUS = Path("/proc/self/status")


def peak_mb() -> float:
    """Peak resident memory of this process so far. Not ru_maxrss: a child inherits its parent's."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(ready: Ready, method: str, device: torch.device, data: Path | None = None) -> Memory:
    """Peak memory of the first rounds of a training."""
    loaded, peak = _on_cuda(ready, method, device) if device.type == "cuda" else _apart(ready, method, data)
    return Memory(str(ready.cell), method, loaded, peak)


def _on_cuda(ready: Ready, method: str, device: torch.device) -> tuple[float, float]:
    gc.collect()  # what was measured before holds its tensors until then
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    loaded = torch.cuda.memory_allocated(device)
    ready.experiment(method).training(0).advance(ROUNDS)
    return loaded / 2**20, torch.cuda.max_memory_allocated(device) / 2**20


def _apart(ready: Ready, method: str, data: Path | None) -> tuple[float, float]:
    """In a process of its own, with as many threads as this one."""
    if not _STATUS.exists():
        raise FedquiltError(f"The peak memory of a process is read from {_STATUS}, which this system does not have.")
    command = [sys.executable, "-m", "fedquilt.bench.memory", str(ready.cell), method, str(torch.get_num_threads())]
    done = subprocess.run([*command, *([str(data)] if data else [])], capture_output=True, text=True)
    if done.returncode:
        raise FedquiltError(f"The process that trained {method} on {ready.cell} ended with status {done.returncode}.")
    loaded, peak = json.loads(done.stdout)
    return loaded, peak


def main() -> None:
    """Train a few rounds here; prints the memory before and the peak, as a list of two numbers."""
    parser = argparse.ArgumentParser(prog="python -m fedquilt.bench.memory", description=main.__doc__)
    parser.add_argument("cell", type=parse_case)
    parser.add_argument("method")
    parser.add_argument("threads", type=int)
    parser.add_argument("data", type=Path, nargs="?")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    keep_freed_memory()
    (ready,), _ = load_cases([chosen.cell], [chosen.method], "cpu", chosen.data)
    loaded = peak_mb()
    ready.experiment(chosen.method).training(0).advance(ROUNDS)
    print(json.dumps([loaded, peak_mb()]))


if __name__ == "__main__":
    main()
