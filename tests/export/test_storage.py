"""Exported modules on disk: two files, no pickle, and one sentence for whatever is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fedquilt.common.sealed import read_pair, write_pair
from fedquilt.errors import FedquiltError
from fedquilt.export.module import PersonalModule
from fedquilt.export.sources import module_of_personal
from fedquilt.export.storage import load_module, save_module
from fedquilt.methods.base import methods
from support.trained_sites import personal_of, trained


@pytest.fixture
def module() -> PersonalModule:
    method, clients, models = trained("fedavg", rounds=1)
    return module_of_personal(personal_of(method, clients[0], models))


@pytest.mark.parametrize("name", methods())
def test_a_saved_module_is_the_same_module(name: str, tmp_path: Path) -> None:
    method, clients, models = trained(name, rounds=1)
    module, data = module_of_personal(personal_of(method, clients[0], models)), clients[0].graph.to_data()
    module.class_names = ("blue", "green", "red")
    save_module(module, tmp_path / "model")
    again = load_module(tmp_path / "model")
    assert torch.equal(again(data), module(data))
    assert again.class_names == module.class_names
    assert again.personal.facts() == module.personal.facts() | {"class_names": ["blue", "green", "red"]}
    assert not again.training
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "model.safetensors"]


def test_the_json_says_what_the_model_is(module: PersonalModule, tmp_path: Path) -> None:
    save_module(module, tmp_path)
    facts = json.loads((tmp_path / "model.json").read_text())["facts"]
    assert facts["format"] == 2
    assert (facts["method"], facts["client"], facts["constants"]) == ("fedavg", 0, {})
    assert (facts["settings"]["model"], facts["settings"]["hidden"]) == ("gcn", 8)
    assert (facts["task"]["features"], facts["task"]["classes"], facts["normalise_features"]) == (10, 3, False)


def test_a_module_that_was_trained_further_is_saved_as_it_is(module: PersonalModule, tmp_path: Path) -> None:
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(1.0)
    save_module(module, tmp_path)
    for name, weight in load_module(tmp_path).state_dict().items():
        assert torch.equal(weight, module.state_dict()[name])


def test_what_cannot_be_read_is_one_sentence(module: PersonalModule, tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="There is no exported model in"):
        load_module(tmp_path)
    with pytest.raises(FedquiltError, match="A Linear cannot be saved here"):
        save_module(torch.nn.Linear(1, 1), tmp_path)  # type: ignore[arg-type]
    save_module(module, tmp_path)
    weights, facts = read_pair(tmp_path / "model")

    def altered(said: str, **changes: object) -> None:
        write_pair(tmp_path / "model", weights, facts | changes)
        with pytest.raises(FedquiltError, match=said):
            load_module(tmp_path)

    altered("There is no method 'fedavgg'; did you mean 'fedavg'", method="fedavgg")
    altered("There is no setting of fedavg 'width'", settings=facts["settings"] | {"width": 3})
    altered("hidden='wide' of method 'fedavg' is not possible", settings=facts["settings"] | {"hidden": "wide"})
    altered("saved without what is needed", task={"features": 10})
    altered("does not describe a model", task=facts["task"] | {"features": "many"})
    altered("'classifier.weight' is 8x3 where 9x3 belongs", settings=facts["settings"] | {"hidden": 9})
    altered("is not one that this version of fedquilt can read", format=99)
    save_module(module, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(FedquiltError, match="cannot be used"):
        load_module(tmp_path)


def test_an_absurd_size_is_refused_before_it_is_made(module: PersonalModule, tmp_path: Path) -> None:
    save_module(module, tmp_path)
    weights, facts = read_pair(tmp_path / "model")
    write_pair(tmp_path / "model", weights, facts | {"task": facts["task"] | {"features": 10**12}})
    with pytest.raises(FedquiltError, match="not those of its network"):
        load_module(tmp_path)
