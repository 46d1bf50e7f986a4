"""Check raw files before PyTorch Geometric reads them: it unpickles some, and unpacks others whatever they become."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedquilt.common.archives import check_archive
from fedquilt.errors import FedquiltError

# What Planetoid's pickles are made of: arrays, sparse matrices, and a dict of lists. Modules moved between versions of the
# libraries, so their names are compared up to the package; what may be called is fixed.
_PLAIN = {"list", "dict", "set", "object", "int", "float"}
_ALLOWED = {
    "numpy": {"_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer"},
    "scipy": {"csr_matrix", "csc_matrix", "coo_matrix", "lil_matrix"},
    "collections": {"defaultdict", "OrderedDict"},
    "builtins": _PLAIN,
    "__builtin__": _PLAIN,  # Python 2's name, as in the next but one
    "copyreg": {"_reconstructor"},
    "copy_reg": {"_reconstructor"},
    "_codecs": {"encode"},
}


def check_raw_files(paths: Iterable[str | Path]) -> None:
    """Refuse archives that would fill the memory, and pickles that would call anything but what arrays are made with."""
    for path in map(Path, paths):
        if path.suffix == ".npz":
            check_archive(path)
        elif path.name.startswith("ind.") and path.suffix != ".index":
            _check_pickle(path)


class _ArraysOnly(pickle.Unpickler):
    """Unpickles arrays and containers of them, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _ALLOWED.get(module.partition(".")[0], ()):
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


def _check_pickle(path: Path) -> None:
    try:
        with open(path, "rb") as file:
            _ArraysOnly(file, encoding="latin1").load()
    except OSError:
        raise
    # A damaged pickle raises nearly anything.
    except Exception as error:
        raise FedquiltError(
            f"{path} is not a file of arrays as Planetoid publishes them, and could run code when read; delete it."
        ) from error
