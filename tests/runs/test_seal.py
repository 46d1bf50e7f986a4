from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.methods.base import methods
from fedquilt.runs import seal
from fedquilt.runs.seal import ACCEPTABLE, FIXED, PLAN, UNSEALED, VERSION_KIND, Difference
from fedquilt.studies.spec import MACHINE_OPTIONS

CONFIG: dict[str, Any] = {
    "method": "fedavg",
    "dataset": "/graphs/mine.npz",
    "partition": "disjoint",
    "split": "20/40/40",
    "seeds": [0, 1],
    "rounds": 10,
    "patience": None,
    "settings": {"lr": 0.01},
    "participation": 1.0,
    "dp_clip": None,
    "device": "cpu",
    "workers": None,
    "resolved": {"settings": {"lr": 0.01, "hidden": 8}, "graph": {"nodes": 90}, "device": "cpu"},
    "versions": {"fedquilt": "0.1.0", "computation": 2, "seal": 1},
}


def differences(done: tuple[int, ...] = (), **change: Any) -> list[Difference]:
    before = {**CONFIG, **({"dp_clip": 1.0} if "dp_clip" in change else {})}
    return seal.config_differences(seal.seal_of(before), {**before, **change}, done)


def test_what_may_change_freely_is_not_sealed() -> None:
    assert differences() == []
    resolved = {**CONFIG["resolved"], "device": "cuda:0"}
    free = {"device": "cuda", "workers": 4, "cohort_size": 2, "data": "/other", "checkpoint_seconds": 1.0, "threads": 3}
    # Those that are no part of a cell's identity, which never tries again.
    assert set(free) == seal.FREE == MACHINE_OPTIONS - {"on_divergence"}
    assert differences(**free, resolved=resolved) == []
    assert differences(dataset="/elsewhere/moved.npz") == []  # its content is sealed


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"split": "40/30/30"}, 'split was "20/40/40" and is now "40/30/30" in config.json'),
        ({"settings": {"lr": 0.1}}, "settings.lr was 0.01 and is now 0.1 in config.json"),
        ({"settings": {}}, "settings.lr was 0.01 and is now not set in config.json"),
        ({"epochs": 9}, "epochs was not set and is now 9 in config.json"),
        ({"participation": 0.5}, "participation was 1.0 and is now 0.5 in config.json"),
        ({"dataset": "cora"}, 'dataset was "/graphs/mine.npz" and is now "cora" in config.json'),
        ({"partition": "random"}, 'partition was "disjoint" and is now "random" in config.json'),
        ({"versions": {"fedquilt": "0.1.0", "computation": 1, "seal": 1}}, "versions.computation was 2 and is now 1"),
        ({"resolved": {**CONFIG["resolved"], "settings": {}}}, "resolved.settings.hidden was 8 and is now not set"),
    ],
)
def test_an_option_that_was_changed_is_named_and_never_accepted(change: dict[str, Any], clause: str) -> None:
    found = differences(**change)
    assert clause in "; ".join(each.what for each in found)
    assert {each.kind for each in found} == {FIXED}
    with pytest.raises(
        FedquiltError, match=r"^The run in x cannot be resumed: .*; put back what it began with, or start"
    ):
        seal.refuse(Path("x"), found, ACCEPTABLE)


@pytest.mark.parametrize(
    ("change", "done", "kind"),
    [
        ({"rounds": 20}, (), PLAN),
        ({"rounds": 5}, (), FIXED),
        ({"rounds": "20"}, (), FIXED),
        ({"rounds": 20}, (0,), FIXED),
        ({"rounds": 20, "dp_clip": 1.0}, (), FIXED),
        ({"patience": 3}, (), PLAN),
        ({"patience": 3}, (1,), FIXED),
        ({"seeds": [0, 1, 2]}, (0, 1), PLAN),
        ({"seeds": [0]}, (), FIXED),
        ({"seeds": [2, 0, 1]}, (), FIXED),
    ],
)
def test_a_longer_plan_can_be_insisted_on_where_it_makes_sense(
    change: dict[str, Any], done: tuple[int, ...], kind: str
) -> None:
    (found,) = differences(done, **change)
    assert found.kind == kind


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = seal.seal_of(CONFIG)
    assert seal.version_differences(facts) == []
    monkeypatch.setattr(seal, "VERSION", "9.9.9")
    (found,) = seal.version_differences(facts)
    assert found == Difference("it was begun with fedquilt 0.1.0 and this is 9.9.9", VERSION_KIND)
    monkeypatch.setattr(seal, "COMPUTE_VERSION", -1)
    assert seal.version_differences(facts)[0].kind == FIXED
    again = seal.renewed(facts, {**CONFIG, "rounds": 20}, ["it was begun with fedquilt 0.1.0"])
    assert seal.version_differences(again) == []
    assert seal.config_differences(again, {**CONFIG, "rounds": 20}) == []
    assert again["accepted"] == ["it was begun with fedquilt 0.1.0"]


def test_a_run_of_a_method_whose_numbers_changed_is_not_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    own, both = seal.seal_of({"method": "fedpub"}), seal.seal_of({"methods": ["fedavg", "fedpub"]})
    other = seal.seal_of({"method": "fedavg"})
    monkeypatch.setattr(methods()["fedpub"], "compute_version", 2)
    for facts, changed in ((own, 1), (both, 1), (other, 0)):
        assert len(seal.version_differences(facts)) == changed
    assert seal.version_differences(seal.seal_of({"method": "fedpub"})) == []


def test_a_run_without_a_seal_has_the_versions_of_its_config() -> None:
    now = {"versions": {"computation": seal.COMPUTE_VERSION}}
    assert [each.kind for each in seal.version_differences(seal.seal_of_earlier(now))] == []
    assert [each.kind for each in seal.version_differences(seal.seal_of_earlier({}))] == [FIXED]  # computation 1
    assert seal.unsealed().kind == UNSEALED


def test_refusing_says_what_to_do() -> None:
    versions = Difference("it was begun with torch 1 and this is 2", VERSION_KIND)
    with pytest.raises(FedquiltError) as caught:
        seal.refuse(Path("runs/x"), [versions])
    assert str(caught.value) == (
        "The run in runs/x cannot be resumed: it was begun with torch 1 and this is 2; insist with --anyway (anyway=True from "
        "Python), or start it again with 'fedquilt run --config runs/x/config.json --out' and a new folder."
    )
    assert seal.refuse(Path("x"), [versions], ACCEPTABLE) == [versions.what]
    assert seal.refuse(Path("x"), []) == []
    with pytest.raises(FedquiltError, match=r"^The comparison in x cannot be resumed: a; b; ask\.$"):
        seal.refuse(Path("x"), [Difference("a"), Difference("b")], ACCEPTABLE, "comparison", "ask")
    with pytest.raises(FedquiltError, match="put back what it began with, or start it again in a new folder"):
        seal.refuse(Path("x"), [Difference("a")], what="comparison")


def test_a_long_value_is_cut_short() -> None:
    (found,) = differences(seeds=list(range(1, 1000)))
    assert len(found.what) < 400


def test_sizes_are_all_that_an_earlier_version_wrote_down() -> None:
    before = {"name": "mine", "nodes": 90, "edges": 7}
    assert seal.size_differences(before, before | {"name": "moved"}) == []
    (found,) = seal.size_differences(before, before | {"edges": 6})
    assert found.what == "the graph changed since it began: it has 6 edges, not 7"
    assert seal.size_differences(None, before) == []


def test_a_seal_is_written_and_read(tmp_path: Path) -> None:
    facts = seal.seal_of(CONFIG, {"graph": {"nodes": "90"}, "cuts": {"0": {"split": "a"}}})
    seal.write_seal(tmp_path, facts)
    assert seal.read_seal(tmp_path, CONFIG) == json.loads(json.dumps(facts))


def test_a_seal_that_is_gone_or_damaged_is_no_run_of_an_earlier_version(tmp_path: Path) -> None:
    assert seal.read_seal(tmp_path, {"versions": {"fedquilt": "0.1.0"}}) is None
    assert seal.read_seal(tmp_path) is None
    with pytest.raises(FedquiltError, match=r"seal\.json is gone, without which nothing shows"):
        seal.read_seal(tmp_path, CONFIG)
    seal.write_seal(tmp_path, seal.seal_of(CONFIG))
    text = (tmp_path / "seal.json").read_text()
    for damaged in (text[:-9], text.replace("20/40/40", "40/30/30"), "{}", text.replace("accepted", "excepted")):
        (tmp_path / "seal.json").write_text(damaged)
        with pytest.raises(
            FedquiltError, match=r"^The seal of the run in .* is damaged: seal\.json|in seal.json were altered"
        ):
            seal.read_seal(tmp_path, CONFIG)
