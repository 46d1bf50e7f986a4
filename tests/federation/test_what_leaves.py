"""What a site is asked and says: hello, permits, the ledger, noise and its budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from flwr.app import Message

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.export.sources import module_of
from fedquilt.federation.coordinator.config import FederationConfig
from fedquilt.federation.coordinator.engine import FlowerEngine
from fedquilt.federation.flower_messages import pack, unpack
from fedquilt.federation.site.config import read_site
from fedquilt.federation.site.examples import write_sites
from fedquilt.federation.site.ledger import Ledger
from fedquilt.federation.site.predict import predict
from fedquilt.messages.wire import decode, encode
from support.federations import ragged_clients
from support.flower_doubles import MemoryGrid, federation, site_models, site_states

SIZES = (25, 14, 31)


def told(path: Path, **more: Any) -> None:
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **more}))


def test_sites_with_other_features_or_classes_are_refused(tmp_path: Path) -> None:
    clients = ragged_clients(SIZES)
    paths = write_sites(tmp_path / "a", clients[:2]) + write_sites(
        tmp_path / "b", ragged_clients((9, 9, 31), classes=5)[2:]
    )
    with pytest.raises(
        FedquiltError, match=r"Site 'site-0' has 3 classes and site 'site-2' has 5; all sites need the same"
    ):
        federation(tmp_path, clients, MemoryGrid(paths), method="fedavg").run()


@pytest.mark.parametrize("what", ["feature", "class"])
def test_sites_whose_names_are_in_another_order_are_refused(what: str, tmp_path: Path) -> None:
    clients = ragged_clients(SIZES)
    size = clients[0].graph.features if what == "feature" else clients[0].graph.classes
    names = tuple(map(str, range(size)))
    for m, client in enumerate(clients):
        named = replace(client.graph, **{f"{what}_names": names if m < 2 else names[::-1]})
        clients[m] = replace(client, graph=named)
    with pytest.raises(FedquiltError, match=f"'site-0' and 'site-2' have other {what} names, or in another order"):
        federation(tmp_path, clients, method="fedavg").run()


def test_a_method_that_a_site_does_not_permit_is_refused_before_training(tmp_path: Path) -> None:
    paths = write_sites(tmp_path, ragged_clients(SIZES))
    told(paths[1], permits=["train_nodes", "figures"])
    with pytest.raises(
        FedquiltError, match=r"'site-1' does not permit 'model.\*' to leave.*all sites permit: local, majority"
    ):
        federation(tmp_path, ragged_clients(SIZES), MemoryGrid(paths), method="fedavg").run()
    assert not (tmp_path / "site-1/state").exists()


def test_a_site_refuses_by_itself_too(tmp_path: Path) -> None:
    """A coordinator that asks all the same gets a sentence."""
    paths = write_sites(tmp_path, ragged_clients(SIZES))
    grid = MemoryGrid(paths)
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", min_sites=2, timeout=1.0)
    there.say = lambda text: told(paths[1], permits=["train_nodes"]) if "sites are there" in text else None
    there.run()
    assert "does not permit 'model.*'" in there.incidents.all[0]["reason"]
    assert there.folder.seed(3).records()[0]["participants"] == [0, 2]


def test_figures_stay_at_home_where_they_are_not_permitted(tmp_path: Path) -> None:
    paths = write_sites(tmp_path, ragged_clients(SIZES))
    told(paths[1], permits=["model", "train_nodes"])
    there = federation(tmp_path, ragged_clients(SIZES), MemoryGrid(paths), method="fedavg")
    there.run()
    assert [r["clients"]["val"][1] for r in there.folder.seed(3).records()] == [None] * 3


def test_where_nobody_says_how_it_stands_the_last_models_are_kept(tmp_path: Path) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES), permits=["model", "train_nodes"]))

    def tell(text: str) -> None:
        if text.startswith("Round 2"):
            raise KeyboardInterrupt

    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4)
    there.say = tell
    with pytest.raises(KeyboardInterrupt):
        there.run()
    again = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4)
    result = again.run()
    assert (result["test_mean"], result["val_mean"], result["seeds"][0]["best_round"]) == (None, None, 3)
    for model, facts in site_models(tmp_path):
        assert (facts["round"], facts["finished"]) == (3, True)
        assert "conv1.weight" in model
    assert predict(read_site(tmp_path / "site-0/site.yaml")).probabilities.shape == (SIZES[0], 3)


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
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
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
        assert predict(read_site(path)).probabilities.shape == (client.graph.nodes, 3)


def test_the_coordinators_folder_is_a_run_without_models(tmp_path: Path) -> None:
    federation(tmp_path, ragged_clients(SIZES), method="fedpub").run()
    run = fedquilt.load_run(tmp_path / "run")
    assert len(run.records[3]) == 3
    assert run.similarities[3]
    with pytest.raises(FedquiltError, match="its clients are sites"):
        module_of(run)
    with pytest.raises(FedquiltError, match="is of sites, which train it"):
        fedquilt.resume(tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(FedquiltError, match="is of sites, which train it"):
        fedquilt.load_run(tmp_path / "run")


PROTECTED = {"clip": 1.0, "noise": 20.0, "delta": 1e-5, "epsilon": 0.85}


def test_noise_is_added_at_the_site_and_its_budget_ends_its_part(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    paths = write_sites(tmp_path, ragged_clients(SIZES))
    told(paths[1], dp=PROTECTED)
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
    assert [record["clients"]["val"][1] for record in records] == [None] * 9  # figures stay at home
    assert all(facts["finished"] for _, facts in site_models(tmp_path))
    sent = next((tmp_path / "site-1/state").glob("*/ledger.jsonl")).read_text().splitlines()
    norms = {x["name"]: x["norm"] for x in map(json.loads, sent) if x["round"] == 0}
    assert norms["model.conv1.weight"] > 20  # 80 entries with noise of standard deviation 20
    assert float(site_states(tmp_path)[1]["model.conv1.weight"].norm()) != norms["model.conv1.weight"]


def test_a_run_ends_when_all_budgets_are_spent(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    paths = write_sites(tmp_path, ragged_clients(SIZES), dp={**PROTECTED, "report": True})
    there = federation(tmp_path, ragged_clients(SIZES), MemoryGrid(paths), method="fedavg", rounds=9)
    there.run()
    records = there.folder.seed(3).records()
    assert 1 <= len(records) < 9
    assert None not in records[-1]["clients"]["val"]  # reported, as they asked for
    assert there.folder.result["seeds"][0]["epsilon"] <= 0.85


def ask(grid: MemoryGrid, node: int, header: dict[str, Any], body: bytes, kind: str = "train") -> tuple[dict, bytes]:
    (reply,) = grid.pull_messages(grid.push_messages([Message(pack(header, body), node, kind)]))
    return unpack(reply.content)


def test_a_coordinator_learns_nothing_from_what_breaks_training(tmp_path: Path) -> None:
    """Weights that overflow where some feature is used: under dp, the site answers as ever, and has paid for it."""
    pytest.importorskip("dp_accounting")
    clients = ragged_clients(SIZES)
    clients[1].graph.x[:, 0] = 0.0
    grid = MemoryGrid(write_sites(tmp_path, clients, dp=PROTECTED))
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
        told(tmp_path / f"site-{m}/site.yaml", dp={**PROTECTED, "epsilon": 0.01})
    said = [ask(grid, 1000 + m, {**header, "client": m, "round": 50}, encode(weights))[0] for m in (0, 1)]
    assert all(one["spent"] for one in said)


def test_an_answer_from_before_the_site_was_protected_is_not_given_again(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    paths = write_sites(tmp_path, ragged_clients(SIZES))
    grid = MemoryGrid(paths)
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=1).run()
    node, last = next(x for x in reversed(grid.sent) if unpack(x[1].content)[0]["kind"] == "round")
    header, body = unpack(last.content)
    before = ask(grid, node, header, body)
    assert ask(grid, node, header, body) == before
    told(paths[node - 1000], dp=PROTECTED)
    after = ask(grid, node, header, body)
    assert after[1] != before[1]
    assert after[0]["figures"] is None
    told(paths[node - 1000], dp=None, permits=["train_nodes"])
    assert "does not permit" in ask(grid, node, header, body)[0]["refused"]
    asked = ask(grid, node, {**header, "method": "local"}, body)
    assert asked[1] != before[1]


def test_figures_of_an_evaluation_are_in_the_ledger(tmp_path: Path) -> None:
    there = federation(tmp_path, ragged_clients(SIZES), method="fedavg", rounds=2, participation=0.5)
    there.run()
    for path in sorted(tmp_path.glob("site-*")):
        lines = Ledger(next((path / "state").glob("*/"))).lines()
        assert {"round": -1, "name": "figures"}.items() <= lines[0].items()


def test_a_model_that_was_never_trained_does_not_replace_one_that_was(tmp_path: Path) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run()
    before = predict(read_site(tmp_path / "site-0/site.yaml")).probabilities
    header = next(unpack(m.content)[0] for _, m in grid.sent if unpack(m.content)[0]["kind"] == "finish")
    said, _ = ask(grid, 1000, {**header, "run": "0123456789abcdef", "best": 0, "client": 0}, b"", "query")
    assert "refused" not in said
    assert (predict(read_site(tmp_path / "site-0/site.yaml")).probabilities == before).all()


@pytest.mark.parametrize(
    "wrong", [{"epochs": 10**9}, {"clients": 10**6}, {"clients": 1}, {"features": 10.0}, {"seed": "x"}], ids=str
)
def test_work_without_end_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run()
    node, last = next(x for x in reversed(grid.sent) if unpack(x[1].content)[0]["kind"] == "round")
    header, body = unpack(last.content)
    said, _ = ask(grid, node, {**header, "task": {**header["task"], **wrong}}, body)
    assert "cannot be read" in said["refused"]


def test_an_answer_with_noise_that_is_asked_for_again_is_the_same_and_costs_nothing(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES), dp={"clip": 1.0, "noise": 20.0, "delta": 1e-5}))
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
    ("values", "says"),
    [
        ({"method": "fedpup"}, "did you mean 'fedpub'"),
        ({"rounds": 0}, "'rounds' is not possible"),
        ({"settings": "{"}, "'settings' is not"),
        ({"metric": "f1"}, "no metric 'f1'"),
        ({"sites": 2, "min-sites": 3}, "min-sites is 3 and there are 2 sites"),
        ({"out": ""}, "'out' is not possible"),
    ],
)
def test_a_wrong_order_gets_a_sentence(values: dict[str, Any], says: str) -> None:
    with pytest.raises(FedquiltError, match=says):
        FederationConfig.read({"out": "run", **values})


def test_robust_aggregation_is_a_setting(tmp_path: Path) -> None:
    there = federation(tmp_path / "a", ragged_clients(SIZES), method="fedavg", aggregation="median")
    there.run()
    plain = federation(tmp_path / "b", ragged_clients(SIZES), method="fedavg")
    plain.run()
    w = "model.conv1.weight"
    assert not torch.equal(site_states(tmp_path / "a")[0][w], site_states(tmp_path / "b")[0][w])
    with pytest.raises(FedquiltError, match="does not average"):
        federation(tmp_path / "c", ragged_clients(SIZES), method="local", aggregation="median").run()


def test_a_robust_average_of_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="at least 3 clients and there are 2"):
        federation(tmp_path, ragged_clients((12, 9)), method="fedavg", aggregation="median").run()


def test_a_coordinator_restarted_after_its_last_round_knows_what_was_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dp_accounting")
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES), dp={**PROTECTED, "epsilon": None}))

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(FlowerEngine, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=2).run()
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=2)
    result = there.run()
    records = there.folder.seed(3).records()
    assert there.folder.seed(3).summary["epsilon"] == records[-1]["epsilon"] == result["seeds"][0]["epsilon"]
