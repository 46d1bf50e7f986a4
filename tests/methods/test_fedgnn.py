"""FedGNN: what crosses, what it is used for, and that it is what nodes look like that decides."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.methods import fedgnn
from fedquilt.methods.fedgnn import ALIKE, COUNT, KNOWN, NODES, FedGNN
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import Wiretap, make_method, make_training, ragged_clients

CLIENTS = ragged_clients((25, 14, 31, 9))


def train(rounds: int = 3, participation: float = 1.0, **settings: Any) -> tuple[Training, Wiretap]:
    training = make_training(make_method("fedgnn", CLIENTS, **settings), CLIENTS, Plan(rounds, participation))
    tap = Wiretap(training.engine)
    training.run()
    return training, tap


def personal(**settings: Any) -> dict[str, torch.Tensor]:
    return train(**settings)[0].engine.personal()


def test_what_is_sent() -> None:
    training, tap = train(shared_nodes=12, look_alikes=6)
    method = training.method
    assert isinstance(method, FedGNN)
    for up in tap.ups:
        assert up[COUNT].tolist() == [12, 12, 12, 9]
        assert up[NODES].shape == (4, 12, 8)
        assert not up[NODES][3, 9:].any()
    # The last upload is what the final models say of the sampled nodes: rows of their embeddings.
    cohort = Cohort(CLIENTS)
    z = method.embedding(cohort, training.engine.personal())
    gap = (tap.ups[-1][NODES].unsqueeze(2) - z[cohort.nodes]).abs().amax(3).amin(2)
    assert float(gap[:3].max()) < 1e-6
    for up, down in zip(tap.ups[:-1], tap.downs[1:], strict=True):
        rows = down[ALIKE]
        filled = rows.abs().sum(2) > 0
        assert filled.any()
        for m in range(4):
            others = torch.cat([up[NODES][j] for j in range(4) if j != m])
            for row in rows[m][filled[m]]:
                assert float((others - row).abs().amax(1).min()) == 0.0  # a row that another client sent, as it was
                assert float((F.normalize(up[NODES][m], dim=1) @ F.normalize(row, dim=0)).max()) > 0.5


def test_the_server_knows_the_last_of_those_who_sit_out() -> None:
    training, tap = train(rounds=4, participation=0.5)
    last: dict[int, torch.Tensor] = {}
    for record, up in zip(training.records, tap.ups, strict=True):
        last |= dict(zip(record["participants"], up[NODES], strict=True))
    for m in range(4):
        assert_near(training.server[KNOWN][m], last.get(m, torch.zeros(64, 8)))


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_without_neighbours_it_is_fedavg(model: str) -> None:
    plain = make_training(make_method("fedavg", CLIENTS, model=model), CLIENTS, Plan(3))
    plain.run()
    training, tap = train(neighbours=0, model=model)
    found, usual = training.engine.personal(), plain.engine.personal()
    assert found.keys() == usual.keys()
    assert all(torch.equal(found[name], usual[name]) for name in found)
    assert NODES not in tap.ups[0]
    assert training.records[0].get("diagnostics") is None
    # Nobody is so much alike: the same up to rounding, though embeddings crossed.
    apart = personal(threshold=0.999999, model=model)
    for name, weight in usual.items():
        assert_near(apart[name], weight, 1e-5)


def test_look_alikes_act_and_which_node_they_join_matters() -> None:
    plain, joined, shuffled = personal(neighbours=0), personal(), personal(shuffle=True)
    name = "conv2.weight"
    assert float((joined[name] - plain[name]).abs().max()) > 1e-3
    assert float((joined[name] - shuffled[name]).abs().max()) > 1e-3
    records = train()[0].records
    assert records[-1]["diagnostics"]["nodes_above_threshold"] > 0.5
    assert records[-1]["diagnostics"]["look_alikes"] > 5


def test_look_alikes_are_part_of_the_personal_model() -> None:
    training, _ = train()
    method, own = training.method, training.engine.personal()
    cohort = Cohort(CLIENTS)
    without = own | {ALIKE: torch.zeros_like(own[ALIKE])}
    assert float((method.logits(own, cohort) - method.logits(without, cohort)).abs().max()) > 1e-2
    assert_near(method.logits(without, cohort), method.model(cohort, own).logits)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_has_its_scale_and_is_drawn_anew_each_round(kind: str) -> None:
    clean = train(rounds=1)[1].ups[0][NODES]
    _, tap = train(noise=0.5, noise_kind=kind, bound=0.2, rounds=2, lr=1e-9)
    first, second = tap.ups[0][NODES], tap.ups[1][NODES]
    real = first.abs().sum(2) > 0
    assert real.sum(1).tolist() == [25, 14, 31, 9]
    assert clean[~real].abs().sum() == 0
    drawn = (first - second)[real] / (0.5 * 0.2)  # models stay as they are: a difference of two draws
    assert float(drawn.var()) == pytest.approx(2.0 if kind == "gaussian" else 4.0, rel=0.2)
    assert abs(float(drawn.mean())) < 0.2


def test_many_embeddings_are_a_pool_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    method = make_method("fedgnn", CLIENTS)
    assert isinstance(method, FedGNN)
    assert method.pool(torch.tensor([0]), fedgnn.POOL) is None
    monkeypatch.setattr(fedgnn, "POOL", 20)
    one, same, two = (method.pool(torch.tensor([turn]), 60) for turn in (0, 0, 1))
    assert one is not None
    assert len(set(one.tolist())) == 20
    assert torch.equal(one, same)
    assert one.tolist() != two.tolist()
    assert float(personal()[ALIKE].abs().max()) > 0.0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model": "gat"}, "model=gcn or model=sage, not gat"),
        ({"layers": 1}, "needs layers=2 or more"),
        ({"threshold": 1.5}, "threshold=1.5 of method 'fedgnn'"),
        ({"threshold": 0.0}, "threshold=0.0 of method 'fedgnn'"),
        ({"neighbours": -1}, "neighbours=-1 of method 'fedgnn'"),
    ],
    ids=str,
)
def test_bad_settings_are_one_sentence(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(FedquiltError, match=says):
        make_method("fedgnn", CLIENTS, **settings)
