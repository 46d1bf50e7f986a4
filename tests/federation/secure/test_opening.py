"""The coordinator's part: sums with and without drop-outs, what it sees of one site, and replies that cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedquilt.federation.protocol import RefusedError
from fedquilt.federation.secure.keys import threshold
from fedquilt.federation.secure.opening import MaskedSum, read_masked, read_sealed, read_shares
from fedquilt.federation.secure.tables import write_table
from support.secure_sums import Group, sum_of

A = "a" * 32


@pytest.mark.parametrize("gone", [[], [0], [0, 6]])
def test_drop_outs_within_the_bound_lose_nothing(gone: list[int], tmp_path: Path) -> None:
    sites = 4 if len(gone) < 2 else 7
    assert len(gone) <= sites - threshold(sites)
    group = Group(tmp_path, sites, length=5)
    keys, masked = group.masked(A, without=gone)
    alive = [m for m in range(sites) if m not in gone]
    assert np.array_equal(group.opened(A, keys, masked), sum_of([group.vectors[m] for m in alive]))


def test_a_site_that_drops_out_after_its_upload_is_in_the_sum(tmp_path: Path) -> None:
    group = Group(tmp_path, 4)
    keys, masked = group.masked(A)
    assert np.array_equal(group.opened(A, keys, masked, silent=[2]), sum_of(list(group.vectors)))


def test_beyond_the_bound_nothing_is_learned(tmp_path: Path) -> None:
    group = Group(tmp_path, 4)
    keys, masked = group.masked(A)
    with pytest.raises(RefusedError, match="Only 2 of 4 sites signed the same list, and 3 are needed"):
        group.opened(A, keys, masked, silent=[2, 3])


def test_what_comes_from_one_site_says_nothing_of_its_upload(tmp_path: Path) -> None:
    """Bytes of a masked upload are uniform and do not correlate with the upload, whatever that is; the sum is right."""
    length = 2**15
    group = Group(tmp_path, 3, length=length)
    group.vectors[0] = 7 * 2**32  # one number throughout
    keys, masked = group.masked(A)
    for m in range(3):
        counts = np.bincount(np.frombuffer(masked[m].tobytes(), np.uint8), minlength=256)
        expected = counts.sum() / 256
        assert float(((counts - expected) ** 2 / expected).sum()) < 255 + 5 * (2 * 255) ** 0.5
        signed = masked[m].view(np.int64).astype(float)
        if m:
            upload = group.vectors[m].view(np.int64).astype(float)
            assert abs(np.corrcoef(signed, upload)[0, 1]) < 5 / length**0.5
    assert len(np.unique(masked[0])) == length
    # Any two of the three are as random: only all together give the sum.
    pair = masked[0] + masked[1] - group.vectors[0] - group.vectors[1]
    counts = np.bincount(np.frombuffer(pair.tobytes(), np.uint8), minlength=256)
    expected = counts.sum() / 256
    assert float(((counts - expected) ** 2 / expected).sum()) < 255 + 5 * (2 * 255) ** 0.5
    assert np.array_equal(group.opened(A, keys, masked), sum_of(list(group.vectors)))


def test_the_same_upload_is_masked_anew_for_another_sum(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    first = group.masked(A)[1]
    second = group.masked("b" * 32)[1]
    assert not np.intersect1d(first[0], second[0]).size
    assert not np.intersect1d(first[0] - second[0], [0]).size


def test_shares_that_do_not_fit_are_noticed(tmp_path: Path) -> None:
    group = Group(tmp_path, 4)
    keys, masked = group.masked(A, without=[3])
    whole = MaskedSum(A, 0, keys, [0, 1, 2, 3], [0, 1, 2], sum_of(list(masked.values())))
    signatures = {m: group.sites[m].confirm(A, whole.alive, whole.dropped) for m in whole.alive}
    shares = {m: {t: bytes.fromhex(s) for t, s in group.sites[m].unmask(A, signatures).items()} for m in whole.alive}
    assert np.array_equal(whole.opened(shares), sum_of(list(group.vectors[:3])))
    bad = {m: dict(given) for m, given in shares.items()}
    bad[1][3] = bad[1][3][:4] + bytes(len(bad[1][3]) - 4)
    with pytest.raises(ValueError, match=r"Failed to combine|shares of site 3's key do not fit"):
        whole.opened(bad)
    other = replace(whole, keys=keys | {3: keys[2]})
    with pytest.raises(ValueError, match="shares of site 3's key do not fit"):
        other.opened(shares)


def test_replies_of_another_form_are_refused() -> None:
    assert read_masked(bytes(16), 2).tolist() == [0, 0]
    with pytest.raises(ValueError, match="has 17 bytes, where a masked upload has 16"):
        read_masked(bytes(17), 2)
    assert read_sealed(write_table({0: "x", 2: "y"}), 1, [0, 1, 2]) == {0: "x", 2: "y"}
    with pytest.raises(ValueError, match="shares for other sites"):
        read_sealed(write_table({0: "x", 1: "y"}), 1, [0, 1, 2])
    assert read_shares(write_table({0: "00ff", 1: ""}), [0, 1]) == {0: b"\0\xff", 1: b""}
    for table in ({0: "00"}, {0: "00", 1: "xx"}):
        with pytest.raises(ValueError, match=r"shares of other sites|hexadecimal"):
            read_shares(write_table(table), [0, 1])
