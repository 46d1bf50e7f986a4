"""What a site keeps survives whatever kills it, and stays its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.runs import sealed
from fedquilt.runs.lock import HeldError
from fedquilt.sites.state import SiteState


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
        patched.setattr(sealed, "replacing" if step == "tensors" else "write_json", killed)
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
