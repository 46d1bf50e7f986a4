"""What a site lets go: uploads are named, and a method that sends a name that is not permitted does not run there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from fedquilt.errors import FedquiltError, unknown
from fedquilt.messages.message import TensorSpec
from fedquilt.methods.base import Method, RunContext, methods
from fedquilt.methods.sending import uploads_of
from fedquilt.methods.settings import build_settings

if TYPE_CHECKING:
    from fedquilt.federation.site.config import SiteConfig

Permits = list[str] | Literal["all"]
FIGURES = "figures"
# What a site reports beside its uploads, whatever the method, if it permits that.
FIGURES_SPEC = TensorSpec(FIGURES, "The site's losses, and its validation and test metrics with its personal model.")


def permitted(permits: Permits, name: str) -> bool:
    """Whether something called `name` (or all that a declared pattern such as ``model.*`` stands for) may leave.

    A permit is a name (``train_nodes``), a pattern (``model.conv*``), or the beginning of names up to a dot (``model``).
    """
    return permits == "all" or any(_covers(permit, name) for permit in permits)


def _covers(permit: str, name: str) -> bool:
    if permit.endswith("*"):
        return name.startswith(permit[:-1])
    if permit.endswith("."):  # the beginning of a pattern, perhaps, but the beginning of no name up to a dot
        return False
    return name in (permit, permit + "*") or name.startswith(permit + ".")


def refused_uploads(permits: Permits, method: Method) -> list[TensorSpec]:
    """Those of a method's uploads that are not permitted."""
    return [spec for spec in uploads_of(method) if not permitted(permits, spec.name)]


def check_permits(site: SiteConfig, method: Method) -> None:
    """Refuse a method that sends what the site does not permit, and name those that would work."""
    refused = refused_uploads(site.permits, method)
    if refused:
        would = ", ".join(permitted_methods(site))
        raise FedquiltError(
            f"Site '{site.name}' does not permit '{refused[0].name}' to leave, which {method.name} sends; "
            f"permitted methods: {would}."
        )


def check_leaving(site: SiteConfig, names: Iterable[str]) -> None:
    """Refuse a message of which a name is not permitted, whatever the method said it would send."""
    for name in names:
        if not permitted(site.permits, name):
            raise FedquiltError(f"Site '{site.name}' does not permit '{name}' to leave; nothing was sent.")


def permitted_methods(site: SiteConfig) -> list[str]:
    """The methods whose uploads, with their usual settings, are all permitted."""
    return [name for name, method in usual_methods().items() if not refused_uploads(site.permits, method)]


def usual_methods(features: int = 8, classes: int = 2) -> dict[str, Method]:
    """Every method by name, with its usual settings for a graph of one's own."""
    context = RunContext("site", "sites", "accuracy", features, classes, clients=2, epochs=1, seed=0)
    return {name: cls(build_settings(cls, context, {}), context) for name, cls in methods().items()}


def check_names(permits: Permits) -> None:
    """Refuse a permit that no method's upload has the name of: someone mistyped it, and would permit less than they think."""
    if permits == "all":
        return
    names = {spec.name for method in methods().values() for spec in method.uploads} | {FIGURES}
    for permit in permits:
        if not any(_covers(permit, name) for name in names):
            raise unknown("upload", permit, {name.removesuffix("*").removesuffix(".") for name in names})
