"""Local: every client trains alone and nothing crosses. The baseline that shows whether a federation pays."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.methods.base import register
from fedquilt.methods.base_backbone import NETWORK, BackboneMethod
from fedquilt.methods.settings import MixedBackboneSettings, Positive


@dataclass(frozen=True)
class LocalSettings(MixedBackboneSettings):
    """The backbone's settings.

    Attributes:
        lr: Adam's learning rate.
    """

    lr: Positive = 0.005


@register("local")
class Local(BackboneMethod):
    """Each client trains alone from the common start; nothing is sent or received."""

    title = "Local"
    paper = "the usual baseline: no federation"
    newcomers = "Nothing crosses in it, so that there is nothing to give: a newcomer trains alone, as everyone does."
    Settings = LocalSettings
    searched = (*BackboneMethod.searched, "hidden")
    any_module = True
    client_settings = (*BackboneMethod.client_settings, *NETWORK)
