"""What a method sends with its settings: what crosses is declared for all of them, and some keep part of it at home."""

from __future__ import annotations

from fedquilt.methods.adam import MODEL, AdamMethod
from fedquilt.methods.contract import Method
from fedquilt.privacy.crossing import Crossing, declared


def uploads_of(method: Method) -> list[Crossing]:
    """What of its declared uploads a method sends with these settings."""
    return [crossing for crossing in method.uploads if _sends(method, crossing.name)]


def _sends(method: Method, name: str) -> bool:
    """Whether anything that is declared as `name`, which may be a pattern such as ``model.*``, is sent."""
    if method.sends(name):
        return True
    # What a pattern stands for may be sent in part, as the settings say.
    return (
        "*" in name and isinstance(method, AdamMethod) and any(_sends_weight(method, name, w) for w in method.shapes())
    )


def _sends_weight(method: AdamMethod, pattern: str, weight: str) -> bool:
    crossing = declared(method.uploads, MODEL + weight)
    return crossing is not None and crossing.name == pattern and method.sends(MODEL + weight) and method.shares(weight)
