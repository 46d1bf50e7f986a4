"""Read a dataset from its public raw files, downloading them first: PyTorch Geometric, OGB, and files placed by hand.

Raw files are kept in `<data folder>/raw/<folder of the source>`. Files that are already there are not downloaded again.
"""

from __future__ import annotations

import shutil
import socket
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from fedquilt.common.archives import DamagedArchiveError
from fedquilt.common.files import replacing
from fedquilt.datasets.dataset import Choice
from fedquilt.datasets.ieee_fraud import IDENTITIES, TRANSACTIONS, read_ieee_fraud
from fedquilt.datasets.raw_checks import check_raw_files
from fedquilt.datasets.raw_files import read_h2gcn, read_nifty_credit, read_ogb
from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import as_sparse
from fedquilt.graphs.graph import Graph

TIMEOUT = 20.0  # seconds that a server may stay silent


class _DownloadError(Exception):
    """A download failed. `download` turns it into a sentence that names the data folder."""


class _FilesMissingError(Exception):
    """Files that cannot be downloaded are not in place. The text says which files to put where."""


@dataclass(frozen=True)
class PyGDataset:
    """A dataset class of PyTorch Geometric, such as `Planetoid(root, "Cora")`.

    Attributes:
        folder: the folder under `raw/`.
        class_name: the class in `torch_geometric.datasets`.
        host: the server that the class downloads from.
        arguments: the arguments of the class after its root folder.
    """

    folder: str
    class_name: str
    host: str
    arguments: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """See `RawFiles`."""
        return f"PyTorch Geometric's {self.class_name}"

    def read(self, name: str, parameters: Mapping[str, str], folder: Path) -> Graph:
        """See `RawFiles`."""
        from torch_geometric import datasets

        folder.mkdir(parents=True, exist_ok=True)
        checked = _with_checked_download(getattr(datasets, self.class_name), self.host)
        try:
            # Our npz file is the cache. A processed file of an older or broken run must not be used instead.
            dataset = checked(str(folder), *self.arguments, force_reload=True)
        except (_DownloadError, OSError):
            raise
        except Exception as error:
            if isinstance(error, FedquiltError) and not isinstance(error, DamagedArchiveError):
                raise
            raise FedquiltError(
                f"The raw files of {name} in {folder} could not be read ({type(error).__name__}); delete that "
                "folder and try again."
            ) from error
        graph = Graph.from_data(dataset[0], name)
        shutil.rmtree(dataset.processed_dir, ignore_errors=True)
        return graph


@dataclass(frozen=True)
class OgbArchive:
    """A node classification dataset of the Open Graph Benchmark: one zip file, which is read as it is.

    Attributes:
        archive: the name of the file, without `.zip`; its folder inside has the same name.
    """

    archive: str
    folder: ClassVar[str] = "ogb"
    description: ClassVar[str] = "the Open Graph Benchmark"
    host: ClassVar[str] = "http://snap.stanford.edu/ogb/data/nodeproppred"

    def read(self, name: str, parameters: Mapping[str, str], folder: Path) -> Graph:
        """See `RawFiles`. A folder that the ogb package unpacked, such as `ogbn_arxiv`, is read too."""
        unpacked, packed = folder / name.replace("-", "_"), folder / f"{self.archive}.zip"
        if (unpacked / "raw" / "edge.csv.gz").is_file():
            return read_ogb(unpacked, name)
        if not packed.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            _fetch(f"{self.host}/{self.archive}.zip", packed)
        try:
            with zipfile.ZipFile(packed) as opened:
                return read_ogb(zipfile.Path(opened, f"{self.archive}/"), name)
        except (
            zipfile.BadZipFile,
            RuntimeError,
        ) as error:  # it may be encrypted, or packed by a method that Python lacks
            raise FedquiltError(f"{packed} is not a zip file, or a part of one; delete it and try again.") from error


@dataclass(frozen=True)
class H2gcnFiles:
    """An npz file that H2GCN publishes and the user puts in place. `{h}` in its name stands for a parameter."""

    file: str
    folder: ClassVar[str] = "h2gcn"
    description: ClassVar[str] = "H2GCN's syn-cora files, placed by you"

    def read(self, name: str, parameters: Mapping[str, str], folder: Path) -> Graph:
        """See `RawFiles`."""
        path = folder / self.file.format(**parameters)
        if not path.is_file():
            raise _FilesMissingError(f"H2GCN's {path.name} into {folder}")
        return read_h2gcn(path, name)


@dataclass(frozen=True)
class KaggleFraud:
    """Kaggle's IEEE-CIS fraud detection, two files that the user puts in place: they are given to who accepts its rules."""

    folder: ClassVar[str] = "ieee-fraud"
    description: ClassVar[str] = "Kaggle's ieee-fraud-detection files, placed by you"

    def read(self, name: str, parameters: Mapping[str, str], folder: Path) -> Graph:
        """See `RawFiles`."""
        if not folder.is_dir():
            raise _FilesMissingError(f"Kaggle's {TRANSACTIONS} and {IDENTITIES} (ieee-fraud-detection) into {folder}")
        return read_ieee_fraud(folder, name, int(parameters["neighbours"]))


@dataclass(frozen=True)
class NiftyFiles:
    """The credit graph of NIFTY, two files that the user puts in place."""

    folder: ClassVar[str] = "nifty"
    description: ClassVar[str] = "NIFTY's credit files, placed by you"

    def read(self, name: str, parameters: Mapping[str, str], folder: Path) -> Graph:
        """See `RawFiles`."""
        if not folder.is_dir():
            raise _FilesMissingError(f"NIFTY's credit.csv and credit_edges.txt into {folder}")
        return read_nifty_credit(folder, name)


def download(choice: Choice, data: Path) -> Graph:
    """Read the graph of a catalogue entry from its raw files under `data`/raw, downloading them first if needed."""
    raw = choice.dataset.raw
    assert raw is not None
    name = choice.files[0]
    try:
        with _bounded_waits():
            graph = raw.read(name, choice.parameters, data / "raw" / raw.folder)
    except _FilesMissingError as error:
        raise FedquiltError(
            f"{name} is not in {data} and cannot be downloaded: put {name}.npz there, or {error}, "
            "or point --data or FEDQUILT_DATA at a folder that has it."
        ) from error
    except _DownloadError as error:
        _remove_empty_folders(data / "raw")
        raise FedquiltError(
            f"{name} is not in {data} and could not be downloaded ({error}): put {name}.npz there, "
            "or point --data or FEDQUILT_DATA at a folder that has it."
        ) from error
    except OSError as error:
        raise FedquiltError(
            f"{name} is not in {data}, and nothing can be stored there ({error.strerror or error}): "
            "point --data or FEDQUILT_DATA at a folder that has it or that you may write to."
        ) from error
    return replace(graph, x=as_sparse(graph.x)) if choice.dataset.sparse else graph


def _with_checked_download(dataset_class: Any, host: str) -> Any:
    """A subclass of a PyTorch Geometric dataset whose download fails at once when offline and leaves no partial file,
    and which reads only raw files that are checked.
    """

    class CheckedDownload(dataset_class):
        def process(self) -> None:
            check_raw_files(self.raw_paths)
            super().process()

        def download(self) -> None:
            before = set(Path(self.raw_dir).iterdir())
            try:
                _reach(host)
                super().download()
            except Exception as error:
                for path in set(Path(self.raw_dir).iterdir()) - before:
                    path.unlink()
                raise _DownloadError(_reason(error)) from error

    return CheckedDownload


def _fetch(address: str, path: Path) -> None:
    """Download a file; there is none at `path` unless all of it came."""
    try:
        # Addresses are those of the datasets; none comes from a user or from a file.
        answer = urllib.request.urlopen(address, timeout=TIMEOUT)  # noqa: S310
        with answer, replacing(path) as part, open(part, "wb") as file:
            shutil.copyfileobj(answer, file)
            # A connection that ends too early is no error of the copy.
            if (length := answer.headers.get("Content-Length")) is not None and file.tell() != int(length):
                raise ConnectionError(f"{file.tell()} of {length} bytes came")
    except Exception as error:
        raise _DownloadError(_reason(error)) from error


def _remove_empty_folders(folder: Path) -> None:
    """Remove the empty folders that a failed download leaves behind."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            with suppress(OSError):  # not empty
                path.rmdir()
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def _bounded_waits() -> Iterator[None]:
    """Set a timeout for all network waits in the block, because PyTorch Geometric sets none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _reach(address: str) -> None:
    """Raise an error at once, not minutes later, if a server cannot be reached. Any HTTP reply counts as reached."""
    with suppress(urllib.error.HTTPError):
        # Addresses are those of the datasets, http or https; none comes from a user or from a file.
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310
        urllib.request.urlopen(request, timeout=TIMEOUT).close()  # noqa: S310


def _reason(error: Exception) -> str:
    offline = isinstance(error, OSError) and not isinstance(error, urllib.error.HTTPError)
    return "no internet?" if offline else f"{type(error).__name__}: {error}".splitlines()[0]
