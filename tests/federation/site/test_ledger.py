"""The ledger: a line for every tensor that left, whatever kills the process."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.ledger import Ledger
from fedquilt.messages.message import Sparse, TensorSpec, UndeclaredError, message_bytes
from fedquilt.messages.wire import encode
from fedquilt.training.plan import Plan
from support.federations import make_method, make_training, ragged_clients

MODEL = TensorSpec("model.*", "The model.")
NODES = TensorSpec("train_nodes", "How many.")


def test_a_line_for_every_tensor(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "run")
    weight = torch.tensor([[[3.0, 0.0], [0.0, 4.0]]])
    message = {"model.w": weight, "model.s": Sparse(weight), "train_nodes": torch.tensor([7])}
    ledger.write(3, message, (MODEL, NODES))
    first, sparse, count = ledger.lines()
    assert first.pop("at") <= sparse.pop("at") <= count.pop("at")
    assert first == {
        "round": 3,
        "name": "model.w",
        "shape": [2, 2],
        "dtype": "float32",
        "bytes": 16,
        "norm": 5.0,
        "noise": None,
        "reveals": "The model.",
    }
    assert sparse == first | {"name": "model.s", "bytes": 9}
    assert count == {
        "round": 3,
        "name": "train_nodes",
        "shape": [],
        "dtype": "int64",
        "bytes": 8,
        "norm": 7.0,
        "noise": None,
        "reveals": "How many.",
    }
    ledger.write(4, {"train_nodes": torch.tensor([7])}, (NODES,))
    assert Ledger(tmp_path / "run").bytes_by_round() == {3: 33, 4: 8}


def test_its_count_is_the_wires(tmp_path: Path) -> None:
    """What the ledger counts of a real upload is what the spec counts, and what is written but for names and shapes."""
    clients = ragged_clients((12,), sparse=True)
    method = make_method("fedpub", clients, threshold=0.5)
    training = make_training(method, clients, Plan(1))
    uploads, _ = training.engine.round(0, torch.tensor([0]), training.down, evaluate=False)
    Ledger(tmp_path).write(0, uploads, method.uploads)
    counted = sum(line["bytes"] for line in Ledger(tmp_path).lines())
    assert counted == sum(message_bytes(uploads, method.uploads, 1).values())
    written = len(encode({name: v if isinstance(v, Sparse) else v[0] for name, v in uploads.items()}))
    assert counted < written < counted + 200 * len(uploads) + 500


def test_what_was_not_declared_is_not_noted_as_if_it_were(tmp_path: Path) -> None:
    with pytest.raises(UndeclaredError, match="'secret'"):
        Ledger(tmp_path).write(0, {"train_nodes": torch.ones(1), "secret": torch.ones(1)}, (NODES,))
    assert Ledger(tmp_path).lines() == []


def test_a_torn_line_is_dropped_and_the_next_is_whole(tmp_path: Path) -> None:
    Ledger(tmp_path).write(0, {"train_nodes": torch.ones(1)}, (NODES,))
    path = tmp_path / "ledger.jsonl"
    whole = path.read_bytes()
    for cut in (1, len(whole) // 2, len(whole) - 1):  # the last one lacks its line end only
        path.write_bytes(whole + whole[:cut])
        assert [line["round"] for line in Ledger(tmp_path).lines()] == [0]
        Ledger(tmp_path).write(5, {"train_nodes": torch.ones(1)}, (NODES,))
        assert [line["round"] for line in Ledger(tmp_path).lines()] == [0, 5]
        assert all(json.loads(line) for line in path.read_text().splitlines())


def test_an_altered_ledger_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_text('{"round": 0, "name": "a", "bytes": 1}\nnonsense\n{"round": 1}\n')
    with pytest.raises(FedquiltError, match=r"Line 2 of .* is not JSON; the ledger was altered"):
        Ledger(tmp_path).lines()


def test_numbers_that_are_none_are_noted(tmp_path: Path) -> None:
    Ledger(tmp_path).write(0, {"train_nodes": torch.tensor([math.nan])}, (NODES,))
    assert Ledger(tmp_path).lines()[0]["norm"] is None
