"""What a site answers in a run: uploads, refusals, noise and its budget, the ledger, repeated answers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message

from fedquilt.federation.flower_messages import pack, unpack
from fedquilt.federation.protocol import ROUND, Request
from fedquilt.federation.site.config import read_site
from fedquilt.federation.site.ledger import Ledger
from fedquilt.federation.site.predict import predict
from fedquilt.federation.site.request_handler import RequestHandler
from fedquilt.federation.site.run_client import RunClient
from fedquilt.federation.site.site import open_site
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.messages.wire import decode, encode
from fedquilt.methods.fedavg import FedAvg
from support.federations import make_method, make_task, ragged_clients, registered
from support.flower_doubles import MemoryGrid, ask, edit_site, federation, site_models, site_states, write_open_sites
from support.tampering import W, header_of

SIZES = (25, 14, 31)


def test_a_site_refuses_by_itself_too(tmp_path: Path) -> None:
    """A coordinator that asks all the same gets a sentence."""
    paths = write_open_sites(tmp_path, ragged_clients(SIZES))
    grid = MemoryGrid(paths)
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", min_sites=2, timeout=1.0)
    there.say = lambda text: edit_site(paths[1], permits=["train_nodes"]) if "sites are there" in text else None
    there.run()
    assert "does not permit 'model.conv1.weight'" in there.incidents.all[0]["reason"]
    assert there.folder.seed(3).records()[0]["participants"] == [0, 2]


def test_metrics_are_not_sent_where_they_are_not_permitted(tmp_path: Path) -> None:
    paths = write_open_sites(tmp_path, ragged_clients(SIZES))
    edit_site(paths[1], permits=["model", "train_nodes"])
    there = federation(tmp_path, ragged_clients(SIZES), MemoryGrid(paths), method="fedavg")
    there.run()
    assert [r["clients"]["val"][1] for r in there.folder.seed(3).records()] == [None] * 3


@pytest.mark.parametrize("settings", [{}, {"threshold": 0.5}])
def test_the_ledger_has_every_byte_that_the_coordinator_counts(settings: dict[str, Any], tmp_path: Path) -> None:
    there = federation(tmp_path, ragged_clients(SIZES), method="fedpub", settings=settings)
    there.run()
    lines = [Ledger(next((path / "state").glob("*/"))).lines() for path in sorted(tmp_path.glob("site-*"))]
    for record in there.folder.seed(3).records():
        left = [x for site in lines for x in site if x["round"] == record["round"]]
        for name, count in record["bytes_up"].items():
            assert sum(x["bytes"] for x in left if x["name"] == name) == count
        assert {x["name"] for x in left} == {*record["bytes_up"], "figures"}


def test_what_crosses_is_what_is_counted_and_little_more(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    replies: list[int] = []

    def weigh(node: int, message: Any, reply: Any) -> Any:
        header, body = unpack(reply.content)
        if "figures" in header:
            replies.append(len(body) + len(json.dumps(header)))
        return reply

    grid.tamper = weigh
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", settings={"hidden": 256}, rounds=2)
    there.run()
    counted = sum(sum(r["bytes_up"].values()) for r in there.folder.seed(3).records())
    assert counted < sum(replies) < 1.01 * counted


def test_a_site_predicts_with_the_model_it_left_with(tmp_path: Path) -> None:
    federation(tmp_path, ragged_clients(SIZES), method="fedpub").run()
    for path, client in zip(sorted(tmp_path.glob("site-*/site.yaml")), ragged_clients(SIZES), strict=True):
        assert predict(read_site(path)).values.shape == (client.graph.nodes, 3)


PROTECTED = {"clip": 1.0, "noise": 20.0, "delta": 1e-5, "epsilon": 0.85}


def test_noise_is_added_at_the_site_and_its_budget_ends_its_part(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    paths = write_open_sites(tmp_path, ragged_clients(SIZES))
    edit_site(paths[1], dp=PROTECTED)
    there = federation(
        tmp_path, ragged_clients(SIZES), MemoryGrid(paths), method="fedpub", rounds=9, settings={"threshold": 0.5}
    )
    there.run()
    records = there.folder.seed(3).records()
    there_too = [record["participants"] == "all" for record in records]
    assert 1 <= sum(there_too) < 9 == len(records)
    assert there_too == sorted(there_too, reverse=True)  # and then never again: the others go on
    assert [line["what"] for line in there.incidents.all] == ["budget"]
    assert records[-1]["epsilon"] <= 0.85
    assert records[0]["epsilon"] < records[-1]["epsilon"]
    assert there.folder.seed(3).summary["epsilon"] == records[-1]["epsilon"]
    assert [record["clients"]["val"][1] for record in records] == [None] * 9  # no metrics are sent
    assert all(facts["finished"] for _, facts in site_models(tmp_path))
    sent = next((tmp_path / "site-1/state").glob("*/ledger.jsonl")).read_text().splitlines()
    norms = {x["name"]: x["norm"] for x in map(json.loads, sent) if x["round"] == 0}
    assert norms["model.conv1.weight"] > 20  # 80 entries with noise of standard deviation 20
    assert float(site_states(tmp_path)[1]["model.conv1.weight"].norm()) != norms["model.conv1.weight"]


def test_a_coordinator_learns_nothing_from_what_breaks_training(tmp_path: Path) -> None:
    """Weights that overflow where some feature is used: under dp, the site answers as ever, and has paid for it."""
    pytest.importorskip("dp_accounting")
    clients = ragged_clients(SIZES)
    clients[1].graph.x[:, 0] = 0.0
    grid = MemoryGrid(write_open_sites(tmp_path, clients, dp=PROTECTED))
    federation(tmp_path, clients, grid, method="fedavg", rounds=1).run()
    header = next(unpack(m.content)[0] for _, m in grid.sent if unpack(m.content)[0]["kind"] == "round")
    weights = {n: torch.zeros(t.shape[1:]) for n, t in site_states(tmp_path)[0].items() if n.startswith("model.")}
    weights["model.conv1.weight"][0] = 1e9
    for name in ("conv2", "classifier"):
        weights[f"model.{name}.weight"].fill_(1e9)
    answers = []
    for m in (0, 1):
        spent = json.loads((tmp_path / f"site-{m}/state/privacy.json").read_text())["uploads"]
        answers.append(ask(grid, 1000 + m, {**header, "client": m, "round": 1}, encode(weights)))
        assert json.loads((tmp_path / f"site-{m}/state/privacy.json").read_text())["uploads"] == spent + 1
    for said, sent in answers:
        assert "refused" not in said
        assert said["figures"] is None
        assert len(sent) == len(answers[0][1])
        assert all(bool(torch.isfinite(tensor).all()) for tensor in decode(sent).values())
    assert all(bool(torch.isfinite(t).all()) for n, t in site_states(tmp_path)[0].items() if n.startswith("model."))
    # Nor from a method that sends nothing, with settings that break its training.
    alone = {
        **header,
        "run": "0123456789abcdef",
        "method": "local",
        "settings": {"lr": 3e38, "hidden": 8, "epochs": 3},
        "round": 0,
    }
    assert ask(grid, 1000, alone, b"")[0].keys() == answers[0][0].keys()
    while "refused" not in (last := ask(grid, 1000, {**header, "round": header["round"] + 2}, encode(weights))[0]):
        header = {**header, "round": header["round"] + 1}
    assert last["spent"]
    for m in (0, 1):  # now that nothing is left: the same sentence whatever the data is
        edit_site(tmp_path / f"site-{m}/site.yaml", dp={**PROTECTED, "epsilon": 0.01})
    said = [ask(grid, 1000 + m, {**header, "client": m, "round": 50}, encode(weights))[0] for m in (0, 1)]
    assert all(one["spent"] for one in said)


def test_nothing_is_paid_for_what_may_not_leave(tmp_path: Path) -> None:
    """Five requests for a method that the site does not permit: five refusals, no folder, and no epsilon."""
    pytest.importorskip("dp_accounting")
    (path,) = write_open_sites(tmp_path, ragged_clients(SIZES[:1]), dp=PROTECTED, permits=["model.conv", "train_nodes"])
    for round in range(5):
        said, upload = RequestHandler().reply(str(path), {**first_round("fedper"), "round": round}, b"")
        assert "does not permit 'model.conv1.weight'" in said["refused"]
        assert upload == b""
    budget = open_site(path).budget
    assert (budget.spent(), budget.uploads) == (0.0, 0)
    assert not (tmp_path / "site-0/state" / RUN).exists()
    edit_site(path, permits=["model.conv*", "train_nodes"])
    said, upload = RequestHandler().reply(str(path), first_round("fedper"), b"")
    assert "refused" not in said
    assert budget.uploads == 1
    assert {line["paid"] for line in Ledger(tmp_path / "site-0/state" / RUN).lines()} == {1}


def test_nothing_is_paid_where_nothing_leaves(tmp_path: Path) -> None:
    """AdaFGL sends nothing in its second phase."""
    pytest.importorskip("dp_accounting")
    (path,) = write_open_sites(tmp_path, ragged_clients(SIZES[:1]), dp=PROTECTED)
    said, upload = RequestHandler().reply(str(path), {**first_round("adafgl"), "round": 4}, b"")
    assert "refused" not in said
    assert decode(upload) == {}
    assert open_site(path).budget.uploads == 0


class Odd(FedAvg):
    """What it sends beside its declared weights depends on the data: under dp, that must not show."""

    def upload(self, state: Any, personal: Any, cohort: Any, down: Any) -> Any:
        sent = super().upload(state, personal, cohort, down)
        own = int(cohort.nodes.sum()) == SIZES[0]
        return {name: value for name, value in sent.items() if "bias" not in name} if own else sent


def test_an_upload_of_another_form_leaves_as_noise(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    with registered(Odd, "odd"):
        (path,) = write_open_sites(tmp_path, ragged_clients(SIZES[:1]), dp=PROTECTED)
        said, upload = RequestHandler().reply(str(path), first_round("odd"), b"")
        expected = set(RunClient(open_site(path), Request.from_header(first_round("odd"))).expected.upload_names)
    assert "refused" not in said
    assert set(decode(upload)) == expected
    assert any("bias" in name for name in expected)


def test_an_answer_from_before_the_site_was_protected_is_not_given_again(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    paths = write_open_sites(tmp_path, ragged_clients(SIZES))
    grid = MemoryGrid(paths)
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=1).run()
    node, last = next(x for x in reversed(grid.sent) if unpack(x[1].content)[0]["kind"] == "round")
    header, body = unpack(last.content)
    before = ask(grid, node, header, body)
    assert ask(grid, node, header, body) == before
    edit_site(paths[node - 1000], dp=PROTECTED)
    after = ask(grid, node, header, body)
    assert after[1] != before[1]
    assert after[0]["figures"] is None
    edit_site(paths[node - 1000], dp=None, permits=["train_nodes"])
    assert "does not permit" in ask(grid, node, header, body)[0]["refused"]
    asked = ask(grid, node, {**header, "method": "local"}, body)
    assert asked[1] != before[1]


def test_metrics_of_an_evaluation_are_in_the_ledger(tmp_path: Path) -> None:
    there = federation(tmp_path, ragged_clients(SIZES), method="fedavg", rounds=2, participation=0.5)
    there.run()
    for path in sorted(tmp_path.glob("site-*")):
        lines = Ledger(next((path / "state").glob("*/"))).lines()
        assert {"round": -1, "name": "figures"}.items() <= lines[0].items()


def test_a_model_that_was_never_trained_does_not_replace_one_that_was(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run()
    before = predict(read_site(tmp_path / "site-0/site.yaml")).values
    header = next(unpack(m.content)[0] for _, m in grid.sent if unpack(m.content)[0]["kind"] == "finish")
    said, _ = ask(grid, 1000, {**header, "run": "0123456789abcdef", "best": 0, "client": 0}, b"", "query")
    assert "refused" not in said
    assert (predict(read_site(tmp_path / "site-0/site.yaml")).values == before).all()


@pytest.mark.parametrize(
    "wrong", [{"epochs": 10**9}, {"clients": 10**6}, {"clients": 1}, {"features": 10.0}, {"seed": "x"}], ids=str
)
def test_work_without_end_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run()
    node, last = next(x for x in reversed(grid.sent) if unpack(x[1].content)[0]["kind"] == "round")
    header, body = unpack(last.content)
    said, _ = ask(grid, node, {**header, "task": {**header["task"], **wrong}}, body)
    assert "cannot be read" in said["refused"]


def test_an_answer_with_noise_that_is_asked_for_again_is_the_same_and_costs_nothing(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES), dp={"clip": 1.0, "noise": 20.0, "delta": 1e-5}))
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=2)
    there.run()
    last = next(m for node, m in reversed(grid.sent) if unpack(m.content)[0]["kind"] == "round" and node == 1000)
    spent = (tmp_path / "site-0/state/privacy.json").read_text()
    bodies = []
    for _ in range(2):
        grid.push_messages([last])
        bodies.append(unpack(grid.pull_messages([last.metadata.message_id])[0].content)[1])
    assert bodies[0] == bodies[1] != b""
    assert (tmp_path / "site-0/state/privacy.json").read_text() == spent


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
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
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


def test_an_old_request_is_refused(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4).run()
    before = site_states(tmp_path)
    old = next(m for node, m in grid.sent if header_of(m).get("round") == 1 and node == 1000)
    grid.push_messages([old])
    (reply,) = grid.pull_messages([old.metadata.message_id])
    assert "has gone on since" in unpack(reply.content)[0]["refused"]
    assert torch.equal(site_states(tmp_path)[0][W], before[0][W])


# -- one process at a time -------------------------------------------------------------------------

RUN = "0123456789abcdef"
ANSWER = """
import json, sys
from pathlib import Path
from fedquilt.federation.site.request_handler import RequestHandler

site, request, out = sys.argv[1:]
handler = RequestHandler()
print("ready", flush=True)
sys.stdin.readline()
header, body = handler.reply(site, json.loads(Path(request).read_text()), b"")
Path(out).write_bytes(json.dumps(header).encode() + b"\\n" + body)
"""
HOLD = """
import sys, time
from fedquilt.federation.site.state import SiteState
with SiteState(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(600)
"""


def first_round(name: str = "fedavg") -> dict[str, Any]:
    """The header of a request for round 0 of a run with one site."""
    clients = ragged_clients(SIZES[:1])
    method = make_method(name, clients, make_task(clients))
    context = method.context.to_dict()
    return {"version": 1, **Request(ROUND, RUN, 0, 0, -1, 0, 5, name, {"hidden": 8}, context).to_header()}


@pytest.mark.e2e
def test_two_processes_give_one_answer(tmp_path: Path) -> None:
    """Both are asked for the same round at once: the site trains, pays and notes it once, and answers twice."""
    pytest.importorskip("dp_accounting")
    (site,) = write_open_sites(tmp_path, ragged_clients(SIZES[:1]), dp=PROTECTED)
    (tmp_path / "request").write_text(json.dumps(first_round()))
    started = []
    for n in range(2):
        command = [sys.executable, "-c", ANSWER, str(site), str(tmp_path / "request"), str(tmp_path / f"answer-{n}")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(command, text=True, **pipes))
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        process.communicate(timeout=120)
    answers = [(tmp_path / f"answer-{n}").read_bytes() for n in range(2)]
    assert b"refused" not in answers[0]
    assert answers[0] == answers[1]
    assert json.loads((tmp_path / "site-0/state/privacy.json").read_text())["uploads"] == 1
    names = [line["name"] for line in Ledger(tmp_path / "site-0/state" / RUN).lines()]
    assert len(names) == len(set(names)) > 1


def test_a_site_that_works_in_another_process_refuses_and_later_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedquilt.federation.site.run_client.LOCK_SECONDS", 0.1)
    (site,) = write_open_sites(tmp_path, ragged_clients(SIZES[:1]))
    handler, request = RequestHandler(), first_round()
    command = [sys.executable, "-c", HOLD, str(tmp_path / "site-0/state" / RUN)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            refused, body = handler.reply(str(site), request, b"")
            hello, _ = handler.reply(str(site), {"version": 1, "kind": "hello"}, b"")
            another, _ = handler.reply(str(site), {**request, "run": "f" * 16}, b"")
        finally:
            other.kill()
    assert refused == {"refused": "Another process of this site is working on a request of this run."}
    assert body == b""
    assert hello["name"] == "site-0"
    assert "refused" not in another  # another run is another folder
    answer, upload = handler.reply(str(site), request, b"")
    assert "refused" not in answer
    assert decode(upload)


def test_a_client_is_kept_for_the_requests_of_its_run(tmp_path: Path) -> None:
    (path,) = write_open_sites(tmp_path, ragged_clients(SIZES[:1]))
    site, request = open_site(path), Request.from_header(first_round())
    client = RunClient(site, request)
    assert client.serves(replace(request, round=3, kind="evaluate", best=2))
    for change in ({"run": "f" * 16}, {"client": 1}, {"settings": {"hidden": 8.0}}, {"method": "fedprox"}):
        assert not client.serves(replace(request, **change))


@pytest.mark.parametrize("part", ["labels", "split"])
def test_a_site_does_not_go_on_with_another_graph(tmp_path: Path, part: str, caplog: pytest.LogCaptureFixture) -> None:
    clients = ragged_clients(SIZES)
    paths = write_open_sites(tmp_path, clients)

    def stop(text: str) -> None:
        if text.startswith("Round 2"):
            raise KeyboardInterrupt

    there = federation(tmp_path, clients, MemoryGrid(paths), method="fedavg", rounds=3, min_sites=2, timeout=1.0)
    there.say = stop
    with pytest.raises(KeyboardInterrupt):
        there.run()
    graph = read_npz(tmp_path / "site-1" / "graph.npz")
    masks = dict(graph.masks or {})
    if part == "labels":
        other = replace(graph, y=graph.y[::-1].copy())
    else:
        other = replace(graph, masks={**masks, "train": masks["test"], "test": masks["train"]})
    write_npz(other, tmp_path / "site-1" / "graph.npz")
    again = federation(tmp_path, clients, MemoryGrid(paths), method="fedavg", rounds=3, min_sites=2, timeout=1.0)
    again.run()
    said = (tmp_path / "run" / "incidents.jsonl").read_text()
    assert "The graph or the split of this site is not the one with which it trained in this run" in said
    assert part not in said.replace("the split of this site", "")  # what changed stays at the site
    assert part in caplog.text
    assert again.folder.seed(3).records()[2]["participants"] == [0, 2]
