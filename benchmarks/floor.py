"""`python -m benchmarks.floor`: how far a round is from what this machine could do at best.

The floor is what cannot be avoided, over rates measured in the same process: floating-point operations of dense products over
the fastest dense product, and the bytes that pass over the clients' weights, masks, gradients and Adam's moments over the
fastest copy. Sparse products, activations, draws and calls are left out of it, so that it is a floor and not a model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.hot_path import Counter
from fedquilt.bench.cases import Case, load_cases, parse_case
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.errors import FedquiltError
from fedquilt.training.loop import Training

# Bytes that a round of one local epoch must move for each weight of each client.
RECEIVED, GRADIENT, ADAM, AVERAGED = 8, 4, 28, 4  # read and write; write; read 4, write 3 numbers; read
# With a mask: the weight that acts (read 2, write 1) for training and again for the upload; the gradients of weight and mask
# from that of the product (read 4, write 2); Adam twice; the average is each client's own (write).
MASKED = RECEIVED + 12 + GRADIENT + 24 + 2 * ADAM + 12 + AVERAGED + 4
BYTES = {"fedavg": RECEIVED + GRADIENT + ADAM + AVERAGED, "fedpub": MASKED}
SHOWN = 12


def best(step: Callable[[], object], times: int = 15) -> float:
    """Seconds, the best of several."""
    step()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        step()
        found.append(time.perf_counter() - began)
    return min(found)


def dense_rate() -> float:
    """Floating-point operations a second of the fastest dense product among shapes that occur here."""
    rates = []
    for rows, inner, columns in ((500, 1433, 128), (2000, 2000, 2000), (2500, 128, 128)):
        a, b = torch.randn(rows, inner), torch.randn(inner, columns)
        rates.append(2 * rows * inner * columns / best(partial(torch.mm, a, b)))
    return max(rates)


def copy_rate() -> float:
    """Bytes a second, read and written, of a copy that fits into no cache."""
    source = torch.randn(40_000_000)
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / best(lambda: target.copy_(source))


def profiled(training: Training, rounds: int) -> list[tuple[str, float, float]]:
    """Operators by their own time: (name, ms a round, calls a round), the longest first."""
    with profile(activities=[ProfilerActivity.CPU]) as done:
        training.advance(rounds)
    events = [(e.key, e.self_cpu_time_total / rounds / 1e3, e.count / rounds) for e in done.key_averages()]
    return sorted(events, key=lambda event: -event[1])


def show(case: Case, method: str, rounds: int, flops_a_second: float, bytes_a_second: float) -> None:
    """Print the floor, the time of a round, and where it goes."""
    loaded, left_out = load_cases([case], [method], "cpu")
    if not loaded:
        raise SystemExit(f"benchmarks.floor: {left_out[0]}")
    training = loaded[0].resolve(method).training(0)
    training.advance(4)
    with Counter() as counter:
        training.advance(1)
    weights = sum(w.numel() for name, w in training.engine.state().items() if name.startswith("model."))
    arithmetic = counter.flops / flops_a_second * 1e3
    traffic = weights * BYTES[method] / bytes_a_second * 1e3
    took = best(lambda: training.advance(5), rounds // 5) / 5 * 1e3
    print(
        f"\n{case} {method}: floor {arithmetic + traffic:.1f} ms a round = {counter.flops / 1e9:.2f} GFLOP in "
        f"{arithmetic:.1f} ms + {weights * BYTES[method] / 1e6:.0f} MB in {traffic:.1f} ms; took {took:.1f} ms (best of "
        f"turns of 5 rounds), {took / (arithmetic + traffic):.2f} x the floor, {counter.operators} operators"
    )
    for name, ms, calls in profiled(training, 10)[:SHOWN]:
        print(f"  {ms:7.2f} ms {calls:6.1f} calls  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__)
    parser.add_argument("--cell", default="cora/disjoint/10")
    parser.add_argument("--method", action="append", choices=sorted(BYTES), help="default: all")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    keep_freed_memory()
    flops_a_second, bytes_a_second = dense_rate(), copy_rate()
    print(f"{flops_a_second / 1e9:.0f} GFLOP/s in dense products, {bytes_a_second / 1e9:.1f} GB/s copied")
    try:
        for method in chosen.method or sorted(BYTES):
            show(parse_case(chosen.cell), method, chosen.rounds, flops_a_second, bytes_a_second)
    except FedquiltError as error:
        raise SystemExit(f"benchmarks.floor: {error}") from None


if __name__ == "__main__":
    main()
