"""Permits: the uploads that may leave a site, by name. A method that sends another name does not run there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from fedquilt.errors import FedquiltError, unknown
from fedquilt.messages.message import TensorSpec
from fedquilt.methods.base import Method, RunContext, methods
from fedquilt.methods.settings import build_settings

if TYPE_CHECKING:
    from fedquilt.federation.site.config import SiteConfig

Permits = list[str] | Literal["all"]
METRICS_PERMIT = "figures"  # what users write in site.yaml
# What a site reports with any method, beside its uploads, where it permits that.
METRICS_SPEC = TensorSpec(
    METRICS_PERMIT, "The site's losses, and its validation and test metrics with its personal model."
)


def is_permitted(permits: Permits, name: str) -> bool:
    """Whether the upload `name` may leave; a declared pattern such as ``model.*``: whether all its names may.

    A permit is a name (``train_nodes``), a pattern (``model.conv*``), or the part of names before a dot (``model``).
    """
    return permits == "all" or any(_covers(permit, name) for permit in permits)


def _covers(permit: str, name: str) -> bool:
    if permit.endswith("*"):
        return name.startswith(permit[:-1])
    if permit.endswith("."):  # not a name, and not the part of a name before a dot
        return False
    return name in (permit, permit + "*") or name.startswith(permit + ".")


def refused_uploads(permits: Permits, method: Method) -> list[TensorSpec]:
    """The uploads of a method that are not permitted."""
    return [spec for spec in method.sent_uploads() if not is_permitted(permits, spec.name)]


def check_permits(site: SiteConfig, method: Method) -> None:
    """Refuse a method that sends what the site does not permit, and name those that would work."""
    refused = refused_uploads(site.permits, method)
    if refused:
        possible = ", ".join(permitted_methods(site))
        raise FedquiltError(
            f"Site '{site.name}' does not permit '{refused[0].name}' to leave, which {method.name} sends; "
            f"permitted methods: {possible}."
        )


def check_upload_names(site: SiteConfig, names: Iterable[str]) -> None:
    """Refuse a message with a name that is not permitted, whatever the method declared."""
    for name in names:
        if not is_permitted(site.permits, name):
            raise FedquiltError(f"Site '{site.name}' does not permit '{name}' to leave; nothing was sent.")


def permitted_methods(site: SiteConfig) -> list[str]:
    """The methods whose uploads, with default settings, are all permitted."""
    return [name for name, method in default_methods().items() if not refused_uploads(site.permits, method)]


def default_methods(features: int = 8, classes: int = 2) -> dict[str, Method]:
    """Every method by name, with its default settings for a user's own graph."""
    context = RunContext("site", "sites", "accuracy", features, classes, clients=2, epochs=1, seed=0)
    return {name: cls(build_settings(cls, context, {}), context) for name, cls in methods().items()}


def check_permit_names(permits: Permits) -> None:
    """Refuse a permit that covers no method's upload: it is mistyped, and permits less than its author thinks."""
    if permits == "all":
        return
    names = {spec.name for method in methods().values() for spec in method.uploads} | {METRICS_PERMIT}
    for permit in permits:
        if not any(_covers(permit, name) for name in names):
            raise unknown("upload", permit, {name.removesuffix("*").removesuffix(".") for name in names})
