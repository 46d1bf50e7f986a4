"""What every registered method keeps to, and that a new one is a class and a decorator."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from dataclasses import dataclass, fields

import pytest
import torch

from fedquilt import api
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, UndeclaredError, declared
from fedquilt.methods.base import find_method, methods, register
from fedquilt.methods.base_adam import AdamMethod
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.settings import BackboneSettings, Positive, build_settings
from fedquilt.tasks.node_classification import labels
from fedquilt.training.plan import Plan
from support.federations import Wiretap, make_method, make_task, make_training, ragged_clients, registered

NAMES = list(methods())
TRAINED = [name for name in NAMES if issubclass(find_method(name), AdamMethod)]


def test_the_methods_are_there() -> None:
    assert {"local", "fedavg", "fedprox", "fedper", "fedpub", "majority"} <= set(NAMES)
    assert sorted(NAMES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_method_says_what_it_is(name: str) -> None:
    method = find_method(name)
    assert method.name == name
    assert method.title
    assert method.__doc__
    text = sys.modules[method.__module__].__doc__ or ""
    assert text.startswith(f"{method.title}: ")
    year = re.search(r"\b(19|20)\d\d\b", method.paper)
    if year is None:  # only baselines, which federate nothing, come without a paper
        assert not method.uploads
        assert not method.downloads
    else:
        assert method.paper.split(" et al.")[0] in text
        assert year[0] in text


@pytest.mark.parametrize("name", NAMES)
def test_what_crosses_is_declared_in_a_sentence(name: str) -> None:
    for spec in find_method(name).uploads + find_method(name).downloads:
        assert spec.reveals[0].isupper()
        assert spec.reveals.endswith(".")
        assert len(spec.reveals) > 20
    assert not any(spec.shared for spec in find_method(name).uploads)


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_frozen_and_documented(name: str) -> None:
    cls = find_method(name).Settings
    assert dataclasses.is_dataclass(cls)
    settings = cls()
    for field in fields(cls):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(settings, field.name, 1)
    # A field is described where it is declared, or where a subclass changes its default.
    for home in (c for c in cls.__mro__ if dataclasses.is_dataclass(c)):
        own = inspect.get_annotations(home)
        described = (inspect.getdoc(home) or "").partition("Attributes:\n")[2]
        for field_name in own:
            assert re.search(rf"^    (?:\w+, )*{field_name}(?:, \w+)*: \S", described, re.M), f"{home}: {field_name}"


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_setting_names_the_nearest(name: str) -> None:
    method, clients = find_method(name), ragged_clients()
    with pytest.raises(FedquiltError) as caught:
        build_settings(method, make_task(clients), {"hiden": 3})
    if name in TRAINED:
        assert str(caught.value) == f"There is no setting of {name} 'hiden'; did you mean 'hidden'?"
    else:
        assert str(caught.value) == f"Method '{name}' has no settings, so 'hiden' cannot be set; leave it out."


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("hidden", 0),
        ("hidden", 2.5),
        ("hidden", "wide"),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("lr", 0),
        ("lr", "fast"),
        ("weight_decay", -1e-3),
        ("epochs", 0),
        ("lr", None),
    ],
)
@pytest.mark.parametrize("name", TRAINED)
def test_a_wrong_setting_is_one_sentence(name: str, setting: str, value: object) -> None:
    with pytest.raises(FedquiltError) as caught:
        build_settings(find_method(name), make_task(ragged_clients()), {setting: value})
    text = str(caught.value)
    assert text.startswith(f"The setting {setting}={value!r} of method '{name}' is not possible: ")
    assert text.endswith(".")
    assert "\n" not in text


@pytest.mark.parametrize("name", TRAINED)
def test_epochs_are_the_tasks_unless_the_user_says(name: str) -> None:
    context = make_task(ragged_clients(), epochs=4)
    assert build_settings(find_method(name), context, {}).epochs == 4
    assert build_settings(find_method(name), context, {"epochs": 2}).epochs == 2


def test_two_methods_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="the method 'fedavg' is registered twice"):
        register("fedavg")(FedAvg)
    assert find_method("fedavg") is FedAvg


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(FedquiltError, match="There is no method 'fedpup'; did you mean 'fedpub'\\?"):
        find_method("fedpup")


# -- a method of one's own ---------------------------------------------------------------------------


@dataclass(frozen=True)
class HalfwaySettings(BackboneSettings):
    """FedAvg's settings and one more.

    Attributes:
        pull: how far clients move toward the average.
    """

    pull: Positive = 0.5


class Halfway(FedAvg):
    """Clients move only some of the way to the average."""

    title = "Halfway"
    paper = "this test"
    Settings = HalfwaySettings

    def receive(self, state: dict, down: Message) -> None:
        for name, value in down.items():
            state[name].lerp_(value, self.settings.pull)


def test_a_new_method_is_a_class_and_a_decorator() -> None:
    assert "halfway" not in methods()  # asked before it is registered, so that no list is kept from then
    with registered(Halfway, "halfway"):
        assert find_method("halfway") is Halfway
        run = api.run(
            "halfway",
            clients=3,
            rounds=3,
            device="cpu",
            settings={"hidden": 8, "pull": 0.25},
            participation=0.6,
            cohort_size=2,
        )
        assert run.result["method"] == "halfway"
        assert len(run.records[0]) == 3
        assert run.models[0]["conv1.weight"].shape == (3, 200, 8)
        with pytest.raises(FedquiltError, match="did you mean 'pull'"):
            api.run("halfway", clients=3, rounds=1, settings={"pul": 1})
        # pull=1 is FedAvg.
        clients = ragged_clients()
        trainings = [
            make_training(make_method(name, clients, **more), clients, Plan(3))
            for name, more in (("halfway", {"pull": 1.0}), ("fedavg", {}))
        ]
        for training in trainings:
            training.run()
        one, two = (training.engine.personal() for training in trainings)
        assert all(torch.allclose(one[name], two[name], atol=1e-6) for name in one)
    with pytest.raises(FedquiltError):
        find_method("halfway")


class Leaky(FedAvg):
    """Sends labels that it did not declare."""

    title, paper = "Leaky", "this test"
    aggregated = 0

    def upload(self, state: dict, personal: dict, cohort: Cohort, down: Message) -> Message:
        return super().upload(state, personal, cohort, down) | {"labels": labels(cohort)}

    def aggregate(self, *arguments: object) -> Message:
        Leaky.aggregated += 1
        return super().aggregate(*arguments)


@pytest.mark.parametrize("cohort_size", [None, 1])
def test_an_undeclared_upload_is_stopped_before_anything_is_aggregated(cohort_size: int | None) -> None:
    clients = ragged_clients()
    with registered(Leaky, "leaky"):
        training = make_training(make_method("leaky", clients), clients, Plan(2), cohort_size)
        tap = Wiretap(training.engine)
        with pytest.raises(UndeclaredError, match="Method 'leaky' tried to upload 'labels', which it did not declare"):
            training.run()
    assert Leaky.aggregated == 0
    assert not tap.ups
    assert not training.records


class Chatty(FedAvg):
    """Whose server sends something that it did not declare."""

    title, paper = "Chatty", "this test"

    def aggregate(self, *arguments: object) -> Message:
        return super().aggregate(*arguments) | {"gossip": torch.zeros(1)}


def test_an_undeclared_download_is_stopped_before_it_reaches_a_client() -> None:
    clients = ragged_clients()
    with registered(Chatty, "chatty"):
        training = make_training(make_method("chatty", clients), clients, Plan(3))
        tap = Wiretap(training.engine)
        with pytest.raises(UndeclaredError, match="Method 'chatty' tried to download 'gossip'"):
            training.run()
    assert len(tap.downs) == 1


@pytest.mark.parametrize("name", NAMES)
def test_all_that_crosses_is_declared_and_has_the_participants_first(name: str) -> None:
    clients = ragged_clients()
    method = make_method(name, clients)
    training = make_training(method, clients, Plan(3, participation=0.6))
    tap = Wiretap(training.engine)
    training.run()
    for messages, specs in ((tap.ups, method.uploads), (tap.downs, method.downloads)):
        for message in messages:
            for key, tensor in message.items():
                spec: TensorSpec | None = declared(specs, key)
                assert spec is not None
                assert spec.shared or tensor.shape[0] == 3
    assert all(method.sends(key) for message in tap.ups for key in message)
    assert not method.sends("gossip")
