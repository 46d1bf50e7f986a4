"""What a site keeps survives whatever kills it, and stays its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedquilt.common import sealed
from fedquilt.common.lock import HeldError
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.ledger import Ledger
from fedquilt.federation.site.state import SiteState
from fedquilt.messages.message import TensorSpec


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"mask.w": torch.full((1, 3), value)}


def test_rounds_come_back(tmp_path: Path) -> None:
    state = SiteState(tmp_path / "state")
    assert state.load() is None
    assert state.oldest() is None
    for round in range(4):
        state.save(round, tensors(round), {"answer": round})
    round, kept, facts = SiteState(tmp_path / "state").load() or pytest.fail("nothing kept")
    assert (round, facts) == (3, {"answer": 3})
    assert torch.equal(kept["mask.w"], torch.full((1, 3), 3.0))
    before = state.load(before=3)
    assert before is not None
    assert before[0] == 2
    assert state.load(before=2) is None  # two are kept
    oldest = state.oldest()
    assert oldest is not None
    assert oldest[0] == 2
    state.save(2, tensors(20), {})  # the round is done again: what came after it is void
    newest = state.load()
    assert newest is not None
    assert newest[0] == 2


def test_a_damaged_round_is_passed_over(tmp_path: Path) -> None:
    state = SiteState(tmp_path)
    state.save(0, tensors(0), {})
    state.save(1, tensors(1), {})
    newest = sorted((tmp_path / "rounds").glob("*.safetensors"))[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    kept = state.load()
    assert kept is not None
    assert kept[0] == 0


@pytest.mark.parametrize("step", ["tensors", "seal"])
def test_a_kill_while_a_model_is_saved_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    state = SiteState(tmp_path)
    for value in (1.0, 2.0):
        state.save_model(tensors(value), {"round": value})

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sealed, "replacing" if step == "tensors" else "write_private_json", killed)
        with pytest.raises(KeyboardInterrupt):
            state.save_model(tensors(3.0), {"round": 3.0})
    kept = state.load_model()
    assert kept is not None
    assert torch.equal(kept[0]["mask.w"], tensors(2.0)["mask.w"])
    assert kept[1] == {"round": 2.0}
    state.save_model(tensors(4.0), {"round": 4.0})
    kept = state.load_model()
    assert kept is not None
    assert kept[1] == {"round": 4.0}
    assert len(list((tmp_path / "model").glob("*.json"))) == 2


def test_the_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    SiteState(tmp_path / "state").save(0, tensors(0), {})
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("what", ["state", "lock", "ledger"])
def test_so_is_the_state_folder_whatever_makes_it(tmp_path: Path, what: str) -> None:
    run = tmp_path / "home" / "state" / "run-1"
    if what == "state":
        SiteState(run).save(0, tensors(0), {})
    elif what == "lock":
        with SiteState(run).lock():
            pass
    else:
        Ledger(run).write(0, {"mask.w": torch.ones(1, 3)}, (TensorSpec("mask.*", "The mask."),))
    assert (mode(run), mode(run.parent)) == (0o700, 0o700)
    assert mode(run.parent.parent) & 0o055  # what is above it is not the site's


def test_a_state_folder_that_was_there_is_closed_unless_it_holds_other_things(tmp_path: Path) -> None:
    made, runs, shared = tmp_path / "made", tmp_path / "runs", tmp_path / "shared"
    for folder in (made, runs, shared):
        folder.mkdir()
        folder.chmod(0o755)
    (runs / "privacy.json").write_text("{}")
    SiteState(runs / "run-0").save(0, tensors(0), {})
    runs.chmod(0o755)
    (runs / "run-0").chmod(0o755)
    (shared / "site.yaml").write_text("")
    for folder in (made, runs, shared):
        SiteState(folder / "run-1").save(0, tensors(0), {})
        assert mode(folder / "run-1") == 0o700
    assert [mode(folder) for folder in (made, runs, shared)] == [0o700, 0o700, 0o755]
    SiteState(runs / "run-0").save(1, tensors(0), {})
    assert mode(runs / "run-0") == 0o700


def test_there_is_no_model_before_one_is_saved(tmp_path: Path) -> None:
    state = SiteState(tmp_path)
    assert state.load_model() is None
    assert state.model_time is None
    state.save_model(tensors(1), {})
    assert state.model_time is not None


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with SiteState(tmp_path).lock(), pytest.raises(HeldError), SiteState(tmp_path).lock():
        pass


def test_a_place_that_cannot_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedquiltError, match="cannot be written to"):
        SiteState(tmp_path / "file").save(0, tensors(0), {})
