"""Sites that are absent, slow, restarted or hostile, and a coordinator that is killed: the others' training goes on."""

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

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.finite_aggregation import FiniteAggregation
from fedquilt.federation.flower_messages import pack, unpack
from fedquilt.federation.message_checks import overlong_uploads
from fedquilt.federation.site.examples import write_sites
from fedquilt.messages.message import Sparse, Value, dense
from fedquilt.messages.wire import decode, encode
from fedquilt.methods.base import find_method, methods
from support.federations import ragged_clients, without_seconds
from support.flower_doubles import MemoryGrid, federation, site_models, site_states

SIZES = (25, 14, 31)
HOSTILE = 1001  # the node of site-1


def header_of(message: Message) -> dict[str, Any]:
    return unpack(message.content)[0]


def at(round: int, does: Callable[[Message], Message | None], node: int = HOSTILE) -> Callable:
    """Tamper with what a node replies in one round."""

    def tamper(who: int, message: Message, reply: Message) -> Message | None:
        header = header_of(message)
        return does(reply) if (who, header.get("kind"), header.get("round")) == (node, "round", round) else reply

    return tamper


def with_upload(change: Callable[[dict], bytes]) -> Callable[[Message], Message]:
    def does(reply: Message) -> Message:
        header, body = unpack(reply.content)
        reply.content = pack(header, change(decode(body)))
        return reply

    return does


def with_header(said: dict[str, Any]) -> Callable[[Message], Message]:
    def does(reply: Message) -> Message:
        header, body = unpack(reply.content)
        reply.content = pack({**header, **said}, body)
        return reply

    return does


def with_content(content: RecordDict) -> Callable[[Message], Message]:
    def does(reply: Message) -> Message:
        reply.content = content
        return reply

    return does


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable:
    return with_upload(lambda m: encode({**m, name: change(m[name])}))


def put(index: int, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[index] = value
        return tensor

    return change


W = "model.conv1.weight"
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
    "negative count": (changed("train_nodes", put(0, -5.0)), "below zero"),
    "count of nothing": (changed("train_nodes", put(0, 0.0)), "zero throughout"),
    "unpackable": (lambda reply: DecodeError("garbage"), "cannot be read"),
    "no reply": (lambda reply: None, "no answer in time"),
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """The same training when site 1 is not there in round 1."""
    folder = tmp_path_factory.mktemp("alone")
    grid = MemoryGrid(write_sites(folder, ragged_clients(SIZES)))
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
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
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


@pytest.mark.parametrize("name", sorted(set(methods()) - {"local", "majority"}))
@pytest.mark.parametrize("kind", VALUES)
def test_whatever_numbers_a_site_sends_the_others_keep_finite_models(name: str, kind: str, tmp_path: Path) -> None:
    def bad(value: Value) -> Value:
        tensor = dense(value)
        made = VALUES[kind](tensor.float()).to(tensor.dtype)
        return Sparse(made) if isinstance(value, Sparse) else made

    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = at(1, with_upload(lambda m: encode({name: bad(value) for name, value in m.items()})))
    there = federation(tmp_path, ragged_clients(SIZES), grid, method=name, rounds=4)
    there.run()
    expected = [0, 2] if kind in ("huge", "long") else there.folder.seed(3).records()[1]["participants"]
    assert [r["participants"] for r in there.folder.seed(3).records()] == ["all", expected, "all", "all"]
    for state in site_states(tmp_path):
        assert all(bool(torch.isfinite(t).all()) for n, t in state.items() if not n.startswith("figures."))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({W: torch.full((10, 8), torch.nan)}, f"The download has numbers in '{W}' that are not finite"),
        ({W: torch.full((10, 8), 3e38)}, f"The download has numbers in '{W}' that are larger than 1e+09"),
        ({W: torch.zeros(10, 9)}, f"The download has '{W}' of shape [10, 9], not [10, 8]"),
        ({W: torch.zeros(10, 8).double()}, f"The download has '{W}' as float64, not float32"),
        ({"secret": torch.zeros(1)}, "The download has 'secret', which the method does not send"),
        (None, "The download cannot be read"),
        (
            {W: torch.full((10, 8), 1e12), "model.conv2.weight": torch.full((8, 8), 1e12)}
            | {"model.classifier.weight": 1e12 * torch.eye(8, 3)},
            "gave no finite numbers; the site keeps what it had",
        ),
    ],
)
def test_a_site_does_not_take_everything_from_its_coordinator(
    change: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "gave no" in says:  # such weights do not even get there
        monkeypatch.setattr("fedquilt.federation.message_checks.LARGEST", 1e13)
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=3).run()
    before = site_states(tmp_path)[0]
    node, last = next(x for x in reversed(grid.sent) if header_of(x[1])["kind"] == "round")
    header, body = unpack(last.content)
    body = b"\x80\x04junk" * 9 if change is None else encode({**decode(body), **change})
    (reply,) = grid.pull_messages(grid.push_messages([Message(pack({**header, "round": 3}, body), node, "train")]))
    answer, sent = unpack(reply.content)
    assert says in answer["refused"]
    assert sent == b""
    after = site_states(tmp_path)[0]
    assert all(torch.equal(after[name].nan_to_num(), tensor.nan_to_num()) for name, tensor in before.items())


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
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = at(1, with_header(header))
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=3)
    there.run()
    records = there.folder.seed(3).records()
    assert [r["participants"] for r in records] == ["all", [0, 2] if "refused" in header else "all", "all"]
    log = (tmp_path / "run" / "incidents.jsonl").read_text() if "refused" in header else ""
    assert "\x1b" not in log
    assert len(log.splitlines()) == ("refused" in header)


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
            counts = {n: torch.ones_like(v) for n, v in long.items() if n.startswith(("train", "seen"))}
            reply.content = pack(unpack(reply.content)[0], encode({**long, **counts}))
        return reply

    grid = MemoryGrid(write_sites(tmp_path, clients))
    grid.tamper = does
    there = federation(tmp_path, clients, grid, method=name, rounds=3)
    there.run()
    assert [r["participants"] for r in there.folder.seed(3).records()][1] == [m for m in range(sites) if m != 1]
    assert "times as long" in there.incidents.all[0]["reason"]


def test_what_the_server_cannot_go_on_from_is_undone() -> None:
    """Each upload passes by itself; the server's step does not."""

    class Squaring:
        uploads = find_method("fedavg").uploads

        def aggregate(self, server: dict, uploads: dict, senders: torch.Tensor, receivers: torch.Tensor) -> dict:
            server["seen"] += len(senders)
            if bool((dense(uploads[W]) > 5).any()):
                raise torch.linalg.LinAlgError("no roots")
            return {W: torch.exp(dense(uploads[W]).sum(0) ** 3)}

    told: list[tuple[int, str]] = []
    guarded = FiniteAggregation(Squaring(), lambda m, why: told.append((m, why)))  # type: ignore[arg-type]
    server = {"seen": torch.zeros(1)}
    uploads = {W: Sparse(torch.tensor([[1.0], [9.0], [4.9], [0.5]]))}
    down = guarded(server, uploads, torch.tensor([2, 3, 5, 7]), torch.arange(8))
    assert told == [(3, "leads to numbers that are not finite"), (5, "leads to numbers that are not finite")]
    assert float(down[W]) == pytest.approx(float(torch.exp(torch.tensor(1.5**3))))
    assert float(server["seen"]) == 2
    with pytest.raises(FedquiltError, match="No upload of this round"):
        guarded(server, {W: torch.tensor([[9.0]])}, torch.tensor([2]), torch.arange(8))
    assert float(server["seen"]) == 2


def test_a_site_that_could_not_say_hello_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedquilt.federation.coordinator.roster.RETRY_SECONDS", 0.0)
    failed: list[int] = []

    def fail_once(who: int, message: Message, reply: Message) -> Message:
        if who == HOSTILE and not failed:
            failed.append(who)
            reply.content = pack({"refused": "The site failed; its own log says why."})
        return reply

    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = fail_once
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg")
    there.run()
    assert failed
    assert [r["participants"] for r in there.folder.seed(3).records()] == ["all"] * 3


def test_uploads_with_noise_are_compared_with_others_that_have_noise() -> None:
    specs = find_method("fedavg").uploads
    uploads = {m: {W: torch.full((1, 4), size), "train_nodes": torch.ones(1)} for m, size in enumerate((1.0, 1.0, 1e5))}
    assert set(overlong_uploads(uploads, specs, set(), 1000.0)) == {2}
    assert overlong_uploads(uploads, specs, {2}, 2000.0) == {}  # noise may make it longer, up to a limit
    assert set(overlong_uploads(uploads, specs, {2}, 200.0)) == {2}
    assert set(overlong_uploads(uploads, specs, {0, 1, 2}, 1000.0)) == {2}
    assert set(overlong_uploads({0: uploads[0], 2: uploads[2]}, specs, set(), 1000.0)) == {2}
    assert (
        overlong_uploads({0: uploads[0], 1: {**uploads[1], "train_nodes": torch.full((1,), 1e9)}}, specs, set(), 2.0)
        == {}
    )
    quiet = {m: {W: torch.full((1, 4), size)} for m, size in enumerate((0.0, 0.0, 100.0))}
    assert overlong_uploads(quiet, specs, set(), 1000.0) == {}  # those that have nothing to say are no measure


@pytest.mark.parametrize(("min_sites", "goes_on"), [(0, True), (2, True), (3, False)])
def test_a_bad_upload_stops_a_run_only_where_it_insists_on_all_sites(
    min_sites: int, goes_on: bool, tmp_path: Path
) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = at(1, BAD["nan"][0])
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", min_sites=min_sites)
    if goes_on:
        there.run()
        assert [r["participants"] for r in there.folder.seed(3).records()] == ["all", [0, 2], "all"]
    else:
        with pytest.raises(FedquiltError, match="from 2 of 3 sites and needs 3"):
            there.run()


@pytest.mark.parametrize("figures", [[0.1, 0.1, 7.0, 0.5, 1.0], [0.1, 0.1, 0.5, 0.5, 0.0], ["x"] * 5, [1.0], "x"])
def test_figures_that_cannot_be_right_are_left_out(figures: Any, tmp_path: Path) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = at(1, with_header({"figures": figures}))
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=3)
    there.run()
    records = there.folder.seed(3).records()
    assert [r["participants"] for r in records] == ["all"] * 3
    assert [r["clients"]["val"][1] is None for r in records] == [False, True, False]


def test_a_round_waits_for_sites_that_it_needs(tmp_path: Path) -> None:
    """A reply is lost: the site is asked again, gives the same answer, and nothing is lost or done twice."""
    lost: list[int] = []

    def lose(who: int, message: Message, reply: Message) -> Message | None:
        if who == HOSTILE and header_of(message).get("round") == 1 and not lost:
            lost.append(who)
            return None
        return reply

    grid = MemoryGrid(write_sites(tmp_path / "a", ragged_clients(SIZES)))
    grid.tamper = lose
    there = federation(tmp_path / "a", ragged_clients(SIZES), grid, method="fedpub", timeout=0.5, rounds=4)
    there.run()
    plain = federation(tmp_path / "b", ragged_clients(SIZES), method="fedpub", rounds=4)
    plain.run()
    assert lost
    assert without_seconds(there.folder.seed(3).records()) == without_seconds(plain.folder.seed(3).records())
    ledger = [
        json.loads(x) for x in next((tmp_path / "a/site-1/state").glob("*/ledger.jsonl")).read_text().splitlines()
    ]
    assert sum(line["name"] == W and line["round"] == 1 for line in ledger) == 1


def test_too_few_sites_stop_the_run_with_a_sentence(tmp_path: Path) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = at(2, lambda reply: None)
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", timeout=0.3, tries=2, rounds=4)
    with pytest.raises(FedquiltError, match="Round 2 got uploads that can be used from 2 of 3 sites and needs 3"):
        there.run()
    # ... and with the site there again it goes on, and ends as if nothing had been.
    grid.tamper = lambda who, message, reply: reply
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", timeout=0.3, tries=2, rounds=4).run()
    plain = federation(tmp_path / "b", ragged_clients(SIZES), method="fedavg", rounds=4)
    plain.run()
    assert without_seconds(there.folder.seed(3).records()) == without_seconds(plain.folder.seed(3).records())
    for mine, other in zip(site_models(tmp_path), site_models(tmp_path / "b"), strict=True):
        assert all(torch.equal(mine[0][name], other[0][name]) for name in other[0])


class KilledError(Exception):
    pass


@pytest.mark.parametrize("name", ["fedavg", "fedpub", "fedssa", "fedsheafhn", "quilt"])
@pytest.mark.parametrize("when", ["in a round", "after a round"])
def test_a_killed_coordinator_goes_on(name: str, when: str, tmp_path: Path) -> None:
    plain = federation(tmp_path / "b", ragged_clients(SIZES), method=name, rounds=4)
    plain.run()
    grid = MemoryGrid(write_sites(tmp_path / "a", ragged_clients(SIZES)))

    def die(who: int, message: Message, reply: Message) -> Message | None:
        if (who, header_of(message).get("round")) == (1001, 2):  # two sites have trained, the third has not
            raise KilledError
        return reply

    there = federation(tmp_path / "a", ragged_clients(SIZES), grid, method=name, rounds=4)
    if when == "in a round":
        grid.tamper = die
    else:

        def tell(text: str) -> None:
            if text.startswith("Round 3"):
                raise KilledError

        there.say = tell
    with pytest.raises(KilledError):
        there.run()
    grid.tamper = lambda who, message, reply: reply
    again = federation(tmp_path / "a", ragged_clients(SIZES), grid, method=name, rounds=4)
    again.run()
    assert without_seconds(again.folder.seed(3).records()) == without_seconds(plain.folder.seed(3).records())
    for mine, other in zip(site_states(tmp_path / "a"), site_states(tmp_path / "b"), strict=True):
        assert all(torch.equal(mine[n].nan_to_num(), other[n].nan_to_num()) for n in other if n != "answer")
    for mine, other in zip(site_models(tmp_path / "a"), site_models(tmp_path / "b"), strict=True):
        assert mine[1]["round"] == other[1]["round"]
        assert all(torch.equal(mine[0][n], other[0][n]) for n in other[0])
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    first = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run()
    sent = len(grid.sent)
    assert federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run() == first
    assert len(grid.sent) == sent
    with pytest.raises(FedquiltError, match="another method"):
        federation(tmp_path, ragged_clients(SIZES), grid, method="fedprox").run()


def test_an_old_request_is_refused(tmp_path: Path) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4).run()
    before = site_states(tmp_path)
    old = next(m for node, m in grid.sent if header_of(m).get("round") == 1 and node == 1000)
    grid.push_messages([old])
    (reply,) = grid.pull_messages([old.metadata.message_id])
    assert "has gone on since" in unpack(reply.content)[0]["refused"]
    assert torch.equal(site_states(tmp_path)[0][W], before[0][W])


def test_a_site_that_comes_back_as_another_node_is_known_again(tmp_path: Path) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4)

    def tell(text: str) -> None:
        if text.startswith("Round 2"):
            grid.offline = {1002}
            grid.sites[2002] = grid.sites[1002]

    there.say = tell
    there.run()
    plain = federation(tmp_path / "b", ragged_clients(SIZES), method="fedavg", rounds=4)
    plain.run()
    assert without_seconds(there.folder.seed(3).records()) == without_seconds(plain.folder.seed(3).records())


def test_nobody_takes_the_name_of_a_site_that_is_there(tmp_path: Path) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    grid.sites[3000] = grid.sites[1000]
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg")
    there.run()
    assert [line["what"] for line in there.incidents.all] == ["turned away"]
    assert there.roster.nodes["site-0"] == 1000
