"""Permits: which tensors may leave a site, by name. A method that sends another one does not run there.

`is_permitted` is the one rule. `fedquilt site check`, the coordinator's plan, and every round before it trains and before
anything leaves ask it about the names that tensors really have (`ExpectedMessages.upload_names`), such as
``model.conv1.weight``; never about a declared pattern such as ``model.*``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from fedquilt.errors import FedquiltError, unknown
from fedquilt.federation.message_checks import ExpectedMessages
from fedquilt.messages.message import COUNTS, NODES, WEIGHTS, TensorSpec, declared
from fedquilt.methods.base import Method, RunContext, federated_methods
from fedquilt.methods.settings import build_settings

Permits = list[str] | Literal["all"]
DEFAULT_PERMITS = (WEIGHTS, COUNTS)  # of a site.yaml that does not say `permits`
MAX_PERMITS, MAX_PERMIT_LETTERS = 1000, 200  # that a site may have, and that a coordinator reads
METRICS_PERMIT = "figures"  # what users write in site.yaml
# What a site reports with any method, beside its uploads, where it permits that.
METRICS_SPEC = TensorSpec(
    METRICS_PERMIT, "The site's losses, and its validation and test metrics with its personal model."
)
_SHOWN = 3  # so many names of several are written out in a sentence


def is_permitted(permits: Permits, name: str, specs: Sequence[TensorSpec] = ()) -> bool:
    """Whether the tensor `name` may leave; `specs` are the uploads that the method declares."""
    spec = declared(specs, name)
    return permits == "all" or any(covers(permit, name, spec) for permit in permits)


def covers(permit: str, name: str, spec: TensorSpec | None = None) -> bool:
    """Whether a permit stands for the tensor `name`, which `spec` declares. A permit is

    - the name itself (``train_nodes``, ``model.conv1.weight``),
    - the part of it before a dot (``model`` and ``model.conv1`` stand for ``model.conv1.weight``; ``model.conv`` does not),
    - a pattern, where ``*`` stands for any characters (``model.conv*``, ``*.weight``), or
    - ``weights`` or ``counts``: all that a method declares to be that.
    """
    if permit == name or name.startswith(f"{permit}."):
        return True
    if spec is not None and permit == spec.kind and permit in DEFAULT_PERMITS:
        return True
    literal = permit.replace("[", "[[]").replace("?", "[?]")  # only * has a meaning of its own
    return "*" in permit and fnmatchcase(name, literal)


def refused_names(permits: Permits, names: Iterable[str], specs: Sequence[TensorSpec]) -> list[str]:
    """Those of some tensors' names that may not leave."""
    return [name for name in names if not is_permitted(permits, name, specs)]


def upload_names(method: Method) -> list[str]:
    """The names of all tensors that a site ever uploads with a method; they do not depend on anyone's data."""
    return ExpectedMessages(method).upload_names


def check_permits(site: str, permits: Permits, method: Method, names: Sequence[str]) -> None:
    """Refuse a method that sends what the site of this name does not permit, and say what would work.

    `names` are those of the tensors it sends (`upload_names`).
    """
    refused = refused_names(permits, names, method.uploads)
    if refused:
        possible = ", ".join(permitted_methods(permits))
        raise FedquiltError(
            f"Site '{site}' does not permit {in_words(refused)} to leave, which {method.name} sends"
            f"{about_nodes(refused, method.uploads)}; permitted methods: {possible}."
        )


def check_upload_names(site: str, permits: Permits, names: Iterable[str], specs: Sequence[TensorSpec]) -> None:
    """Refuse a message with a name that is not permitted, whatever the method declared."""
    refused = refused_names(permits, names, specs)
    if refused:
        raise FedquiltError(f"Site '{site}' does not permit {in_words(refused)} to leave; nothing was sent.")


def permitted_methods(*permits: Permits) -> list[str]:
    """The methods whose uploads, with default settings, are all permitted by each of these."""
    sent = default_names()
    kinds = federated_methods().items()
    return [name for name, kind in kinds if not any(refused_names(p, sent[name], kind.uploads) for p in permits)]


def default_methods(features: int = 8, classes: int = 2) -> dict[str, Method]:
    """Every method that a site can train, by name, with its default settings for a user's own graph."""
    context = RunContext("site", "sites", "accuracy", features, classes, clients=2, epochs=1, seed=0)
    return {name: cls(build_settings(cls, context, {}), context) for name, cls in federated_methods().items()}


def default_names() -> Mapping[str, list[str]]:
    """The names of the tensors that each method uploads with its default settings."""
    return _names_of(tuple(federated_methods().items()))


@lru_cache(maxsize=4)
def _names_of(kinds: tuple[tuple[str, type[Method]], ...]) -> Mapping[str, list[str]]:
    made = default_methods()
    return {name: upload_names(made[name]) for name, _ in kinds}


def permits_needed(names: Iterable[str], specs: Sequence[TensorSpec]) -> list[str]:
    """The permits with which tensors of these names may leave: `weights` and `counts`, and each other upload by name."""
    named = [(name, declared(specs, name)) for name in names]
    words = [spec.kind if spec is not None and spec.kind in DEFAULT_PERMITS else name for name, spec in named]
    return list(dict.fromkeys(words))


def line_to_add(permits: Permits, names: Iterable[str], specs: Sequence[TensorSpec], more: Sequence[str] = ()) -> str:
    """The line of a site.yaml that permits what `permits` does, tensors of these names, and `more`."""
    kept = [] if permits == "all" else permits
    needed = permits_needed(refused_names(permits, names, specs), specs)
    return f"permits: [{', '.join(dict.fromkeys([*kept, *needed, *more]))}]"


def known_uploads(sent: Mapping[str, Sequence[str]]) -> dict[str, list[TensorSpec]]:
    """Every name that a tensor of some method can have, with the declarations that it has in the methods.

    `sent` has the names that methods send with the settings they are asked about. With other settings they may send every
    upload that they declare, and, of patterns such as ``model.*``, every weight of their models.
    """
    known: dict[str, list[TensorSpec]] = {METRICS_PERMIT: [METRICS_SPEC]}
    for method in default_methods().values():
        heads = {spec.name.split(".")[0] for spec in method.uploads if "*" in spec.name}
        weights = [f"{head}.{name}" for head in sorted(heads) for name in method.personal_shapes() or {}]
        plain = [spec.name for spec in method.uploads if "*" not in spec.name]
        for name in dict.fromkeys([*sent.get(method.name, ()), *plain, *weights]):
            spec = declared(method.uploads, name)
            if spec is not None:
                known.setdefault(name, []).append(spec)
    return known


def check_permit_names(permits: Permits, sent: Mapping[str, Sequence[str]]) -> None:
    """Refuse a permit that stands for no tensor of any method: it is mistyped, and permits less than its author thinks.

    `sent`: see `known_uploads`.
    """
    if permits == "all":
        return
    known = known_uploads(sent)
    for permit in permits:
        if any(covers(permit, name, spec) for name, specs in known.items() for spec in specs):
            continue
        longer = sorted(name for name in known if permit and name.startswith(permit) and not permit.endswith("."))
        if longer:
            raise FedquiltError(
                f"The permit '{permit}' is neither a name nor the part of one before a dot; write '{permit}*' to permit "
                f"{in_words(longer)}."
            )
        heads = {name.split(".")[0] for name in known}
        raise unknown("upload", permit, {*known, *heads, *DEFAULT_PERMITS})


def about_nodes(names: Iterable[str], specs: Sequence[TensorSpec]) -> str:
    """Where tensors of these names have rows of single nodes: that, as a part of a sentence which names them; else nothing."""
    single = [name for name in names if (spec := declared(specs, name)) is not None and spec.kind == NODES]
    return f" ({in_words(single)} with a row for each of some single nodes, such as persons)" if single else ""


def in_words(names: Sequence[str]) -> str:
    """Names in a sentence: the first few, and how many there are besides."""
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    more = len(names) - _SHOWN
    return shown if more <= 0 else f"{shown} and {more} more"
