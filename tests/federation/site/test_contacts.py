"""How often and when a site was asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedquilt.federation.site import contacts as module
from fedquilt.federation.site.contacts import Contacts, count_request, read_contacts


def test_requests_are_counted_by_kind(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert read_contacts(state) == Contacts()
    for kind in ("hello", "round", "round", "dance", None, ["list"]):
        count_request(state, kind, 9)
    found = read_contacts(state)
    assert found.total == found.today == {"hello": 1, "round": 2, "unreadable": 3}
    assert found.first is not None
    assert found.first <= str(found.last)
    assert (state / "contacts.json").stat().st_mode & 0o077 == 0


def test_beyond_the_limit_nothing_is_written_any_more(tmp_path: Path) -> None:
    assert [count_request(tmp_path, "hello", 2) for _ in range(3)] == [1, 2, 3]
    before = (tmp_path / "contacts.json").read_bytes()
    assert [count_request(tmp_path, "hello", 2) for _ in range(5)] == [4] * 5
    assert (tmp_path / "contacts.json").read_bytes() == before
    assert read_contacts(tmp_path).total == {"hello": 2}
    assert count_request(tmp_path, "round", 2) == 1  # of another kind


def test_a_new_day_starts_at_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(days=1)

    for _ in range(3):
        count_request(tmp_path, "hello", 2)
    monkeypatch.setattr(module, "datetime", Tomorrow)
    assert count_request(tmp_path, "hello", 2) == 1
    assert read_contacts(tmp_path).total == {"hello": 3}


@pytest.mark.parametrize(
    "text", ["torn", "[]", '{"total": 1}', '{"first": 1, "last": 2, "day": "", "total": [], "today": {}}']
)
def test_a_damaged_note_is_begun_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "contacts.json").write_text(text)
    assert read_contacts(tmp_path) == Contacts()
    assert count_request(tmp_path, "round", 5) == 1
