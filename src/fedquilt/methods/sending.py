"""What a method sends with its settings: what crosses is declared for all of them, and some keep part of it at home."""

from __future__ import annotations

from fedquilt.messages.message import TensorSpec, declared
from fedquilt.methods.base import Method
from fedquilt.methods.base_adam import MODEL, AdamMethod


def uploads_of(method: Method) -> list[TensorSpec]:
    """What of its declared uploads a method sends with these settings."""
    return [spec for spec in method.uploads if _sends(method, spec.name)]


def _sends(method: Method, name: str) -> bool:
    """Whether anything that is declared as `name`, which may be a pattern such as ``model.*``, is sent."""
    if method.sends(name):
        return True
    # What a pattern stands for may be sent in part, as the settings say.
    return (
        "*" in name and isinstance(method, AdamMethod) and any(_sends_weight(method, name, w) for w in method.shapes())
    )


def _sends_weight(method: AdamMethod, pattern: str, weight: str) -> bool:
    spec = declared(method.uploads, MODEL + weight)
    return spec is not None and spec.name == pattern and method.sends(MODEL + weight) and method.shares(weight)
