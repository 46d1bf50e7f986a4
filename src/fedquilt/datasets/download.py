"""Graphs by their usual public route: PyTorch Geometric's classes, OGB, files placed by hand.

Raw files live in `<data folder>/raw/<route>`; those already there are used and nothing is downloaded.
"""

from __future__ import annotations

import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedquilt.datasets.catalogue import Choice
from fedquilt.datasets.raw_files import as_sparse, read_h2gcn, read_nifty_credit, read_ogb
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph

# How long a server may stay silent before we call it unreachable.
PATIENCE = 20.0

_HOSTS = {
    "planetoid": "https://github.com",
    "amazon": "https://github.com",
    "heterophilous": "https://github.com",
    "wikipedia": "https://raw.githubusercontent.com",
    "actor": "https://raw.githubusercontent.com",
    "flickr": "https://drive.usercontent.google.com",
    "ogb": "http://snap.stanford.edu",
}


class _NotDownloadedError(Exception):
    """A download did not work out; turned into a sentence where the folder is known."""


def fetch(choice: Choice, folder: Path) -> Graph:
    """The graph of a catalogue entry from its public route, with raw files under `folder`/raw."""
    dataset = choice.dataset
    name = choice.files[0]
    root = folder / "raw" / dataset.route
    try:
        with _patience():
            if dataset.route == "h2gcn":
                return _placed(root / f"{dataset.key.format(**choice.parameters)}.npz", name, folder)
            if dataset.route == "nifty":
                return _credit(root, name, folder)
            root.mkdir(parents=True, exist_ok=True)
            graph = (
                _open_graph_benchmark(root, name)
                if dataset.route == "ogb"
                else _from_pyg(dataset.route, dataset.key, root, name)
            )
    except _NotDownloadedError as error:
        _remove_empty(folder / "raw")
        raise FedquiltError(
            f"{name} is not in {folder} and could not be downloaded ({error}): put {name}.npz there, "
            "or point --data or FEDQUILT_DATA at a folder that has it."
        ) from error
    except OSError as error:
        raise FedquiltError(
            f"{name} is not in {folder}, and nothing can be stored there ({error.strerror or error}): "
            "point --data or FEDQUILT_DATA at a folder that has it or that you may write to."
        ) from error
    return replace(graph, x=as_sparse(graph.x)) if dataset.sparse else graph


def _from_pyg(route: str, key: str, root: Path, name: str) -> Graph:
    from torch_geometric import datasets

    classes: dict[str, tuple[Any, tuple[str, ...]]] = {
        "planetoid": (datasets.Planetoid, (key,)),
        "amazon": (datasets.Amazon, (key,)),
        "heterophilous": (datasets.HeterophilousGraphDataset, (key,)),
        "wikipedia": (datasets.WikipediaNetwork, (key,)),
        "actor": (datasets.Actor, ()),
        "flickr": (datasets.Flickr, ()),
    }
    kind, arguments = classes[route]

    class Guarded(kind):  # type: ignore[misc, valid-type]
        """The same dataset, whose failed download says so at once and leaves no half a file behind."""

        def download(self) -> None:
            before = set(Path(self.raw_dir).iterdir())
            try:
                _reach(_HOSTS[route])
                super().download()
            except Exception as error:
                for path in set(Path(self.raw_dir).iterdir()) - before:
                    path.unlink()
                raise _NotDownloadedError(_reason(error)) from error

    try:
        # Our npz is the cache; a processed file from an older or broken run must not be taken for the truth.
        dataset = Guarded(str(root), *arguments, force_reload=True)
    except (_NotDownloadedError, OSError):
        raise
    except Exception as error:
        raise FedquiltError(
            f"The raw files of {name} in {root} could not be read ({type(error).__name__}); delete that "
            "folder and try again."
        ) from error
    graph = Graph.from_data(dataset[0], name)
    shutil.rmtree(dataset.processed_dir, ignore_errors=True)
    return graph


def _open_graph_benchmark(root: Path, name: str) -> Graph:
    folder = root / name.replace("-", "_")
    if not (folder / "raw" / "edge.csv.gz").is_file():
        try:
            from ogb.nodeproppred import NodePropPredDataset
        except ImportError as error:
            raise _NotDownloadedError("the ogb package is not installed: pip install 'fedquilt[ogb]'") from error
        try:
            _reach(_HOSTS["ogb"])
            # Used for its download only; it caches by pickling, so we read the raw files ourselves.
            NodePropPredDataset(name, root=str(root))
        except Exception as error:
            if not (folder / "raw" / "edge.csv.gz").is_file():
                raise _NotDownloadedError(_reason(error)) from error
    return read_ogb(folder, name)


def _placed(path: Path, name: str, folder: Path) -> Graph:
    if not path.is_file():
        raise FedquiltError(
            f"{name} is not in {folder} and cannot be downloaded: put {name}.npz there, or H2GCN's "
            f"{path.name} into "
            f"{path.parent}, or point --data or FEDQUILT_DATA at a folder that has it."
        )
    return read_h2gcn(path, name)


def _credit(root: Path, name: str, folder: Path) -> Graph:
    if not root.is_dir():
        raise FedquiltError(
            f"{name} is not in {folder} and cannot be downloaded: put {name}.npz there, or NIFTY's "
            "credit.csv and "
            f"credit_edges.txt into {root}, or point --data or FEDQUILT_DATA at a folder that has it."
        )
    return read_nifty_credit(root, name)


def _remove_empty(folder: Path) -> None:
    """Take away the empty folders that a download which came to nothing has made."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            with suppress(OSError):  # it holds something
                path.rmdir()
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def _patience() -> Iterator[None]:
    """Bound every wait for a server: PyTorch Geometric sets no limit of its own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _reach(address: str) -> None:
    """Fail now, not minutes later, when a server cannot be reached; any answer, even a refusal, will do."""
    with suppress(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE).close()


def _reason(error: Exception) -> str:
    offline = isinstance(error, OSError) and not isinstance(error, urllib.error.HTTPError)
    return "no internet?" if offline else f"{type(error).__name__}: {error}".splitlines()[0]
