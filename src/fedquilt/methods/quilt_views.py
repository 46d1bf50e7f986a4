"""The views of Quilt: the network of each, and which of its weights are shared.

`mlp`, `sage` and other backbones are those of other methods; `filter` is in `fedquilt.nn.filters`; `gpr`, `attention` and
`private` are in `fedquilt.nn.gpr`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from fedquilt.methods.base import RunContext
from fedquilt.methods.quilt_settings import PRIVATE, QuiltSettings
from fedquilt.nn.filters import FilterNet
from fedquilt.nn.gpr import STEPS, GprNet
from fedquilt.nn.models import Network

GPR_ORDER = 4  # how many steps the views gpr, attention and private reach
GPR_KEPT = 0.4  # what their dropout keeps of what that of the others keeps
SAGE_WIDTH = 1.5  # of `hidden`: GraphSAGE has two layers, and reads features twice
# t of the views that are a GPR-GNN; of attention: neighbours that score classes alike count e^4 times as much as opposite ones.
STRENGTHS: Mapping[str, float] = MappingProxyType({"gpr": 0.0, "attention": 2.0, PRIVATE: 0.0})
# Of these views only the weights of these names are shared, of the others all.
SHARED_WEIGHTS: Mapping[str, frozenset[str]] = MappingProxyType({PRIVATE: frozenset({STEPS})})


def is_shared(view: str, weight: str) -> bool:
    """Whether a weight, by its name in the network of a view, is one that clients share."""
    return view not in SHARED_WEIGHTS or weight in SHARED_WEIGHTS[view]


def shares_all(view: str) -> bool:
    """Whether all weights of a view are shared."""
    return view not in SHARED_WEIGHTS


def among_others(view: str, settings: QuiltSettings) -> QuiltSettings:
    """The settings of a view that is one of several: GraphSAGE is wider, an MLP has a layer less."""
    if view == "sage":
        return replace(settings, hidden=max(1, round(SAGE_WIDTH * settings.hidden)))
    return replace(settings, layers=max(1, settings.layers - 1)) if view == "mlp" else settings


def network_of(
    view: str, settings: QuiltSettings, context: RunContext, backbone: Callable[[QuiltSettings], Network]
) -> Network:
    """The network of a view; `backbone` makes that of the settings' `model`."""
    s, features, outputs = settings, context.features, context.outputs
    if view in STRENGTHS:
        dropout = 1.0 - GPR_KEPT * (1.0 - s.dropout)
        return GprNet(features, s.hidden, outputs, GPR_ORDER, dropout, STRENGTHS[view])
    if view == "filter":
        return FilterNet(features, s.hidden, outputs, s.order, s.groups, s.identity, s.node_dropout, s.basis)
    return backbone(replace(s, model=view))
