"""A personal model and its facts: saved, restored, and used on another graph."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import TRAIN
from fedquilt.methods.base import methods
from fedquilt.methods.personal_model import Personal, constants_of, model_facts
from fedquilt.tasks.node_classification import labels, training_homophily
from support.federations import make_method, ragged_clients
from support.trained_sites import as_file, logits_of, personal_of, trained


@pytest.mark.parametrize("name", methods())
def test_outputs_on_the_training_graph_are_those_of_training(name: str) -> None:
    method, clients, models = trained(name, rounds=1)
    for client in clients:
        assert torch.allclose(
            personal_of(method, client, models).logits(client.graph), logits_of(method, client, models), atol=1e-5
        )


def test_facts_are_json_and_restore_the_same_model() -> None:
    method, clients, models = trained("fedssa", rounds=1)
    client = replace(clients[1], graph=as_file(clients[1]))
    facts = json.loads(json.dumps(model_facts(method, client, normalise_features=True)))
    personal = Personal.restored({name: w[1] for name, w in models.items()}, facts)
    assert personal.facts() == facts
    assert (personal.method.settings, personal.method.context) == (method.settings, method.context)
    assert (personal.client, personal.normalise_features) == (1, True)
    assert personal.class_names == ("blue", "green", "red")
    assert personal.constants == {"homophily": training_homophily(clients[1])}


def test_a_model_from_before_a_setting_is_what_it_was_then() -> None:
    clients = ragged_clients((20, 12))
    method = make_method("fedhero", clients, projection_layers=1, k=4)
    facts = json.loads(json.dumps(model_facts(method, clients[1])))
    del facts["settings"]["projection_layers"]
    weights = method.personal(method.start(Cohort(clients)))
    personal = Personal.restored({name: w[1] for name, w in weights.items()}, facts)
    personal.check()
    assert personal.method.settings == method.settings
    assert make_method("fedhero", clients).settings.projection_layers == 2


def test_a_model_saved_before_encoders_had_names_has_the_separate_one() -> None:
    method, clients, models = trained("fedssa", rounds=1, encoder="separate")
    facts = json.loads(json.dumps(model_facts(method, clients[0])))
    assert facts["settings"].pop("encoder") == "separate"
    restored = Personal.restored({name: w[0] for name, w in models.items()}, facts)
    assert restored.method.settings.encoder == "separate"
    assert torch.allclose(restored.logits(clients[0].graph), logits_of(method, clients[0], models), atol=1e-5)


def test_constants_are_numbers_of_the_training_graph_whatever_the_graph_at_hand() -> None:
    clients = ragged_clients((20, 12))
    method = make_method("fedssa", clients)
    constants = constants_of(method, clients[0])
    weights = {name: w[0] for name, w in method.personal(method.start(Cohort(clients[:1]))).items()}
    personal = Personal(method, weights, 0, constants)
    (other,) = personal.cohort(clients[1].graph).members
    assert other.once("homophily", training_homophily) == constants["homophily"]
    assert constants_of(make_method("fedssa", clients, basis="chebyshev"), clients[0]) == {}
    with pytest.raises(FedquiltError, match="'filter' is missing where 11 belongs"):
        replace(personal, weights={n: w for n, w in weights.items() if n != "filter"}).logits(clients[1].graph)
    with pytest.raises(FedquiltError, match="saved without the homophily of the graph it was trained on"):
        replace(personal, constants={}).logits(clients[1].graph)


def test_no_node_of_the_graph_at_hand_is_labelled_or_trains() -> None:
    client: Client = ragged_clients((12,))[0]
    assert (client.split == TRAIN).any()
    cohort = Personal(make_method("fedavg", [client]), {}, 4, {}).cohort(client.graph)
    assert cohort.ids.tolist() == [4]
    assert len(cohort.train) == len(cohort.val) == len(cohort.test) == 0
    assert set(labels(cohort).tolist()) == {-1}


def test_facts_that_lack_something_are_one_sentence() -> None:
    method, clients, _ = trained("fedavg", rounds=1)
    facts = model_facts(method, clients[0])
    for name in ("method", "settings", "task", "client"):
        lacking = {key: value for key, value in facts.items() if key != name}
        with pytest.raises(FedquiltError, match="was saved without what is needed to use it"):
            Personal.restored({}, lacking)
