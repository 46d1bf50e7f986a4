"""MLP: every client trains alone on its nodes' features; edges are not read. The baseline that shows what a graph is worth."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.errors import FedquiltError
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RunContext, register
from fedquilt.methods.local import Local, LocalSettings
from fedquilt.methods.settings import Backbone


@dataclass(frozen=True)
class MlpSettings(LocalSettings):
    """Those of Local.

    Attributes:
        model: mlp; other networks read edges (`local` has them).
    """

    model: Backbone = "mlp"


@register("mlp")
class Mlp(Local):
    """Local with `model=mlp`: features alone, no graph, no federation."""

    title = "MLP"
    paper = "the usual baseline: features alone, no graph and no federation"
    baseline = True
    Settings = MlpSettings
    any_module = False

    def __init__(self, settings: MlpSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        if settings.model != "mlp":
            raise FedquiltError(
                f"Method 'mlp' trains on features alone, so that model={settings.model} is not possible; use method 'local'."
            )
        super().__init__(settings, context, averaging)
