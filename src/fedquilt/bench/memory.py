"""Peak memory of a method on a case: resident memory of a separate process on the CPU, allocated memory on CUDA."""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from pathlib import Path

import torch

from fedquilt.bench.cases import LoadedCase, load_cases, parse_case
from fedquilt.bench.result import Memory
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.errors import FedquiltError

ROUNDS = 5
_STATUS = Path("/proc/self/status")


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB. Does not use ru_maxrss, which a child inherits from its parent."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def peak_memory(loaded: LoadedCase, method: str, device: torch.device, data: Path | None = None) -> Memory:
    """Measure the peak memory of the first `ROUNDS` rounds of a training."""
    on_cuda = device.type == "cuda"
    before, peak = _on_cuda(loaded, method, device) if on_cuda else _in_process(loaded, method, data)
    return Memory(str(loaded.case), method, before, peak)


def _on_cuda(loaded: LoadedCase, method: str, device: torch.device) -> tuple[float, float]:
    """Return the MB allocated before the training, and the peak during it."""
    gc.collect()  # frees the tensors of earlier measurements
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    loaded.resolve(method).training(0).advance(ROUNDS)
    return before / 2**20, torch.cuda.max_memory_allocated(device) / 2**20


def _in_process(loaded: LoadedCase, method: str, data: Path | None) -> tuple[float, float]:
    """Measure the same in a separate process with as many threads as this one."""
    if not _STATUS.exists():
        raise FedquiltError(f"The peak memory of a process is read from {_STATUS}, which this system does not have.")
    command = [sys.executable, "-m", "fedquilt.bench.memory", str(loaded.case), method, str(torch.get_num_threads())]
    # The same interpreter with arguments of ours, and no shell.
    done = subprocess.run([*command, *([str(data)] if data else [])], capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise FedquiltError(f"The process that trained {method} on {loaded.case} ended with status {done.returncode}.")
    before, peak = json.loads(done.stdout)
    return before, peak


def main() -> None:
    """Train a few rounds in this process; print the memory before and the peak as a JSON list."""
    parser = argparse.ArgumentParser(prog="python -m fedquilt.bench.memory", description=main.__doc__)
    parser.add_argument("case", type=parse_case)
    parser.add_argument("method")
    parser.add_argument("threads", type=int)
    parser.add_argument("data", type=Path, nargs="?")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    keep_freed_memory()
    (loaded,), _ = load_cases([chosen.case], [chosen.method], "cpu", chosen.data)
    before = peak_mb()
    loaded.resolve(chosen.method).training(0).advance(ROUNDS)
    print(json.dumps([before, peak_mb()]))


if __name__ == "__main__":
    main()
