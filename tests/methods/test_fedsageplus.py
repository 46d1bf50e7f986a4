"""FedSage+: the generator's phase, who is asked and who answers, and what the mended graph changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.methods.fedsageplus import GENERATOR, FedSagePlus, cycle
from fedquilt.nn.node_sample import sample_nodes
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near, dense_features
from support.federations import Wiretap, make_method, make_training, ragged_clients

CLIENTS = ragged_clients((25, 14, 31, 9))
SMALL = {
    "generated": 5,
    "generator_rounds": 6,
    "generator_epochs": 2,
    "encoder": 6,
    "code": 4,
    "shared_nodes": 12,
    "impairments": 2,
}


def train(rounds: int = 2, participation: float = 1.0, **settings: Any) -> tuple[Training, Wiretap]:
    method = make_method("fedsageplus", CLIENTS, **SMALL | settings)
    training = make_training(method, CLIENTS, Plan(rounds, participation))
    tap = Wiretap(training.engine)
    training.run()
    return training, tap


def personal(**settings: Any) -> dict[str, torch.Tensor]:
    return train(**settings)[0].engine.personal()


def test_the_generator_comes_first_and_is_not_evaluated() -> None:
    training, tap = train()
    assert [record["phase"] for record in training.records] == ["generator"] * 6 + ["training"] * 2
    assert ["val" in record for record in training.records] == [False] * 6 + [True] * 2
    asks = [any(name.startswith("ask.") for name in up) for up in tap.ups]
    answers = [any(name.startswith("answer.") for name in up) for up in tap.ups]
    assert asks == [True] * 4 + [False] * 4  # a later question would be answered too late
    assert answers == [False] + [True] * 4 + [False] * 3
    assert tap.downs[6] == {}
    assert {name.split(".")[0] for name in tap.ups[7]} == {"model", "train_nodes"}


def test_questions_go_to_another_client_and_answers_come_back() -> None:
    _, tap = train()
    whom: list[list[int]] = []
    for round in range(1, 5):
        sent, basis = tap.ups[round - 1]["ask.basis"], tap.downs[round]["peer.basis"]
        owner = [next(j for j in range(4) if torch.equal(basis[m], sent[j])) for m in range(4)]
        assert sorted(owner) == [0, 1, 2, 3]
        assert all(j != m for m, j in enumerate(owner))
        for m, j in enumerate(owner):
            assert torch.equal(tap.downs[round]["peer.rows"][m], tap.ups[round - 1]["ask.rows"][j])
            for name in ("basis", "codes.weight", "codes.bias"):
                assert torch.equal(tap.downs[round + 1]["reply." + name][j], tap.ups[round]["answer." + name][m])
        whom.append(owner)
    assert len({tuple(owner) for owner in whom}) > 1  # not the same one in every round
    assert [float(tap.ups[round]["answer.basis"].abs().max()) > 0 for round in range(1, 5)] == [True] * 4


def test_an_answer_is_the_gradient_at_the_nodes_of_the_one_who_answers() -> None:
    """By a small change of one number of the asking client's basis."""
    training, tap = train()
    method = training.method
    assert isinstance(method, FedSagePlus)
    cohort = Cohort(CLIENTS)
    down = {name: tensor.clone() for name, tensor in tap.downs[3].items() if name.startswith("peer.")}
    answer = method.answer(cohort, down)
    for name, grad in answer.items():
        assert_near(grad, tap.ups[3][name], 1e-5)
    step = 0.2 * answer["answer.basis"] / answer["answer.basis"].flatten(1).norm(dim=1).view(-1, 1, 1)
    loss = {}
    for sign in (-1.0, 0.0, 1.0):
        moved = down | {"peer.basis": down["peer.basis"] + sign * step}
        loss[sign] = apart(method, cohort, moved)
    assert (loss[-1.0] < loss[0.0]).all()
    assert (loss[0.0] < loss[1.0]).all()


def apart(method: FedSagePlus, cohort: Cohort, down: dict[str, torch.Tensor]) -> torch.Tensor:
    """Each client's mean distance from what it was sent to the nearest of its sample, with the features written out."""
    sample, out = sample_nodes(cohort, method.context.seed, 12, 48), []
    for m, client in enumerate(cohort.members):
        x = torch.from_numpy(dense_features(client))
        own = x[sample.index[m][sample.real[m]] - int(cohort.start[m])]
        rows = down["peer.rows"][m][: int(down["peer.count"][m])]
        flat = torch.tanh(rows @ down["peer.codes.weight"][m] + down["peer.codes.bias"][m]).view(len(rows) * 5, 4)
        made = torch.nn.functional.pad(flat, (0, 1), value=1.0) @ down["peer.basis"][m]
        out.append((made.unsqueeze(1) - own).square().sum(2).amin(1).mean())
    return torch.stack(out)


def test_without_generated_neighbours_it_is_fedsage() -> None:
    plain = make_training(make_method("fedsage", CLIENTS), CLIENTS, Plan(2))
    plain.run()
    training, _ = train(generated=0)
    found, usual = training.engine.personal(), plain.engine.personal()
    assert found.keys() == usual.keys()
    assert all(torch.equal(found[name], usual[name]) for name in found)
    assert len(training.records) == 2
    assert [spec.name for spec in training.method.sent_uploads()] == ["model.*", "train_nodes"]


def test_generated_neighbours_others_answers_and_whose_they_are_matter() -> None:
    whole, home, shuffled, plain = (personal(**s) for s in ({}, {"cross": 0.0}, {"shuffle": True}, {"generated": 0}))

    def gap(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor], name: str) -> float:
        return float((one[name] - two[name]).abs().max())

    assert gap(whole, plain, "conv2.weight") > 1e-3
    assert gap(whole, shuffled, "conv2.weight") > 1e-3
    assert gap(whole, home, GENERATOR + "basis") > 1e-3
    assert gap(whole, shuffled, GENERATOR + "basis") == 0.0


def test_nothing_of_nodes_is_sent_where_generators_learn_at_home() -> None:
    training, tap = train(cross=0.0)
    assert {name.split(".")[0] for up in tap.ups for name in up} == {"quality", "model", "train_nodes"}
    assert not [spec.name for spec in training.method.sent_uploads() if spec.nodes]
    assert [spec.name for spec in make_method("fedsageplus", CLIENTS).sent_uploads() if spec.nodes] == [
        "ask.rows",
        "ask.basis",
        "answer.*",
    ]


def test_a_generator_learns_what_was_hidden() -> None:
    """Measured on nodes that were hidden in no draw that it learned from."""
    training, _ = train(generator_rounds=16, generator_epochs=4, rounds=1, encoder=16, impairments=4, cross=0.0)
    notes = [record["diagnostics"] for record in training.records]
    assert notes[-1]["feature_loss"] < min(0.7, 0.95 * notes[0]["feature_loss"])  # generating zeros: 1
    assert notes[-1]["number_loss"] < notes[0]["number_loss"]
    assert notes[-1]["number_correlation"] > max(0.3, notes[0]["number_correlation"])


def test_a_model_mends_any_graph_by_its_own_generator() -> None:
    training, _ = train()
    method, own = training.method, training.engine.personal()
    cohort = Cohort(CLIENTS)
    changed = own | {GENERATOR + "basis": own[GENERATOR + "basis"] + 0.5}
    assert float((method.logits(own, cohort) - method.logits(changed, cohort)).abs().max()) > 1e-3
    made = method.mended(own, cohort)
    assert 0 < float(made.count[torch.from_numpy(cohort.taken)].mean()) <= 5


def test_a_cycle_leads_through_all_and_is_another_in_every_turn() -> None:
    found = [cycle(7, 3, torch.tensor([turn])).tolist() for turn in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    at, seen = 0, []
    for _ in range(7):
        seen.append(at := found[0][at])
    assert sorted(seen) == list(range(7))


def test_one_client_alone_is_asked_nothing() -> None:
    method = make_method("fedsageplus", CLIENTS[:1], **SMALL)
    training = make_training(method, CLIENTS[:1], Plan(1))
    tap = Wiretap(training.engine)
    training.run()
    assert not any(up["answer.basis"].any() for up in tap.ups if "answer.basis" in up)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model": "gcn"}, r"FedSage\+ trains GraphSAGE, not gcn"),
        ({"hidden_share": 1.0}, "hidden_share=1.0 of method 'fedsageplus'"),
        ({"generated": 6}, "generated=6 of method 'fedsageplus'"),
        ({"generator_rounds": 0}, "generator_rounds=0 of method 'fedsageplus'"),
    ],
    ids=str,
)
def test_bad_settings_are_one_sentence(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(FedquiltError, match=says):
        make_method("fedsageplus", CLIENTS, **settings)


def test_the_question_of_an_absent_client_waits_and_so_does_its_answer() -> None:
    method = make_method("fedsageplus", CLIENTS, **SMALL)
    server, _ = method.server_start()
    cohort, everyone = Cohort(CLIENTS), torch.arange(4)
    state = method.start(cohort)
    asked = method.local_update(state, cohort, {}, 0).upload
    first = method.aggregate(server, dict(asked), everyone, everyone)
    answers = method.local_update(state, cohort, first, 1).upload
    owner = server["asked"].clone()
    # Clients 1 and 3 answer and ask; 0 and 2 are away.
    some, back = torch.tensor([1, 3]), torch.tensor([0, 2])
    sent = {name: value[some] for name, value in answers.items()}
    down = method.aggregate(server, sent, some, some)
    for row, client in enumerate(some.tolist()):
        from_whom = [place for place, m in enumerate(some.tolist()) if int(owner[m]) == client]
        right = sent["answer.basis"][from_whom[0]] if from_whom else torch.zeros_like(sent["answer.basis"][0])
        assert torch.equal(down["reply.basis"][row], right)
        peer = int(server["asked"][client])
        asks = answers if peer in (1, 3) else asked  # what an absent client asked last
        assert torch.equal(down["peer.rows"][row], asks["ask.rows"][peer])
    for client in back.tolist():  # an answer to who is away is kept until it is back
        from_whom = [m for m in some.tolist() if int(owner[m]) == client]
        right = answers["answer.basis"][from_whom[0]] if from_whom else torch.zeros_like(answers["answer.basis"][0])
        assert torch.equal(server["reply.basis"][client], right)


def test_who_missed_the_first_phase_mends_nothing() -> None:
    method = make_method("fedsageplus", CLIENTS, **SMALL)
    cohort, state = Cohort(CLIENTS), method.start(Cohort(CLIENTS))
    trained = method.start(cohort)
    method.local_update(trained, cohort, {}, 0)
    for name in (name for name in state if name.startswith(GENERATOR)):
        state[name][1:] = trained[name][1:]  # client 0 was away
        state[name][0] += 1.0 if name == GENERATOR + "number.bias" else 0.0
    made = method.mended(method.personal(state), cohort)
    own = cohort.client == 0
    assert not made.count[own].any()
    assert not made.codes[own].any()
    plain = make_method("fedsage", CLIENTS)
    weights = plain.personal(plain.start(cohort))
    logits = method.logits(method.personal(state) | weights, cohort)
    assert torch.allclose(logits[own], plain.logits(weights, cohort)[own], atol=1e-6)
