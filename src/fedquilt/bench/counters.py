"""What a round costs without a clock: operators called, bytes written, floating-point operations of matrix products.

The counts are the same on every run and with any number of threads, so they can be checked where time cannot.
`python -m fedquilt.bench.counters --update FILE` records them.
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
from fedquilt.bench.running import chosen_methods
from fedquilt.common.files import write_json
from fedquilt.training.loop import Training

# Sparse features, more than hidden units; and dense ones, fewer. They take different ways through the code.
CELLS = (SYNTHETIC, Case("communities-3", "natural", 20))
# Five rounds, since some methods do more in every fifth.
WARM_UP, ROUNDS = 2, 5
TOLERANCE = 0.05
HOW_TO_UPDATE = "Where that is meant, record it: python -m fedquilt.bench.counters --update {}"


@dataclass(frozen=True)
class Counts:
    """What `ROUNDS` rounds cost."""

    operators: int
    bytes: int
    flops: int


class Counter(TorchDispatchMode):
    """Counts what PyTorch does inside the block.

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
    """What tells memory apart; a sparse tensor is always its own."""
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else id(tensor)


def _size(tensor: Tensor) -> int:
    numbers = tensor.numel() if tensor.layout == torch.strided else tensor._nnz()
    return numbers * tensor.element_size()


def count_rounds(training: Training) -> Counts:
    """What the rounds after the first ones cost, each of them as if it were the best so far (its models are kept)."""
    training.advance(WARM_UP)
    with Counter() as counter:
        for _ in range(ROUNDS):
            training.progress.best.val = -math.inf
            training.advance(1)
    return counter.counts


def count_method(method: str) -> dict[str, Counts]:
    """The counts of a method on each of `CELLS`."""
    ready, _ = load_cases(CELLS, [method], "cpu")
    return {str(one.cell): count_rounds(one.experiment(method).training(0)) for one in ready}


def dearer(method: str, now: Mapping[str, Counts], recorded: Mapping[str, Counts]) -> list[str]:
    """A sentence for each count that is notably above the recorded one, or that was not recorded."""
    found = []
    for cell, counts in now.items():
        what = f"{ROUNDS} rounds of {method} on {cell}"
        if cell not in recorded:
            found.append(f"Nothing is recorded for {what}.")
            continue
        for figure, new in asdict(counts).items():
            old = getattr(recorded[cell], figure)
            if new > old * (1 + TOLERANCE):
                found.append(f"{what} take {new:,} {figure}, over {TOLERANCE:.0%} more than the {old:,} recorded.")
    return found


def write_counts(path: Path, methods: Mapping[str, Mapping[str, Counts]]) -> None:
    """Record counts, with the version of PyTorch that they were counted with."""
    figures = {method: {cell: asdict(c) for cell, c in cells.items()} for method, cells in methods.items()}
    write_json(path, {"torch": _version(torch.__version__), "rounds": ROUNDS, "methods": figures})


def read_counts(path: Path) -> dict[str, dict[str, Counts]]:
    """What `write_counts` recorded, by method and cell."""
    methods = json.loads(path.read_text(encoding="utf-8"))["methods"]
    return {method: {cell: Counts(**c) for cell, c in cells.items()} for method, cells in methods.items()}


def same_torch(path: Path) -> bool:
    """Whether counts were recorded with this version of PyTorch; another one may split operators differently."""
    return json.loads(path.read_text(encoding="utf-8"))["torch"] == _version(torch.__version__)


def _version(full: str) -> str:
    """2.13.0+cpu as 2.13.0: builds of a version count alike."""
    return full.partition("+")[0]


def main() -> None:
    """Count what rounds of every method cost, print it, and record it where asked."""
    parser = argparse.ArgumentParser(prog="python -m fedquilt.bench.counters", description=main.__doc__)
    parser.add_argument("--update", type=Path, metavar="FILE", help="the JSON file to record the counts in")
    chosen = parser.parse_args()
    methods = {method: count_method(method) for method in sorted(chosen_methods(None))}
    for method, cells in methods.items():
        for cell, c in cells.items():
            print(f"{method:10} {cell:24} {c.operators:8,} operators {c.bytes:15,} bytes {c.flops:15,} flops")
    if chosen.update:
        write_counts(chosen.update, methods)


if __name__ == "__main__":
    main()
