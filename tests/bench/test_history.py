from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedquilt.bench.history import add_to_history, changes, comparison_sentences, newest_before, store
from fedquilt.bench.result import read_result
from support.bench import made_up


def test_a_slowed_method_is_found_and_the_others_are_not() -> None:
    found = changes(made_up(slowed=1.5), made_up())
    assert [(change.method, change.slower) for change in found] == [("fedavg", False), ("quilt", True)]
    assert str(found[1]) == "quilt on cora/disjoint/10: 0.3 plain FedAvg rounds a round, was 0.2 (+50 %)"


def test_up_to_a_fifth_is_not_slower_and_faster_never_is() -> None:
    assert not any(change.slower for change in changes(made_up(slowed=1.19), made_up()))
    assert not any(change.slower for change in changes(made_up(slowed=0.3), made_up()))


def test_a_turn_that_others_slowed_is_not_a_slower_method() -> None:
    now = made_up(slowed=1.5)
    quilt = replace(now.ours()["cora/disjoint/10", "quilt"], best_to_plain_fedavg=0.2)
    now = replace(now, rows=[quilt if row.method == "quilt" else row for row in now.rows])
    assert not any(change.slower for change in changes(now, made_up()))


def test_only_what_both_measured_is_compared() -> None:
    assert changes(made_up("cora/disjoint/10"), made_up("squirrel/disjoint/5")) == []


def test_a_result_is_kept_under_date_device_and_commit(tmp_path: Path) -> None:
    path = store(tmp_path / "new", made_up())
    assert path == tmp_path / "new" / "2025-03-01T120000-some-r-cpu-3-ghz-abc1234.json"
    assert read_result(path) == made_up()
    assert store(tmp_path, made_up(commit=None)).name.endswith("-0.1.0.json")


def test_the_newest_earlier_result_of_the_same_device_and_threads_is_found(tmp_path: Path) -> None:
    now = made_up()
    assert newest_before(tmp_path / "none", now, print) is None
    for day, about in enumerate(({}, {}, {"threads": 1}, {"device_name": "another"}), start=10):
        store(tmp_path, made_up(date=f"2025-02-{day}T00:00:00+00:00", **about))
    store(tmp_path, made_up(date="2025-03-02T00:00:00+00:00"))  # later than now
    (tmp_path / "2025-02-28-notes.json").write_text("{}")
    notes: list[str] = []
    found = newest_before(tmp_path, now, notes.append)
    assert found is not None
    assert found[1].about["date"] == "2025-02-11T00:00:00+00:00"
    (note,) = notes
    assert "2025-02-28-notes.json is not a result of 'fedquilt bench'" in note


def test_a_comparison_says_what_is_slower_and_on_what_machine(tmp_path: Path) -> None:
    assert comparison_sentences(made_up(), made_up(), "a.json") == [
        "More than 20% slower than in a.json: none of 2 measurements."
    ]
    assert comparison_sentences(made_up(slowed=1.5), made_up(threads=1), "a.json") == [
        "a.json is of another device or number of threads, so differences may be the machine's.",
        "More than 20% slower than in a.json, 1 of 2 measurements:",
        "  quilt on cora/disjoint/10: 0.3 plain FedAvg rounds a round, was 0.2 (+50 %)",
    ]
    first, written = add_to_history(tmp_path, made_up(), print)
    assert first.endswith("has no earlier result of this device and as many threads to compare with.")
    assert written == f"Written to {next(tmp_path.iterdir())}."
    later = made_up(date="2025-03-02T00:00:00+00:00")
    assert add_to_history(tmp_path, later, print)[0].startswith("More than 20% slower than in ")


def test_a_result_of_the_same_second_replaces_none(tmp_path: Path) -> None:
    paths = [store(tmp_path, made_up(slowed=slowed)) for slowed in (1.0, 2.0, 3.0)]
    assert [path.stem[-2:] for path in paths[1:]] == ["-2", "-3"]
    assert len({path.read_text() for path in paths}) == 3
