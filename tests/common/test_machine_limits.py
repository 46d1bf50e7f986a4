"""Limits of the machine are recognised however a library reports them."""

from __future__ import annotations

import errno
import os
import sqlite3

import numpy as np
import pytest
import torch

from fedquilt.common.machine_limits import find_limit, is_out_of_memory, readable
from fedquilt.errors import FedquiltError

CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.25 GiB is free. "
    "Process 1 has 77.8 GiB memory in use."
)
RUST = "Error while serializing: I/O error: File too large (os error 27)"


def raised(error: Exception, cause: BaseException | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "", "/a/b"), "disk"),
        (OSError(errno.EDQUOT, ""), "disk"),
        (OSError(errno.EFBIG, ""), "disk"),
        (OSError(errno.EIO, ""), "disk"),
        (RuntimeError(RUST), "disk"),
        (sqlite3.OperationalError("database or disk is full"), "disk"),
        (MemoryError(), "memory"),
        (OSError(errno.ENOMEM, ""), "memory"),
        (RuntimeError("std::bad_alloc"), "memory"),
        (ImportError("libmetis.so: failed to map segment from shared object"), "memory"),
        (ImportError("libmetis.so: cannot allocate memory in static TLS block"), "memory"),
        (torch.OutOfMemoryError(CUDA), "accelerator"),
        (RuntimeError("CUDA error: out of memory"), "accelerator"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "accelerator"),
        (RuntimeError("MPS backend out of memory (MPS allocated: 5 GB)"), "accelerator"),
        (OSError(errno.EMFILE, ""), "files"),
        (RuntimeError("can't start new thread"), "processes"),
        (BlockingIOError(errno.EAGAIN, ""), "processes"),
        (PermissionError(errno.EACCES, "", "x"), "access"),
        (OSError(errno.EROFS, "", "x"), "access"),
        (OSError(errno.ENAMETOOLONG, "", "x" * 5000), "name"),
        (FileNotFoundError(errno.ENOENT, "", "x"), "name"),
    ],
)
def test_each_is_recognised(error: Exception, kind: str) -> None:
    limit = find_limit(error)
    assert limit is not None
    assert limit.kind == kind
    assert limit.of_machine == (kind not in ("access", "name"))
    sentence = limit.sentence("do it again")
    assert sentence.endswith(", then do it again.")
    assert len(sentence) < 400
    assert is_out_of_memory(error) == (kind in ("memory", "accelerator"))


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyError("memory"), OSError("no number"), FedquiltError("No.")])
def test_what_is_none_is_none(error: Exception) -> None:
    assert find_limit(error) is None


def test_what_real_libraries_raise() -> None:
    with pytest.raises(RuntimeError) as of_torch:
        torch.empty(10**15)
    limit = find_limit(of_torch.value)
    assert limit is not None
    assert (limit.kind, limit.asked) == ("memory", 4 * 10**15)
    with pytest.raises(MemoryError) as of_numpy:
        np.empty(10**15)
    limit = find_limit(of_numpy.value)
    assert limit is not None
    assert limit.kind == "memory"
    assert limit.asked == pytest.approx(8e15, rel=0.01)


def test_how_much_was_asked_for_and_free_is_said() -> None:
    limit = find_limit(torch.OutOfMemoryError(CUDA))
    assert limit is not None
    assert (limit.asked, limit.free) == (int(2.5 * 2**30), int(1.25 * 2**30))
    assert limit.what == "The accelerator's memory ran out (2.5 GiB were asked for, 1.2 GiB were free)"


def test_the_file_is_named() -> None:
    limit = find_limit(OSError(errno.ENOSPC, "", "/a/b"))
    assert limit is not None
    assert "/a/b" in limit.what
    assert os.strerror(errno.ENOSPC) in limit.what


def test_a_cause_counts_but_a_defect_in_handling_a_missing_file_is_a_defect() -> None:
    full, missing = OSError(errno.ENOSPC, ""), FileNotFoundError(errno.ENOENT, "")
    assert find_limit(raised(FedquiltError("Cannot write."), full)) is not None
    assert find_limit(raised(FedquiltError("Cannot read."), missing)) is not None
    for handled, recognised in ((full, True), (missing, False)):
        with pytest.raises(KeyError) as caught:
            _stumble(handled)
        assert (find_limit(caught.value) is not None) == recognised


def _stumble(handled: OSError) -> None:
    try:
        raise handled
    except OSError:
        raise KeyError("typo")  # noqa: B904 (a defect in a handler)


def test_bytes_are_readable() -> None:
    assert [readable(n) for n in (5, 1536, 3 * 2**20, 2**31)] == ["5 bytes", "1.5 KiB", "3.0 MiB", "2.0 GiB"]
