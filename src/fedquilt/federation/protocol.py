"""The headers of requests and replies: what the coordinator asks a site, and what a site says about itself.

Both sides use these classes, and each checks what the other sent: nothing in a header is believed before `from_header` or
`read_metrics` accepted it. The tensors beside a header are checked by `fedquilt.federation.message_checks`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedquilt.cohort.sampled_neighbours import possible_fan_out
from fedquilt.common.printable import shortened
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import is_site_name
from fedquilt.federation.site.permits import MAX_PERMIT_LETTERS, MAX_PERMITS
from fedquilt.graphs.preparation import KINDS, PrepareKind
from fedquilt.methods.base import Method, RunContext, find_method, refuse_pooling
from fedquilt.methods.settings import as_dict, build_settings
from fedquilt.tasks.metric import Metric
from fedquilt.training.engines.base import EVALUATION_FIELDS

VERSION = 1  # of this protocol
HELLO, ROUND, EVALUATE, FINISH = "hello", "round", "evaluate", "finish"
# The stages of secure aggregation before and after a round (`fedquilt.federation.secure`).
SECURE_STAGES = SETUP, SHARE, CONFIRM, UNMASK = "secure-setup", "secure-share", "secure-confirm", "secure-unmask"
MAX_RANGE = 2.0**20  # of a number in secure aggregation, so that bits behind the point are left
# What a request may ask for, so that a site's work ends: at most, and of the nodes of a training step at least.
MIN_BATCH_NODES = 10
MAX_CLIENTS, MAX_EPOCHS, MAX_ROUNDS = 10_000, 10_000, 10**7
MAX_SETTING = 10_000  # of whole numbers among a method's settings, such as its hidden units
# A header and a blob of tensors.
Reply = tuple[dict[str, Any], bytes]


class RefusedError(FedquiltError):
    """A request that a site refuses on purpose; the sentence is sent to the coordinator."""


@dataclass(frozen=True)
class Request:
    """One request of a run.

    Attributes:
        kind: ROUND, EVALUATE, FINISH, or one of SECURE_STAGES.
        run: the run's random name; a site keeps a folder for each.
        coordinator: how many times the coordinator was restarted; a site refuses requests of an earlier one.
        round: the round to train, or with which the training ended.
        best: the best round so far, -1 for none; a site keeps its model of that round.
        client: this site's number.
        rounds: how many rounds are planned.
        method, settings: the method's name and settings.
        task: the run context, as a table.
        evaluate: whether the site evaluates its model after the round.
        secure: with secure aggregation: the sum's random name ("sum") and the range of its numbers ("range").
        prepare: how sites prepare their features, each by its own statistics; see `fedquilt.graphs.preparation`.
    """

    kind: str
    run: str
    coordinator: int
    round: int
    best: int
    client: int
    rounds: int
    method: str
    settings: dict[str, Any]
    task: dict[str, Any]
    evaluate: bool = True
    secure: dict[str, Any] | None = None
    prepare: PrepareKind = "none"

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Request:
        """The request in a message's header; RefusedError on anything else."""
        values: dict[str, Any] = {name: header.get(name) for name in cls.__dataclass_fields__}
        readable = (
            all(type(values[name]) is int for name in ("coordinator", "round", "best", "client", "rounds"))
            and all(isinstance(values[name], dict) for name in ("settings", "task"))
            and all(isinstance(values[name], str) for name in ("kind", "method", "run"))
            and 0 < values["rounds"] <= MAX_ROUNDS
            and (-1 if values["kind"] in (EVALUATE, FINISH) else 0) <= values["round"] <= MAX_ROUNDS
            and 0 <= values["client"] < MAX_CLIENTS
            and re.fullmatch(r"[0-9a-f]{8,64}", values["run"])
            and _is_secure(values["secure"], values["kind"])
            and values["prepare"] in (None, *KINDS)
        )
        if not readable:
            raise RefusedError("The request cannot be read; the coordinator and the site need the same fedquilt.")
        # A coordinator of an earlier version says nothing of it, and means none.
        request = cls(**values | {"prepare": values["prepare"] or "none"})
        if request.kind not in (ROUND, EVALUATE, FINISH, *SECURE_STAGES):
            raise RefusedError(
                f"There is no request called '{request.kind}'; the coordinator and the site need the same fedquilt."
            )
        return request

    def to_header(self) -> dict[str, Any]:
        """The header that `from_header` reads."""
        return asdict(self)

    def build_method(self) -> Method:
        """The run's method; RefusedError where its context or settings are not possible."""
        try:
            method = find_method(self.method)
        except FedquiltError:
            raise RefusedError(
                f"The site has no method '{shortened(str(self.method))}'; where it is a plug-in, each site needs the file "
                "itself, under 'plugins:' in its site.yaml."
            ) from None
        try:
            refuse_pooling(method)
        except FedquiltError as error:
            raise RefusedError(str(error)) from None
        try:
            context = RunContext.from_dict(self.task)
            sizes = (context.features, context.outputs, context.clients, context.epochs, context.seed)
            lengths = (context.rounds, context.batch_nodes)
            names = (context.dataset, context.partition, context.metric, context.task, context.class_weights)
            possible = (
                all(type(size) is int for size in (*sizes, *lengths))
                and all(isinstance(name, str) for name in names)
                and isinstance(context.task_settings, dict)
                and self.client < context.clients <= MAX_CLIENTS
                and 0 < context.epochs <= MAX_EPOCHS
                and 0 < context.rounds <= MAX_ROUNDS
                and context.newcomer_epochs is None
                and type(context.batch_sums) is bool
                and possible_fan_out(context.fan_out)
            )
        except TypeError:
            possible = False
        if not possible:
            raise RefusedError("The task cannot be read; the coordinator and the site need the same fedquilt.")
        try:
            settings = build_settings(method, context, self.settings)
        except FedquiltError as error:  # it is about the request alone, so saying it reveals nothing
            raise RefusedError(str(error)) from None
        if getattr(settings, "epochs", 1) > MAX_EPOCHS:
            raise RefusedError(f"The run asks for more than {MAX_EPOCHS:,} epochs a round.")
        for name, value in as_dict(settings).items():
            if type(value) is int and abs(value) > MAX_SETTING:
                raise RefusedError(f"The run asks for {name}={value}, and a site permits at most {MAX_SETTING:,}.")
        try:
            built = method(settings, context)
            if context.batch_nodes:
                check_batches(built)
        except FedquiltError as error:  # class weights that do not fit; the request alone says so
            raise RefusedError(str(error)) from None
        return built


def check_batches(method: Method) -> None:
    """Refuse a run whose method needs the sites' whole graphs, or whose steps are so small that an epoch never ends."""
    if method.context.batch_nodes < MIN_BATCH_NODES:
        raise FedquiltError(
            f"The run asks for steps of less than {MIN_BATCH_NODES} nodes; ask for a larger batch-nodes."
        )
    if why := method.needs_whole_graphs():
        raise FedquiltError(
            f"Method '{method.name}' cannot train on parts of a site's graph: {why}; leave out batch-nodes."
        )


@dataclass(frozen=True)
class Introduction:
    """What a site says about itself in reply to HELLO.

    Attributes:
        features, classes: the widths of its graph; feature_names, class_names: hashes of their names, None where it has none.
        permits: which uploads may leave it.
        protected: whether it adds noise to its uploads.
        secure: whether its uploads leave only by secure aggregation.
        nodes: how many nodes its graph has at most; None where it does not say. No count that it sends is larger.
        prepare: how its features would be prepared, as its site.yaml says or its graph suggests.
    """

    name: str
    features: int
    classes: int
    feature_names: str | None
    class_names: str | None
    permits: list[str] | Literal["all"]
    protected: bool
    secure: bool = False
    nodes: int | None = None
    prepare: PrepareKind = "none"

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Introduction:
        """The introduction in a reply's header; ValueError on anything else."""
        values: dict[str, Any] = {name: header.get(name) for name in cls.__dataclass_fields__}
        if not isinstance(values["name"], str) or not is_site_name(values["name"]):
            raise ValueError("it has no name, or none that can be used")
        sizes = all(type(n) is int and 0 < n < 2**31 for n in (values["features"], values["classes"]))
        permits = values["permits"]
        listed = (
            isinstance(permits, list)
            and len(permits) <= MAX_PERMITS
            and all(isinstance(name, str) and len(name) <= MAX_PERMIT_LETTERS for name in permits)
        )
        if not sizes or not (permits == "all" or listed) or not isinstance(values["protected"], bool):
            raise ValueError("what it says of its graph cannot be read")
        if values["nodes"] is not None and not (type(values["nodes"]) is int and 0 < values["nodes"] < 2**53):
            raise ValueError("what it says of its nodes cannot be read")
        if not all(isinstance(values[names], str | None) for names in ("feature_names", "class_names")):
            raise ValueError("what it says of its features and classes cannot be read")
        if values["prepare"] not in KINDS:
            raise ValueError(
                "it does not say how its features can be prepared; it needs the fedquilt of the coordinator"
            )
        return cls(**values | {"secure": values["secure"] is True})

    def to_header(self) -> dict[str, Any]:
        """The header that `from_header` reads."""
        return asdict(self)


def _is_secure(value: Any, kind: str) -> bool:
    """Whether a request's `secure` can be read; the stages of secure aggregation need it."""
    if value is None:
        return kind not in SECURE_STAGES
    if not isinstance(value, dict) or set(value) != {"sum", "range"}:
        return False
    name, range = value["sum"], value["range"]
    named = isinstance(name, str) and re.fullmatch(r"[0-9a-f]{16,64}", name) is not None
    return named and isinstance(range, float) and 1 <= range <= MAX_RANGE


def read_metrics(values: Any, metric: Metric) -> list[float] | None:
    """A site's losses and metrics in the order of EVALUATION_FIELDS, or None where they are not possible.

    NaN stands for a part of the split with nothing to evaluate.
    """
    if not isinstance(values, list) or len(values) != len(EVALUATION_FIELDS):
        return None
    numbers = [float(v) if type(v) is float or (type(v) is int and abs(v) < 2**53) else math.inf for v in values]
    train_loss, val_loss, val, test, sound = numbers
    possible = all(math.isnan(value) or metric.possible(value) for value in (val, test))
    finite = all(math.isnan(loss) or math.isfinite(loss) for loss in (train_loss, val_loss))
    return numbers if possible and finite and sound == 1 else None
