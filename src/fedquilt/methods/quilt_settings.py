"""The settings of Quilt; what they are for is in `fedquilt docs quilt`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fedquilt.errors import FedquiltError
from fedquilt.methods.settings import BackboneSettings, Count, NonNegative, Positive, Rate
from fedquilt.nn.filters import Basis
from fedquilt.nn.module_backbone import check_backbone

SEVERAL = "views"  # the model that is several views
PRIVATE = "private"  # the view whose weights stay at home
NETWORKS = ("filter", "gpr", "attention", PRIVATE)  # the views that are no backbones of other methods
ModelName = Annotated[str, AfterValidator(partial(check_backbone, others=(SEVERAL, *NETWORKS)))]


def check_views(text: str) -> str:
    """Names of views, separated by commas; ValueError where one is none, or given twice."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        check_backbone(name, others=NETWORKS)
    if len(set(names)) < len(names):
        raise ValueError("a view is named twice")
    return ",".join(names)


@dataclass(frozen=True)
class QuiltSettings(BackboneSettings):
    """The backbone's settings and Quilt's own.

    Attributes:
        lr: Adam's learning rate, of the server and of masks.
        weight_decay: L2 decay added to the server's gradient, or to the client's where it takes the steps.
        model: views (several, see the next), filter (private polynomial filters, `fedquilt.nn.filters`), gpr (a shared one,
            `fedquilt.nn.gpr`), attention (the same, listening to neighbours that score classes alike), private (gpr of which
            only the coefficients are shared), or one of fedquilt's backbones, such as sage.
        views: the views of model=views: filter, gpr, attention, private, and backbones. mlp has a layer less than the others.
        hidden: width of each view's layers.
        average: gradients (the server takes the steps of Adam), or weights (clients take them), averaged by evidence.
        order: how many steps away the filters reach.
        groups: groups of hidden units, each with a filter of its own; at the start they look at different distances.
        basis: the filters' basis: plain powers (monomial), powers scaled to be equally loud, or chebyshev.
        filter_lr: Adam's learning rate for the filters' coefficients.
        node_dropout: share of nodes whose input is dropped in a training step of the filters, before it spreads.
        feature_dropout: share of features that a client drops in a training step; each group of hidden units drops others.
        feature_length: root mean square length of a node's features, to which a client brings its own, so that nothing depends
            on their units; 0: they are read as they are.
        identity: rows of a private table by which a client's filters can tell who a neighbour is, for graphs where that says
            more than what neighbours look like; 0: none.
        evidence: with average=weights, average by evidence (off: by training nodes, as FedAvg does).
        masks: private masks on the shared weights; clients vote on whether they use them.
        reach: training nodes at which a client's mask learns half as fast as the weights.
        share: what is averaged: layer (what reads features), head (the classifier), filter; what is not named stays at home.
        own_votes: validation nodes at which a client follows its own votes and everyone's alike.
        sharpness: how many times the weight of a view grows that is one point of the validation metric better, as a logarithm.
        drop: drop views that are clearly worse than the best one, and in the end all but the best two.
    """

    lr: Positive = 0.03
    weight_decay: NonNegative = 1e-4
    model: ModelName = SEVERAL
    views: Annotated[str, AfterValidator(check_views)] = "mlp,filter,gpr,attention,sage,private"
    hidden: Count = 64
    average: Literal["gradients", "weights"] = "gradients"
    order: Count = 2
    groups: Count = 3
    basis: Basis = "monomial"
    filter_lr: Positive = 0.02
    node_dropout: Rate = 0.2
    feature_dropout: Rate = 0.5
    feature_length: NonNegative = 0.5
    identity: Annotated[int, Field(ge=0)] = 0
    evidence: bool = True
    masks: bool = False
    reach: NonNegative = 1000.0
    share: str = "layer,head"
    own_votes: NonNegative = 1000.0
    sharpness: NonNegative = 1.0
    drop: bool = True


def names_of(settings: QuiltSettings) -> list[str]:
    """The names of the views: several, or the only one."""
    return settings.views.split(",") if settings.model == SEVERAL else [settings.model]


def check_together(settings: QuiltSettings, shared: set[str]) -> None:
    """Refuse settings that do not go together; `shared` are the parts that `share` names."""
    views = names_of(settings)
    if unknown := shared - {"layer", "head", "filter"}:
        raise FedquiltError(f"Quilt cannot share '{min(unknown)}': give share as any of layer, head, filter.")
    if "filter" not in views and (settings.identity or "filter" in shared):
        raise FedquiltError(f"identity and share=filter are for model=filter, not {','.join(views)}; leave them out.")
    if set(views) <= set(NETWORKS) and settings.layers != QuiltSettings.layers:
        raise FedquiltError("layers is for the usual backbones, such as sage; model=filter reaches farther with order.")
