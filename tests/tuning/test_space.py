from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter

from fedquilt.datasets.catalogue import datasets
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import RunContext, find_method, methods
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.settings import AdamSettings, BackboneSettings, build_settings
from fedquilt.tuning.space import DECAYS, Choice, Range, parse_space, read_space, rule, usual_space
from support.federations import registered

TASK = RunContext("cora", "disjoint", "accuracy", 10, 3, 10, 1, 0)


USUAL = ("lr", "weight_decay", "dropout")
# What methods are searched in, beside the usual settings; those that are not here have settings of their own, too.
OWN: dict[str, tuple[str, ...] | None] = {
    "majority": None,
    "local": ("hidden",),
    "fedavg": ("hidden",),
    "fedprox": ("hidden", "mu"),
    "fedper": ("hidden",),
    "fedpub": ("hidden", "tau", "l1", "proximal"),
    "fediih": ("tau", "elbo"),
    "fedssa": ("input_dropout", "filter_lr", "semantic_weight", "structural_weight"),
    "fedhero": ("alpha", "smoothness", "concentration"),
    "fedsheafhn": ("hidden", "server_lr", "personal_step"),
    "quilt": ("hidden", "node_dropout", "feature_dropout", "filter_lr", "reach"),
}


def test_every_method_says_what_is_searched() -> None:
    for name, own in OWN.items():
        assert find_method(name).searched == (() if own is None else (*USUAL, *own))
    for name, method in methods().items():
        assert method.searched[:3] == USUAL or not fields(method.Settings), name
        assert set(method.searched) <= {field.name for field in fields(method.Settings)}, name


@pytest.mark.parametrize("name", sorted(methods()))
def test_each_listed_setting_is_searched_within_its_bounds_around_its_default(name: str) -> None:
    method = find_method(name)
    contexts = [
        RunContext(d.name, cut, "accuracy", 10, 3, 10, 1, 0) for d in datasets() for cut in ("disjoint", "overlapping")
    ]
    for context in {repr(method.defaults(context)): context for context in contexts}.values():
        defaults = asdict(build_settings(method, context, {}))
        space = usual_space(method, defaults)
        assert tuple(space) == method.searched
        assert all(part.holds(defaults[setting]) for setting, part in space.items())
        ends = {s: list(p.values) if isinstance(p, Choice) else [p.low, p.high] for s, p in space.items()}
        for place in range(max(map(len, ends.values()), default=0)):
            values = {setting: values[place % len(values)] for setting, values in ends.items()}
            assert asdict(build_settings(method, context, values)) == defaults | values


def test_a_new_method_is_searched_in_what_all_have() -> None:
    with registered(type("New", (BackboneMethod,), {"Settings": BackboneSettings}), "new") as method:
        space = usual_space(method, asdict(AdamSettings()))
    assert tuple(space) == USUAL
    assert space == {"lr": Range(0.001, 0.1, log=True), "weight_decay": Choice(DECAYS), "dropout": Range(0.0, 0.8)}


@given(st.floats(1e-6, 1e3), st.sampled_from([{"gt": 0}, {"ge": 0}, {"ge": 1e-7, "le": 1e4}, {"gt": 0, "lt": 2e3}]))
def test_a_number_is_searched_around_its_default_and_inside_its_bounds(default: float, bounds: dict[str, Any]) -> None:
    kind = Annotated[float, Field(**bounds)]
    part = rule("strength", kind, default)
    assert isinstance(part, Range)
    assert part.low < part.high
    for end in (part.low, part.high):
        TypeAdapter(kind).validate_python(end)
    if "lt" not in bounds:
        assert part.holds(default)


@given(st.integers(1, 1000), st.integers(1, 5))
def test_a_count_is_searched_in_whole_numbers(default: int, least: int) -> None:
    part = rule("count", Annotated[int, Field(ge=least)], max(default, least))
    assert isinstance(part, Range)
    assert part.whole
    assert least <= part.low < part.high
    assert part.holds(max(default, least))


def test_what_has_no_obvious_range_is_left_alone() -> None:
    assert rule("threshold", Annotated[float, Field(ge=0)], 0.0) is None
    assert rule("share", str, "layer,head") is None
    assert rule("masks", bool, True) == Choice((False, True))


# -- a space of the user's ---------------------------------------------------------------------------------------------


def parse(values: dict[str, Any]) -> Any:
    method = find_method("fedpub")

    def checked(name: str, value: Any) -> Any:
        return getattr(build_settings(method, TASK, {name: value}), name)

    return parse_space(method, values, checked, asdict(build_settings(method, TASK, {})))


def test_a_file_is_read_as_people_write_it(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(
        "lr: {low: 1e-3, high: 1e-1, log: true}\nhidden: [64, 128]\nepochs: {low: 1, high: 3}\nmasking: [no]"
    )
    assert parse(read_space(file)) == {
        "lr": Range(0.001, 0.1, log=True),
        "hidden": Choice((64, 128)),
        "epochs": Range(1, 3),
        "masking": Choice((False,)),
    }


@given(
    st.lists(st.integers(1, 10**6), min_size=1, unique=True), st.floats(1e-6, 1.0), st.floats(1.5, 100.0), st.booleans()
)
def test_what_a_space_says_of_itself_is_read_as_the_same_space(
    widths: list[int], low: float, factor: float, log: bool
) -> None:
    space = parse({"hidden": widths, "lr": {"low": low, "high": low * factor, "log": log}})
    assert parse({name: part.plain() for name, part in space.items()}) == space


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"lrr": [0.1]}, "There is no setting of fedpub 'lrr'; did you mean 'lr'?"),
        ({"hidden": []}, "The space of hidden is an empty list; list at least one value."),
        ({"hidden": [64, 64]}, "The space of hidden lists 64 twice; list each value once."),
        ({"hidden": [64, -3]}, "The setting hidden=-3 of method 'fedpub' is not possible"),
        ({"hidden": 64}, "The space of hidden must be a list of values, or low and high"),
        ({"lr": {"low": 0.1, "high": 0.01}}, "The space of lr goes from 0.1 to 0.01; low must be below high."),
        ({"lr": {"low": 0.1, "high": 0.1}}, "The space of lr goes from 0.1 to 0.1; low must be below high."),
        ({"lr": {"low": 0.0, "high": 0.1}}, "The setting lr=0.0 of method 'fedpub' is not possible"),
        ({"l1": {"low": 0.0, "high": 0.1, "log": True}}, "The space of l1 begins at 0.0, which has no logarithm"),
        ({"lr": {"low": 0.1}}, "The space of lr has no high; give both low and high."),
        ({"lr": {"low": 0.1, "hihg": 1.0}}, "There is no word in the space of lr called 'hihg'; did you mean 'high'?"),
        ({"lr": {"low": 0.1, "high": 1.0, "log": "yes please"}}, "The space of lr has log='yes please'"),
        (
            {"lr": {"low": 0.1, "high": float("inf")}},
            "lr=inf of method 'fedpub' is not possible: it is not a finite number",
        ),
        ({"hidden": {"low": 1.5, "high": 3}}, "The setting hidden=1.5 of method 'fedpub' is not possible"),
        ({"model": {"low": "gcn", "high": "sage"}}, "The setting model is not a number"),
        ({"masking": {"low": False, "high": True}}, "The setting masking is not a number"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(values: dict[str, Any], says: str) -> None:
    with pytest.raises(FedquiltError) as error:
        parse(values)
    assert says in str(error.value)
    assert str(error.value).endswith((".", "?"))


@pytest.mark.parametrize(
    ("text", "says"),
    [("lr: [", "not valid YAML"), ("- lr", "must hold settings"), ("", "must hold settings"), (None, "cannot be read")],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    file = tmp_path / "space.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(FedquiltError, match=says):
        read_space(file)


@dataclass(frozen=True)
class Odd:
    """A settings class without what others have."""

    colour: str = "red"


def test_a_method_without_any_of_the_usual_settings_has_an_empty_space() -> None:
    with registered(type("Odd", (BackboneMethod,), {"Settings": Odd}), "odd") as method:
        assert usual_space(method, {"colour": "red"}) == {}
