"""Tensors and facts in a sealed pair of files; tests/runs/test_checkpoint.py damages pairs in every way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from fedquilt.common import sealed
from fedquilt.common.sealed import DamagedError, facts_path, read_facts, read_pair, tensor_path, write_facts, write_pair


@pytest.mark.parametrize("large", [True, False])
def test_a_pair_comes_back_read_or_memory_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    monkeypatch.setattr(sealed, "LARGE", 0 if large else 2**28)
    weight = torch.arange(6.0).reshape(2, 3)
    write_pair(tmp_path / "pair", {"w": weight, "transposed": weight.T, "same": weight}, {"round": 3, "é": (1, None)})
    tensors, facts = read_pair(tmp_path / "pair")
    assert torch.equal(tensors["w"], weight)
    assert torch.equal(tensors["transposed"], weight.T)
    assert torch.equal(tensors["same"], weight)
    assert facts == {"round": 3, "é": [1, None]}
    for path in tmp_path.iterdir():  # models and checkpoints are their owner's
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_message_says_what_is_damaged(tmp_path: Path) -> None:
    stem = tmp_path / "pair"
    with pytest.raises(DamagedError, match=r"pair\.json cannot be read"):
        read_pair(stem)
    write_pair(stem, {"w": torch.ones(2)}, {"round": 3})
    facts = facts_path(stem).read_text()
    facts_path(stem).write_text(facts.replace('"round": 3', '"round": 4'))
    with pytest.raises(DamagedError, match=r"the facts in pair\.json were altered"):
        read_pair(stem)
    facts_path(stem).write_text(facts)
    tensor_path(stem).write_bytes(tensor_path(stem).read_bytes() + b"x")
    with pytest.raises(DamagedError, match=r"pair\.safetensors is not the file that pair\.json describes"):
        read_pair(stem)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.ENOMEM])
def test_a_pair_that_cannot_be_opened_now_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Taken for damage, a checkpoint would be passed over and the rounds since the one before it deleted."""
    write_pair(tmp_path / "pair", {"w": torch.ones(2)}, {})

    def refuse(self: Path) -> bytes:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(OSError, match=r"pair\.safetensors"):
        read_pair(tmp_path / "pair")


def test_facts_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "seal.json"
    write_facts(path, {"rounds": 3, "é": (1, None)})
    assert read_facts(path) == {"rounds": 3, "é": [1, None]}
    text = path.read_text()
    for damaged, said in (
        (text.replace("3", "4", 1), r"the facts in seal\.json were altered"),
        (text[:-5], r"seal\.json is not whole"),
        ("[]", r"seal\.json has no facts"),
        ('{"facts": {}}', r"the facts in seal\.json were altered"),
    ):
        path.write_text(damaged)
        with pytest.raises(DamagedError, match=said):
            read_facts(path)


def test_facts_without_tensors_are_no_pair(tmp_path: Path) -> None:
    write_facts(facts_path(tmp_path / "pair"), {"round": 3})
    with pytest.raises(DamagedError, match=r"pair\.json has no hash of the tensors"):
        read_pair(tmp_path / "pair")
