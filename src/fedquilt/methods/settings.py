"""Method settings: frozen dataclasses with types and bounds, read from text or a config file, wrong ones refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from fedquilt.common.printable import shown
from fedquilt.common.validation import fault_of_value, first_problem
from fedquilt.errors import FedquiltError, unknown
from fedquilt.methods.base import Method, RunContext
from fedquilt.nn.module_backbone import check_backbone

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, le=0.99)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Layers = Annotated[int, Field(ge=1, le=32)]
Backbone = Annotated[str, AfterValidator(check_backbone)]
Optimiser = Literal["adam", "sgd"]
LARGEST_COUNT = 1_000_000  # of whole numbers


@dataclass(frozen=True)
class NoSettings:
    """A method with nothing to set."""


@dataclass(frozen=True)
class AdamSettings:
    """The settings of every method that trains at its clients with Adam.

    Attributes:
        dropout: share of activations dropped after each layer while training.
        lr: Adam's learning rate.
        weight_decay: L2 decay added to the gradient. None by default: Adam normalises its steps, so even 1e-6 pulls the
            weights of features that a client never sees to zero at full speed, and averaging spreads the damage.
        epochs: local epochs a round.
        clip: the largest norm of a client's gradient, over all weights together; a longer one is cut to it. 0: never.
    """

    dropout: Rate = 0.5
    lr: Positive = 0.01
    weight_decay: NonNegative = 0.0
    epochs: Count = 1
    clip: NonNegative = 0.0


@dataclass(frozen=True)
class BackboneSettings(AdamSettings):
    """Adam's settings and the backbone's.

    Attributes:
        model: the backbone: gcn, sage, gat, gin, gcnii or mlp, with layers and a linear classifier after them; sgc, appnp or
            gamlp, which propagate without weights; or one that a plug-in registers.
        hidden: width of the layers.
        layers: how many of them; of sgc, appnp and gamlp, how many steps away they reach.
    """

    model: Backbone = "gcn"
    hidden: Count = 128
    layers: Layers = 2


def check_networks(text: str) -> str:
    """Networks such as "sage-64-2,mlp-32-1"; ValueError where one is none."""
    for label in filter(None, text.split(",")):
        name, *sizes = label.rsplit("-", 2)
        if len(sizes) != 2 or not all(size.isdecimal() and int(size) > 0 for size in sizes):
            raise ValueError(f"'{label}' is not a backbone with its width and its layers, such as sage-64-2")
        check_backbone(name)
    return text


@dataclass(frozen=True)
class MixedBackboneSettings(BackboneSettings):
    """The backbone's settings, where clients may have different backbones.

    Attributes:
        networks: the other backbones that clients have, as name-hidden-layers, such as sage-64-2; filled in from the settings
            of single clients (--set-client 3:model=sage).
    """

    networks: Annotated[str, AfterValidator(check_networks)] = ""


def build_settings(method: type[Method], context: RunContext, given: Mapping[str, Any]) -> Any:
    """The method's settings: its defaults, those that depend on the run, then those that the user gave."""
    names = {f.name for f in fields(method.Settings)}
    for name in given:
        if name not in names:
            if not names:
                raise FedquiltError(f"Method '{method.name}' has no settings, so '{name}' cannot be set; leave it out.")
            raise unknown(f"setting of {method.name}", name, names)
        if fault := fault_of_value(given[name]) or _too_large(given[name]):
            raise FedquiltError(
                f"The setting {name}={shown(given[name])} of method '{method.name}' is not possible: {fault}."
            )
    values = {**method.defaults(context), **given}
    try:
        return _reader(method.Settings).validate_python(values)
    except ValidationError as error:
        problem = first_problem(error)
        setting = f"The setting {problem.field}={shown(given.get(problem.field))}"
        raise FedquiltError(problem.sentence(f"{setting} of method '{method.name}'")) from None


@lru_cache(maxsize=256)
def _reader(settings: type) -> TypeAdapter[Any]:
    """What reads settings of this class; making it takes milliseconds, and a site's check reads those of all methods."""
    return TypeAdapter(settings)


def _too_large(value: Any) -> str | None:
    """Whole numbers are widths, layers and steps: no sizes of tensors overflow with those that pass."""
    return f"it is over {LARGEST_COUNT:,}" if isinstance(value, int) and value > LARGEST_COUNT else None


def resolve_settings(
    method: type[Method], context: RunContext, given: Mapping[str, Any], epochs: int | None
) -> tuple[Any, RunContext]:
    """The method's settings in a run, and the context with the local epochs that are used.

    Args:
        method: whose settings.
        context: with the dataset's epochs, or with `epochs`.
        given: the settings that the user gave.
        epochs: local epochs that the user gave as an option of the run; None: the method's default.
    """
    if "epochs" not in {f.name for f in fields(method.Settings)}:
        return build_settings(method, context, given), context
    told = {} if epochs is None else {"epochs": epochs}
    used = build_settings(method, context, {**told, **given}).epochs
    if epochs not in (None, used):
        raise FedquiltError(
            f"Local epochs are given twice, as epochs={epochs} and as the setting epochs={used}; leave one of them out."
        )
    # As if the user had given them: other defaults may depend on them, and a run of the saved config is then the same run.
    context = replace(context, epochs=used)
    return build_settings(method, context, {**given, "epochs": used}), context


def check_client_settings(method: Method, given: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Settings of one client, as the method takes them; an error for one that cannot differ between clients, or is impossible.

    `whose` names the client in a sentence.
    """
    able = method.client_settings
    for name in given:
        if name not in able:
            can = f"{', '.join(able)} can" if able else "no setting of it can"
            raise FedquiltError(
                f"The setting '{name}' of method '{method.name}' cannot be set for {whose} alone; {can} differ between clients."
            )
    built = build_settings(type(method), method.context, {**as_dict(method.settings), **given})
    own = {name: getattr(built, name) for name in given}
    method.as_client(own)  # refuses what the method cannot have
    return own


def as_dict(settings: Any) -> dict[str, Any]:
    """Settings as a plain dict, for the run folder."""
    return asdict(settings) if is_dataclass(settings) and not isinstance(settings, type) else {}
