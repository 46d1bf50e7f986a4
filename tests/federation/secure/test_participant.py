"""A site's part: it answers again as before, and refuses whatever would give away more than one sum a round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.protocol import RefusedError
from fedquilt.federation.secure.keys import KeyPair, fingerprint, signed
from fedquilt.federation.secure.participant import FILE, sum_purpose
from support.secure_sums import RANGE, RUN, Group, sum_of

A, B = "a" * 32, "b" * 32


def test_every_stage_is_answered_again_the_same(tmp_path: Path) -> None:
    group = Group(tmp_path, 4)
    keys, masked = group.masked(A)
    again = group.site(1)
    assert again.setup(A, 0, RANGE) == keys[1]
    sealed = group.sites[0].share(A, keys)
    assert group.site(0).share(A, keys) == sealed
    again.accept(A, 0, RANGE, {m: group.sites[m].share(A, keys)[1] for m in (0, 2, 3)})
    assert np.array_equal(again.masked(A, group.vectors[1]), masked[1])
    signatures = {m: group.sites[m].confirm(A, [0, 1, 2, 3], []) for m in range(4)}
    again.confirm(A, [3, 2, 1, 0], [])
    shares = again.unmask(A, signatures)
    assert group.site(1).unmask(A, signatures) == shares
    # What it would need to mask another upload is no longer on the disk.
    assert not {"private", "seed", "sealed"} & set(again._load())
    with pytest.raises(RefusedError, match="out of turn"):
        again.share(A, keys)


def test_both_secrets_of_a_site_are_refused(tmp_path: Path) -> None:
    group = Group(tmp_path, 4)
    group.masked(A)
    site = group.sites[1]
    for alive, dropped in (([0, 1, 2, 3], [3]), ([0, 1, 2, 2], [3])):
        with pytest.raises(RefusedError, match="Both secrets of a site would be asked for"):
            site.confirm(A, alive, dropped)
    # ... and one after the other, too.
    site.confirm(A, [0, 1, 2, 3], [])
    with pytest.raises(RefusedError, match="Others were said to be in this sum before"):
        site.confirm(A, [0, 1, 2], [3])
    with pytest.raises(RefusedError, match="has signed who is in the sum of round 0 already"):
        site.setup(B, 0, RANGE)


@pytest.mark.parametrize(
    ("alive", "dropped", "says"),
    [
        ([0, 1], [2, 3], "Only 2 of 4 sites would be added up, and 3 are needed"),
        ([1], [0, 2, 3], "Only 1 of 4"),
        ([0, 2, 3], [1], "not the one that this site has a part in"),
        ([0, 1, 2], [], "not the one that this site has a part in"),
        ([0, 1, 2, 3, 4], [], "not the one that this site has a part in"),
    ],
)
def test_a_sum_that_would_single_somebody_out_is_refused(
    alive: list[int], dropped: list[int], says: str, tmp_path: Path
) -> None:
    group = Group(tmp_path, 4)
    group.masked(A)
    with pytest.raises(RefusedError, match=says):
        group.sites[1].confirm(A, alive, dropped)


@pytest.mark.parametrize("told", [3, 5])
def test_sites_that_are_told_different_survivors_give_nothing(told: int, tmp_path: Path) -> None:
    """A coordinator tells some of seven sites that the last one dropped out, and the others that it did not."""
    group = Group(tmp_path, 7, length=3)
    group.masked(A)
    everyone = list(range(7))
    lists = {m: (everyone[:-1], [6]) if m < told else (everyone, []) for m in everyone}
    signatures = {m: group.sites[m].confirm(A, *lists[m]) for m in everyone}
    gave = []
    for m in everyone:
        if len([other for other in everyone if lists[other] == lists[m]]) >= 5:
            group.sites[m].unmask(A, signatures)
            gave.append(lists[m])
        else:
            with pytest.raises(RefusedError, match="of 7 sites signed the same list, and 5 are needed"):
                group.sites[m].unmask(A, signatures)
    assert len({str(each) for each in gave}) <= 1


def test_signatures_that_are_not_the_sites_own_do_not_count(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    group.masked(A)
    good = {m: group.sites[m].confirm(A, [0, 1, 2], []) for m in range(3)}
    for bad in (
        {0: good[0], 1: good[1]},
        good | {2: good[1]},
        good | {2: "zz"},
        {0: good[0], 1: good[1], 7: good[2]},
        {},
    ):
        with pytest.raises(RefusedError, match="signed the same list, and 3 are needed"):
            group.sites[0].unmask(A, bad)
    assert set(group.sites[0].unmask(A, good)) == {0, 1, 2}


def test_masks_are_not_used_for_two_uploads_or_two_groups(tmp_path: Path) -> None:
    group = Group(tmp_path, 5)
    keys = group.keys(A)
    sealed = {m: group.sites[m].share(A, keys) for m in keys}
    site, for_one = group.sites[1], {m: sealed[m][1] for m in (0, 2, 3, 4)}
    site.accept(A, 0, RANGE, for_one)
    site.accept(A, 0, RANGE, for_one)
    site.masked(A, group.vectors[1])
    with pytest.raises(RefusedError, match="sites of this sum were other ones before"):
        site.accept(A, 0, RANGE, {m: for_one[m] for m in (0, 2, 3)})
    site.accept(A, 0, RANGE, for_one)
    with pytest.raises(RefusedError, match="Another upload was masked for this sum before"):
        site.masked(A, group.vectors[2])
    with pytest.raises(RefusedError, match="keys of this sum were other ones before"):
        site.share(A, {m: keys[m] for m in (0, 1, 2)})
    with pytest.raises(RefusedError, match="another round or range"):
        site.setup(A, 1, RANGE)
    with pytest.raises(RefusedError, match="another round or range"):
        site.accept(A, 1, RANGE, for_one)


def test_shares_of_others_are_refused(tmp_path: Path) -> None:
    group = Group(tmp_path, 4)
    keys = group.keys(A)
    sealed = {m: group.sites[m].share(A, keys) for m in keys}
    good = {m: sealed[m][0] for m in (1, 2, 3)}
    for bad, says in (
        (good | {1: sealed[2][0]}, "cannot be decrypted"),
        (good | {1: sealed[1][2]}, "cannot be decrypted"),
        (good | {9: good[1]}, "not in this sum"),
        (good | {0: good[1]}, "not in this sum"),
        ({1: good[1]}, "Only 2 of 4 sites would share keys, and 3 are needed"),
    ):
        with pytest.raises(RefusedError, match=says):
            group.sites[0].accept(A, 0, RANGE, bad)
    group.sites[0].accept(A, 0, RANGE, good)


def test_sites_that_were_shown_different_keys_notice(tmp_path: Path) -> None:
    """The coordinator puts a key of its own in the place of site 3's, for some."""
    group = Group(tmp_path, 4)
    keys = group.keys(A)
    false = signed(KeyPair.make(), sum_purpose(RUN, A, 0, RANGE), 3, KeyPair.make().public, KeyPair.make().public)
    sealed = {m: group.sites[m].share(A, keys | {3: false} if m == 0 else keys) for m in (0, 1, 2)}
    with pytest.raises(RefusedError, match="sites 0 and 1 were told different things about the sum"):
        group.sites[1].accept(A, 0, RANGE, {m: sealed[m][1] for m in (0, 2)})


def test_only_peers_are_added_up_with_where_a_site_names_them(tmp_path: Path) -> None:
    group = Group(tmp_path, 4)
    keys = group.keys(A)
    peers = [fingerprint(identity.public) for identity in group.identities[:3]]
    with pytest.raises(RefusedError, match="Site 3 has a key that is not among this site's secure_peers"):
        group.site(0, peers).share(A, keys)
    # A coordinator that puts itself in the place of a peer cannot sign for it.
    purpose = sum_purpose(RUN, A, 0, RANGE)
    mine = signed(KeyPair.make(), purpose, 2, KeyPair.make().public, KeyPair.make().public)
    forged = mine._replace(identity=keys[2].identity)
    with pytest.raises(RefusedError, match="keys of site 2 are not signed for this sum"):
        group.site(0, peers).share(A, {0: keys[0], 1: keys[1], 2: forged})
    assert set(group.site(0, peers).share(A, {m: keys[m] for m in range(3)})) == {1, 2}


@pytest.mark.parametrize("who", [[0, 1], [0], [1, 2, 3]])
def test_groups_that_are_too_small_or_of_others_are_refused(who: list[int], tmp_path: Path) -> None:
    group = Group(tmp_path, 4)
    keys = group.keys(A)
    with pytest.raises(RefusedError, match=r"at least 3 sites|not one of this run's sites"):
        group.sites[0].share(A, {m: keys[m] for m in who})


def test_stages_out_of_turn_are_refused(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    site = group.sites[0]
    for ask in (
        lambda: site.share(A, {}),
        lambda: site.accept(A, 0, RANGE, {}),
        lambda: site.masked(A, group.vectors[0]),
        lambda: site.confirm(A, [0, 1, 2], []),
        lambda: site.unmask(A, {}),
    ):
        with pytest.raises(RefusedError, match="out of turn"):
            ask()
    group.masked(A)
    site.setup(B, 0, RANGE)  # another try
    with pytest.raises(RefusedError, match="out of turn"):
        site.confirm(A, [0, 1, 2], [])


def test_a_later_round_is_summed_anew(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    assert np.array_equal(group.opened(A, *group.masked(A)), sum_of(list(group.vectors)))
    keys, masked = group.masked(B, round=1)
    assert np.array_equal(group.opened(B, keys, masked), sum_of(list(group.vectors)))
    with pytest.raises(RefusedError, match="sum of round 1 already"):
        group.sites[0].setup("c" * 32, 1, RANGE)


def test_a_damaged_file_ends_it_for_the_run(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    group.masked(A)
    for text in ("{", "[]"):
        (tmp_path / "site-0" / FILE).write_text(text)
        with pytest.raises(FedquiltError, match="is damaged: nothing is sent in this run"):
            group.sites[0].setup(B, 1, RANGE)
