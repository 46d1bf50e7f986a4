"""FedSage: Zhang et al., Subgraph Federated Learning with Missing Neighbor Generation, NeurIPS 2021.

FedAvg with GraphSAGE: every client trains a common GraphSAGE on its own subgraph, and the server averages what comes back,
weighted by training nodes. It is the row beside which FedSage+ (`fedquilt.methods.fedsageplus`) shows what its generated
neighbours add, and it differs from `fedavg` in nothing but the backbone.

The paper samples neighbourhoods in mini-batches; here, as for all methods, an epoch is one full-batch step over all training
nodes, with the mean over all neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.errors import FedquiltError
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RunContext, register
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.settings import Backbone, BackboneSettings


@dataclass(frozen=True)
class FedSageSettings(BackboneSettings):
    """FedAvg's settings.

    Attributes:
        model: sage, which is the method.
    """

    model: Backbone = "sage"


@register("fedsage")
class FedSage(FedAvg):
    """FedAvg whose clients train GraphSAGE."""

    title = "FedSage"
    paper = "Zhang et al., NeurIPS 2021"
    baseline = True
    Settings = FedSageSettings
    any_module = False

    def __init__(self, settings: FedSageSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        if settings.model != "sage":
            raise FedquiltError(
                f"{self.title} trains GraphSAGE, not {settings.model}: leave model=sage, or use --method fedavg --set "
                f"model={settings.model}."
            )
        super().__init__(settings, context, averaging)
