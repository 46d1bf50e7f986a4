"""Local: every client trains on its own and nothing crosses. The row that tells whether a federation pays at all."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.methods.base import register
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.settings import BackboneSettings, Positive


@dataclass(frozen=True)
class LocalSettings(BackboneSettings):
    """The backbone's settings.

    Attributes:
        lr: Adam's learning rate.
    """

    lr: Positive = 0.005


@register("local")
class Local(BackboneMethod):
    """Train at home from the common start; send nothing, receive nothing."""

    title = "Local"
    paper = "the usual baseline: no federation"
    Settings = LocalSettings
    searched = (*BackboneMethod.searched, "hidden")
