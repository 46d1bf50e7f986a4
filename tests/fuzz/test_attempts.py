"""Campaigns: attempts follow from their seed and number, and what is found is kept with the command that finds it again."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fuzz import attempts
from fuzz.attempts import Attempt, Campaign, find_kind, kind_names
from fuzz.judge import Failed


def kind(found: list[float]) -> SimpleNamespace:
    """A kind whose attempts with an odd number find something."""

    def attempt(case: Attempt) -> None:
        found.append(case.rng.random())
        (case.folder / "evidence").write_text(case.material)
        if case.number % 2:
            case.note("looked")
            raise Failed("oddness", f"attempt {case.number} is odd")
        if case.number == 4:
            raise KeyError("a mistake of the generator")

    return SimpleNamespace(ABOUT="", prepare=lambda folder: "made once", attempt=attempt)


def test_every_kind_says_what_it_tries() -> None:
    assert kind_names() == [
        "changed",
        "damage",
        "flood",
        "inputs",
        "kill",
        "limits",
        "links",
        "options",
        "replies",
        "requests",
    ]
    assert all(find_kind(name).ABOUT for name in kind_names())


def test_what_is_found_is_kept_with_its_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []
    monkeypatch.setattr(attempts, "find_kind", lambda name: kind(drawn))
    with Campaign(["odd"], 7, tmp_path) as campaign:
        campaign.run(attempts=4, seconds=None)
        tally = campaign.tallies["odd"]
        assert (tally.attempts, dict(tally.by_what)) == (4, {"oddness": 2})
        assert len(set(drawn)) == 4
        campaign.attempt("odd", 2)
        campaign.attempt("odd", 4)
        assert dict(tally.by_what) == {"oddness": 2, "the generator failed": 1}
    assert drawn[4] == drawn[2]
    facts = json.loads((tmp_path / "odd-7-3" / "failure.json").read_text())
    assert facts["replay"] == "python -m fuzz --only odd --seed 7 --number 3"
    assert facts["notes"] == ["looked"]
    assert (tmp_path / "odd-7-3" / "files" / "evidence").read_text() == "made once"


def test_a_campaign_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "find_kind", lambda name: kind([]))
    with Campaign(["odd"], 7, tmp_path) as campaign:
        campaign.run(attempts=None, seconds=0.0)
        assert campaign.tallies["odd"].attempts == 0
