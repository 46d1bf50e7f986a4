from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import pytest

from fedquilt.cli.methods import meanings
from fedquilt.methods.base import methods


def test_methods_lists_all_of_them(call: Callable) -> None:
    called = call("methods")
    assert called.status == 0
    for name, method in methods().items():
        assert name in called.out
        assert method.title in called.out


@pytest.mark.parametrize("name", list(methods()))
def test_each_method_tells_its_settings_and_what_it_reveals(call: Callable, name: str) -> None:
    called = call(f"methods {name}")
    assert called.status == 0
    method = methods()[name]
    assert all(field.name in called.out for field in fields(method.Settings))
    text = " ".join(called.out.replace("│", " ").split())
    for spec in (*method.uploads, *method.downloads):
        assert spec.reveals.split(":")[0][:40] in text


@pytest.mark.parametrize("name", list(methods()))
def test_each_method_that_uploads_tells_whether_sums_are_enough(call: Callable, name: str) -> None:
    text, method = " ".join(call(f"methods {name}").out.split()), methods()[name]
    if not method.uploads:
        assert "Secure aggregation" not in text
    elif method.single_uploads:
        assert f"Secure aggregation: no, its {method.single_uploads}." in text
    else:
        assert "Secure aggregation: yes" in text


@pytest.mark.parametrize("name", list(methods()))
def test_each_method_tells_what_it_gives_to_newcomers(call: Callable, name: str) -> None:
    text, method = " ".join(call(f"methods {name}").out.split()), methods()[name]
    assert method.newcomers
    assert f"Clients that come after training: {'' if method.admits else 'none. '}{method.newcomers}" in text
    assert (f"Labels of validation nodes: {method.uses_validation}" in text) == bool(method.uses_validation)


def test_an_unknown_method_is_one_sentence(refused: Callable) -> None:
    assert refused("methods fedpup") == "There is no method 'fedpup'; did you mean 'fedpub'?"


@dataclass(frozen=True)
class Parent:
    """Some settings.

    Attributes:
        lr: the learning
            rate.
        low, high: the ends: both.

    More text: not an attribute.
    """

    lr: float = 0.1


@dataclass(frozen=True)
class Child(Parent):
    """Attributes of its own.

    Attributes:
        lr: another meaning.
    """


def test_meanings_come_from_the_docstrings_of_the_class_and_its_bases() -> None:
    assert meanings(Parent) == {"lr": "the learning rate", "low": "the ends: both", "high": "the ends: both"}
    assert meanings(Child)["lr"] == "another meaning"
    assert meanings(Child)["low"] == "the ends: both"


def test_a_method_that_is_no_federation_is_marked(call: Callable) -> None:
    listed = call("methods").out
    assert "Centralised (no federation)" in listed
    assert "its whole graph" in listed
    told = call("methods centralised")
    assert "It is no federation: features, labels and edges of all clients are in one place" in " ".join(
        told.out.split()
    )
    assert "A client uploads: nothing" not in told.out
