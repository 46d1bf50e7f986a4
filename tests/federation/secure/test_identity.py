"""A site's lasting key: made once, for its owner only."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.secure.identity import FILE, site_identity
from fedquilt.federation.secure.keys import key_pairs_match


def test_the_key_is_made_once(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = site_identity(state)
    assert site_identity(state) == first
    assert key_pairs_match(first.private, first.public)
    assert [path.name for path in state.iterdir()] == [FILE]
    assert (state / FILE).stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700


def test_a_damaged_key_is_a_sentence(tmp_path: Path) -> None:
    site_identity(tmp_path)
    (tmp_path / FILE).write_text("no key")
    with pytest.raises(FedquiltError, match="is damaged; delete it, and tell the others the new key"):
        site_identity(tmp_path)
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    with pytest.raises(FedquiltError, match="cannot be used"):
        site_identity(tmp_path)
