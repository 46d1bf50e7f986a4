"""Sites that are hostile or absent, and a coordinator that is killed: the training of the others goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from google.protobuf.message import DecodeError
from safetensors.torch import save

from fedquilt.federation.flower_messages import pack, unpack
from fedquilt.messages.message import Sparse, Value, dense
from fedquilt.messages.wire import decode, encode
from fedquilt.methods.base import federated_methods
from support.federations import ragged_clients
from support.flower_doubles import MemoryGrid, federation, site_states, write_open_sites
from support.tampering import HOSTILE, W, at, changed, header_of, put, with_content, with_header, with_upload

SIZES = (25, 14, 31)


BAD: dict[str, tuple[Callable, str]] = {
    "nan": (changed(W, put(3, float("nan"))), "not finite"),
    "infinity": (changed(W, put(0, float("inf"))), "not finite"),
    "nan count": (changed("train_nodes", put(0, float("nan"))), "not finite"),
    "wrong shape": (changed(W, lambda t: t[:, :-1]), "of shape"),
    "without its axis": (changed(W, lambda t: t[0]), "of shape"),
    "wrong dtype": (changed(W, lambda t: t.double()), "as float64"),
    "integers": (changed(W, lambda t: t.long()), "as int64"),
    "oversized": (changed(W, lambda t: torch.zeros(1, 4000, 900)), "bytes"),
    "undeclared": (with_upload(lambda m: encode({**m, "secret": torch.ones(1, 2)})), "'secret'"),
    "missing": (with_upload(lambda m: encode({n: t for n, t in m.items() if n != W})), "lacks"),
    "nothing": (with_upload(lambda m: b""), "lacks"),
    "no message": (with_upload(lambda m: b"\x80\x04\x95junk" * 9), "cannot be read"),
    "announces a sparse one": (
        with_upload(lambda m: save(dict(m), metadata={"sparse": json.dumps({W: [2**40]})})),
        "cannot be read",
    ),
    "no header": (with_content(RecordDict({})), "cannot be read"),
    "header is no json": (with_content(RecordDict({"header": ConfigRecord({"json": "{"})})), "cannot be read"),
    "header is a list": (with_content(RecordDict({"header": ConfigRecord({"json": "[1]"})})), "cannot be read"),
    "deep header": (with_content(RecordDict({"header": ConfigRecord({"json": "[" * 60000})})), "cannot be read"),
    "two blobs": (
        with_content(
            RecordDict(
                {
                    "header": ConfigRecord({"json": "{}"}),
                    "body": ArrayRecord({n: Array("uint8", (1,), "safetensors", b"x") for n in "01"}),
                }
            )
        ),
        "cannot be read",
    ),
    "huge": (changed(W, put(2, 3e38)), "larger than 1e+09"),
    "overlong": (changed(W, lambda t: 1e6 * t), "times as long as is usual"),
    "long": (changed(W, lambda t: 900 * t), "times as long as is usual"),
    "large count": (changed("train_nodes", put(0, 1e9)), "which is a count, above 16"),
    "negative count": (changed("train_nodes", put(0, -5.0)), "below zero"),
    "count of nothing": (changed("train_nodes", put(0, 0.0)), "zero throughout"),
    "unpackable": (lambda reply: DecodeError("garbage"), "cannot be read"),
    "no reply": (lambda reply: None, "no answer in time"),
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """The same training when site 1 is not there in round 1."""
    folder = tmp_path_factory.mktemp("alone")
    grid = MemoryGrid(write_open_sites(folder, ragged_clients(SIZES)))
    there = federation(folder, ragged_clients(SIZES), grid, method="fedavg", min_sites=1, timeout=0.3, rounds=3)
    seen: list[int] = []

    def tell(text: str) -> None:
        if text.startswith("Round"):
            seen.append(1)
            grid.offline = {HOSTILE} if len(seen) == 1 else set()

    there.say = tell
    there.run()
    return there, folder


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_upload_is_left_out_and_named(kind: str, alone: tuple[Any, Path], tmp_path: Path) -> None:
    does, says = BAD[kind]
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = at(1, does)
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", min_sites=1, timeout=0.3, rounds=3)
    there.run()
    lines = [json.loads(line) for line in (tmp_path / "run" / "incidents.jsonl").read_text().splitlines()]
    assert [(line["round"], line["site"]) for line in lines] == [(1, "site-1")] * len(lines)
    assert any(says in line["reason"] for line in lines)
    mine, others = there.folder.seed(3).records(), alone[0].folder.seed(3).records()
    assert [r["participants"] for r in mine] == ["all", [0, 2], "all"]
    for m in (0, 2):  # the others train as if the site had not been there
        for one, two in zip(mine, others, strict=True):
            assert one["clients"]["val"][m] == two["clients"]["val"][m]
        for name, tensor in site_states(tmp_path)[m].items():
            if name != "answer":
                assert torch.equal(tensor.nan_to_num(), site_states(alone[1])[m][name].nan_to_num()), name


# Numbers of the right shape that break averages, roots and logarithms, or that no honest site has.
VALUES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "huge": lambda t: torch.full_like(t, 3e38) * (1 - torch.arange(t.numel()).view(t.shape) % 2 * 2),
    "long": lambda t: 1e6 * torch.randn(t.shape, generator=torch.Generator().manual_seed(0)),
    "negative": lambda t: -t.abs() - 1,
    "tiny": lambda t: torch.full_like(t, 1e-44),
    "zero": torch.zeros_like,
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if kind.baseline else [])
        for name, kind in federated_methods().items()
        if kind.uploads
    ],
)
def test_whatever_numbers_a_site_sends_the_others_keep_finite_models(name: str, tmp_path: Path) -> None:
    """Another kind a round, from round 1 on, and a round in which all is well again."""

    def bad(value: Value, kind: str) -> Value:
        tensor = dense(value)
        made = VALUES[kind](tensor.float()).to(tensor.dtype)
        return Sparse(made) if isinstance(value, Sparse) else made

    def does(who: int, message: Message, reply: Message) -> Any:
        for round, kind in enumerate(VALUES, start=1):
            sent = with_upload(lambda m, kind=kind: encode({key: bad(value, kind) for key, value in m.items()}))
            reply = at(round, sent)(who, message, reply)
        return reply

    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = does
    there = federation(tmp_path, ragged_clients(SIZES), grid, method=name, rounds=2 + len(VALUES))
    there.run()
    here = [record["participants"] for record in there.folder.seed(3).records()]
    assert len(here) == there.rounds
    for round, kind in enumerate(VALUES, start=1):
        assert here[round] == [0, 2] or (kind not in ("huge", "long") and here[round] == "all"), kind
    assert {str(here[round]) for round in range(len(here)) if not 1 <= round <= len(VALUES)} == {"all"}
    for state in site_states(tmp_path):
        assert all(bool(torch.isfinite(t).all()) for n, t in state.items() if not n.startswith("figures."))


@pytest.mark.parametrize(
    "header",
    [
        {"figures": [10**400, 0, 0, 0, 1]},
        {"refused": "\ud800"},
        {"refused": "x\n\x1b[2Kfedquilt: done: test 99.99"},
        {"refused": "x", "spent": True},
        {"seconds": {"train": "x"}, "epsilon": "x"},
        {"seconds": [], "epsilon": 10**400},
    ],
    ids=str,
)
def test_whatever_a_site_says_the_others_train_on(header: dict[str, Any], tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = at(1, with_header(header))
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=3)
    there.run()
    records = there.folder.seed(3).records()
    left_out = "refused" in header or str(10**400) in str(header)  # a number of more than 64 bits is not read
    assert [r["participants"] for r in records] == ["all", [0, 2] if left_out else "all", "all"]
    log = (tmp_path / "run" / "incidents.jsonl").read_text() if left_out else ""
    assert "\x1b" not in log
    assert len(log.splitlines()) == left_out


@pytest.mark.parametrize("name", ["fedavg", "fedpub", "quilt", "fedsheafhn"])
@pytest.mark.parametrize("sites", [2, 3])
@pytest.mark.parametrize("protected", [False, True])
def test_one_long_upload_ruins_nobody(name: str, sites: int, protected: bool, tmp_path: Path) -> None:
    """Also where there are two sites, and where the hostile one says that noise makes it so."""
    clients = ragged_clients(SIZES[:sites])

    def does(who: int, message: Message, reply: Message) -> Message:
        if who == HOSTILE and header_of(message)["kind"] == "hello":
            header, body = unpack(reply.content)
            reply.content = pack({**header, "protected": protected}, body)
        if who == HOSTILE and header_of(message).get("round") == 1:
            long = {n: torch.where(dense(v) > 0, 5e8, -5e8) for n, v in decode(unpack(reply.content)[1]).items()}
            counts = {n: torch.ones_like(v) for n, v in long.items() if n.startswith(("train", "seen", "votes"))}
            reply.content = pack(unpack(reply.content)[0], encode({**long, **counts}))
        return reply

    grid = MemoryGrid(write_open_sites(tmp_path, clients))
    grid.tamper = does
    there = federation(tmp_path, clients, grid, method=name, rounds=3)
    there.run()
    assert [r["participants"] for r in there.folder.seed(3).records()][1] == [m for m in range(sites) if m != 1]
    assert "times as long" in next(line["reason"] for line in there.incidents.all if line["round"] == 1)
    # Who says that it adds noise sends ones in place of counts.
    counts = [line["reason"] for line in there.incidents.all if line["round"] == 0]
    assert len(counts) == (protected and name in ("fedavg", "quilt"))
    assert all("which is a count, above 1" in reason for reason in counts)
