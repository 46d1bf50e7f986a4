"""The network of each view of Quilt, and which of its weights are shared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fedquilt.methods.quilt_settings import NETWORKS, QuiltSettings, names_of
from fedquilt.methods.quilt_views import GPR_ORDER, among_others, is_shared, network_of, shares_all
from fedquilt.nn.filters import FilterNet
from fedquilt.nn.gpr import GprNet

CONTEXT: Any = SimpleNamespace(features=6, outputs=3)


def made(view: str, **settings: Any) -> Any:
    """The network of a view; of a backbone the settings that it is made of."""
    return network_of(view, QuiltSettings(**settings), CONTEXT, lambda used: used)


@pytest.mark.parametrize(("view", "attention"), [("gpr", 0.0), ("attention", 2.0), ("private", 0.0)])
def test_three_views_are_a_gpr_gnn_which_keeps_a_fifth_of_its_units(view: str, attention: float) -> None:
    assert made(view, hidden=8) == GprNet(6, 8, 3, GPR_ORDER, 0.8, attention)


def test_the_filters_are_those_of_the_settings() -> None:
    assert made("filter", hidden=9, order=4, groups=2) == FilterNet(6, 9, 3, 4, 2, 0, 0.2, "monomial")


def test_others_are_backbones() -> None:
    assert made("sage", hidden=9) == QuiltSettings(model="sage", hidden=9)


def test_among_others_graphsage_is_wider_and_an_mlp_has_a_layer_less() -> None:
    settings = QuiltSettings(hidden=10, layers=3)
    widths = {
        view: (used.hidden, used.layers) for view in names_of(settings) for used in [among_others(view, settings)]
    }
    assert widths == dict.fromkeys(names_of(settings), (10, 3)) | {"sage": (15, 3), "mlp": (10, 2)}
    assert (
        among_others("sage", QuiltSettings(hidden=1)).hidden,
        among_others("mlp", QuiltSettings(layers=1)).layers,
    ) == (2, 1)


def test_of_the_private_view_coefficients_alone_are_shared() -> None:
    shapes = made("private").shapes()
    assert [name for name in shapes if is_shared("private", name)] == ["steps"]
    assert {view for view in NETWORKS if not shares_all(view)} == {"private"}
    assert all(is_shared(view, name) for view in ("gpr", "attention", "filter") for name in made(view).shapes())
