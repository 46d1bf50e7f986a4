"""`python -m benchmarks.hot_path`: the cost of a round without a clock.

Counted are operators called, bytes written, and floating-point operations of matrix products. The counts are the same in
every run and with any number of threads, so a test can check them. `--update FILE` records them.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from fedquilt.bench.cases import SYNTHETIC, Case, load_cases
from fedquilt.bench.measure import chosen_methods
from fedquilt.common.files import write_json
from fedquilt.training.loop import Training

# Sparse features, more than hidden units; dense features, fewer than hidden units. They run different code.
CASES = (SYNTHETIC, Case("communities-3", "natural", 20))
# Five rounds, since some methods do more in every fifth.
WARM_UP, ROUNDS = 2, 5
TOLERANCE = 0.05
HOW_TO_UPDATE = "Where that is meant, record it: python -m benchmarks.hot_path --update {}"


@dataclass(frozen=True)
class Counts:
    """The cost of `ROUNDS` rounds."""

    operators: int
    bytes: int
    flops: int


class Counter(TorchDispatchMode):
    """Counts the operators that PyTorch calls inside a `with` block, and their bytes and FLOPs.

    Bytes are those of tensors that an operator makes or changes; a view of another tensor writes nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators = self.bytes = self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self.operators += 1
        read = {_storage(tensor) for tensor in _tensors((args, kwargs))}
        self.bytes += sum(_size(tensor) for tensor in _tensors(out) if _storage(tensor) not in read)
        self.bytes += sum(_size(tensor) for tensor in _tensors(_changed(func, args, kwargs)))
        flops = flop_registry.get(func.overloadpacket)
        if flops is not None:
            self.flops += flops(*args, **kwargs, out_val=out)
        return out

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        return Counts(self.operators, self.bytes, self.flops)


def _changed(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments that an operator writes to."""
    written = [
        (place, a.name) for place, a in enumerate(func._schema.arguments) if a.alias_info and a.alias_info.is_write
    ]
    return [args[place] if place < len(args) else kwargs.get(name) for place, name in written]


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor))


def _storage(tensor: Tensor) -> int:
    """An identifier of the memory that a tensor uses; each sparse tensor has its own."""
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else id(tensor)


def _size(tensor: Tensor) -> int:
    numbers = tensor.numel() if tensor.layout == torch.strided else tensor._nnz()
    return numbers * tensor.element_size()


def count_rounds(training: Training) -> Counts:
    """The cost of the rounds after the warm-up. Each counts as the best so far, so that keeping its models is counted."""
    training.advance(WARM_UP)
    with Counter() as counter:
        for _ in range(ROUNDS):
            training.progress.best.val = -math.inf
            training.advance(1)
    return counter.counts


def count_method(method: str) -> dict[str, Counts]:
    """The counts of a method on each of `CASES`."""
    cases, _ = load_cases(CASES, [method], "cpu")
    return {str(one.case): count_rounds(one.resolve(method).training(0)) for one in cases}


def increases(method: str, now: Mapping[str, Counts], recorded: Mapping[str, Counts]) -> list[str]:
    """A sentence for each count that is more than `TOLERANCE` above the recorded one, or that was not recorded."""
    found = []
    for case, counts in now.items():
        what = f"{ROUNDS} rounds of {method} on {case}"
        if case not in recorded:
            found.append(f"Nothing is recorded for {what}.")
            continue
        for quantity, new in asdict(counts).items():
            old = getattr(recorded[case], quantity)
            if new > old * (1 + TOLERANCE):
                found.append(f"{what} take {new:,} {quantity}, over {TOLERANCE:.0%} more than the {old:,} recorded.")
    return found


def write_counts(path: Path, methods: Mapping[str, Mapping[str, Counts]]) -> None:
    """Record counts, with the version of PyTorch that they were counted with."""
    counts = {method: {case: asdict(c) for case, c in cases.items()} for method, cases in methods.items()}
    write_json(path, {"torch": _version(torch.__version__), "rounds": ROUNDS, "methods": counts})


def read_counts(path: Path) -> dict[str, dict[str, Counts]]:
    """Read what `write_counts` wrote, by method and case."""
    methods = json.loads(path.read_text(encoding="utf-8"))["methods"]
    return {method: {case: Counts(**c) for case, c in cases.items()} for method, cases in methods.items()}


def same_torch(path: Path) -> bool:
    """Whether counts were recorded with this version of PyTorch; another one may split operators differently."""
    return json.loads(path.read_text(encoding="utf-8"))["torch"] == _version(torch.__version__)


def _version(full: str) -> str:
    """2.13.0+cpu as 2.13.0: all builds of a version have the same counts."""
    return full.partition("+")[0]


def main() -> None:
    """Count the cost of rounds of every method, print it, and record it with --update."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hot_path", description=main.__doc__)
    parser.add_argument("--update", type=Path, metavar="FILE", help="the JSON file to record the counts in")
    chosen = parser.parse_args()
    methods = {method: count_method(method) for method in sorted(chosen_methods(None))}
    for method, cases in methods.items():
        for case, c in cases.items():
            print(f"{method:10} {case:24} {c.operators:8,} operators {c.bytes:15,} bytes {c.flops:15,} flops")
    if chosen.update:
        write_counts(chosen.update, methods)


if __name__ == "__main__":
    main()
