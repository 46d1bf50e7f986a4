"""Newcomers: clients that are admitted after training. They exchange one message each way with a frozen server.

Where the method asks anything of a newcomer (`Method.newcomer_sends`), it is greeted, does a round or some at home, and sends
what was asked for. It receives a download (`Method.newcomer_download`) and takes a last step with it
(`Method.newcomer_update`). The server and the clients that trained do not change. A newcomer is evaluated with the download as
it is, beside its own weights that are not sent; after the last step; and as `local` makes it, alone, in as many epochs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client, prepared_clients
from fedquilt.errors import FedquiltError
from fedquilt.graphs.copies import CopyKind, with_copies
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.preparation import Preparation, PrepareKind
from fedquilt.graphs.prepare import normalise
from fedquilt.graphs.split import GIVEN, parse_split
from fedquilt.messages.message import Message, check, declared, dense, message_bytes, moved
from fedquilt.methods.base import Method, RunContext, State, find_method, methods
from fedquilt.methods.base_adam import AdamMethod
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.settings import as_dict, build_settings
from fedquilt.nn.mixed_network import MixedNetwork
from fedquilt.nn.models import Model
from fedquilt.nn.module_backbone import ModuleNetwork
from fedquilt.scenarios.robust_aggregation import averaging_rule
from fedquilt.training.engines.base import Engine, Evaluation
from fedquilt.training.engines.registry import IN_PROCESS, EngineFactory, EngineOptions, find_engine


@dataclass(frozen=True, eq=False)
class Admission:
    """The outcome of admitting n newcomers.

    Attributes:
        models: the weights of their personal models, by name; leading axis the newcomer, on the CPU.
        predictions: a tensor [n_m, C] for each newcomer: the predictions for its nodes, such as class probabilities.
        val, test: their metrics, scaled (percent); None where undefined.
        val_untrained, test_untrained: the same before the last step, with the weights that they were sent as they are.
        val_alone, test_alone: the same where they train alone from the common start, for as many epochs (method `local`).
        epochs: how many these are.
        bytes_up, bytes_down: bytes by the name of the message.
    """

    models: State
    predictions: list[Tensor]
    val: list[float | None]
    test: list[float | None]
    val_untrained: list[float | None]
    test_untrained: list[float | None]
    val_alone: list[float | None]
    test_alone: list[float | None]
    epochs: int
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]


@dataclass(frozen=True, eq=False)
class Admitted:
    """The outcome of admitting the owner of one graph to a finished run.

    Attributes:
        model: the weights of its personal model, by name, without a client axis; on the CPU.
        predictions: [n, C] float32, such as class probabilities; nodes in the graph's order.
        metric: the name of the metric. val, test: its values in percent; None where undefined.
        val_untrained, test_untrained: the same before the last step, with the weights that it was sent as they are.
        val_alone, test_alone: the same where it trains alone from the common start, for as many epochs (method `local`).
        epochs: how many these are.
        upload_bytes, download_bytes: bytes of all messages.
        preparation: how its features came to the model's scale.
    """

    model: State
    predictions: np.ndarray
    metric: str
    val: float | None
    test: float | None
    val_untrained: float | None
    test_untrained: float | None
    val_alone: float | None
    test_alone: float | None
    epochs: int
    upload_bytes: int
    download_bytes: int
    preparation: Preparation = field(default_factory=Preparation)


@dataclass(frozen=True, eq=False)
class FrozenServer:
    """The server of a finished training, with everything that admitting clients needs.

    Attributes:
        method: the method, with the settings and context of the training.
        lasting: the part of the server's state that newcomers need (`Method.newcomer_state`), on the CPU.
        device: the device that newcomers train on.
        split: the run's split, as `parse_split` reads it.
        normalise_features: whether the run divided each node's features by their sum.
        class_names: the names of the run's classes, where they have names.
        keep_copies: which copies a split keeps together, as in the run; None: those that a graph marks itself.
        prepare: the kind of preparation of the run's features; a newcomer's are prepared by its own statistics.
        preparation: the run's, where its statistics are shared; a newcomer's are prepared by it.
        aggregation: the rule by which the server averages: the arguments of `averaging_rule`.
    """

    method: Method
    lasting: State
    device: torch.device
    split: str
    normalise_features: bool
    class_names: tuple[str, ...] | None
    keep_copies: CopyKind | Literal["never"] | None = None
    prepare: PrepareKind = "none"
    preparation: Preparation | None = None
    aggregation: tuple[Any, ...] = ("mean",)

    @property
    def bytes(self) -> int:
        """How much is kept."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.lasting.values())

    def admit(
        self, clients: Sequence[Client], cohort_size: int | None = None, engine_factory: EngineFactory | None = None
    ) -> Admission:
        """Admit newcomers. Every message is checked and counted.

        Args:
            clients: the newcomers, in rising order of their numbers.
            cohort_size: the largest number of newcomers computed together; None: all.
            engine_factory: makes the engine that runs them; None: they run in this process.
        """
        method, factory = self.method, engine_factory or find_engine(IN_PROCESS)
        options = EngineOptions(self.device, cohort_size)
        engine = factory(method, clients, options)
        numbers = torch.tensor([client.id for client in clients])
        lasting = {name: tensor.to(self.device) for name, tensor in self.lasting.items()}
        rounds, hello, uploads = method.newcomer_rounds(), Message(), Message()
        if rounds:
            hello = self._to_each(moved(method.newcomer_greeting(lasting), self.device), len(clients))
            check(hello, method.downloads, method.name, "download")
        for round in rounds:
            uploads, _ = engine.round(round, numbers, hello, evaluate=False)
        asked = method.newcomer_sends()
        uploads = {name: value for name, value in uploads.items() if any(fnmatchcase(name, one) for one in asked)}
        down = method.newcomer_download(lasting, uploads)
        if not uploads:
            down = self._to_each(down, len(clients))
        check(down, method.downloads, method.name, "download")
        untrained = _evaluated_untrained(method, engine, down)
        evaluation = engine.settle(down)
        evaluation.check_finite(first=clients[0].id)
        metric = method.task.metric(method.context.metric)
        received = [message_bytes(message, method.downloads, len(clients)) for message in (hello, down)]
        epochs = method.newcomer_steps()
        alone = trained_alone(method, clients, epochs, factory, options) if epochs else None
        unknown: list[float | None] = [None] * len(clients)
        return Admission(
            models={name: tensor.detach().cpu() for name, tensor in engine.personal().items()},
            predictions=engine.predictions(),
            val=metric.shown(evaluation.val),
            test=metric.shown(evaluation.test),
            val_untrained=metric.shown(untrained.val),
            test_untrained=metric.shown(untrained.test),
            val_alone=unknown if alone is None else metric.shown(alone.val),
            test_alone=unknown if alone is None else metric.shown(alone.test),
            epochs=epochs,
            bytes_up=message_bytes(uploads, method.uploads, len(clients)),
            bytes_down=dict(sum(map(Counter, received), Counter())),
        )

    def _to_each(self, message: Message, newcomers: int) -> Message:
        """A message that is the same for all newcomers, with a client axis where a download has one."""

        def is_shared(name: str) -> bool:
            spec = declared(self.method.downloads, name)
            return spec is None or spec.shared

        return {
            name: value if is_shared(name) else dense(value).expand(newcomers, *dense(value).shape).contiguous()
            for name, value in message.items()
        }

    def admit_graph(self, graph: Graph, split: str | None = None, seed: int = 0, epochs: int | None = None) -> Admitted:
        """Admit the owner of one graph, numbered after the last client that trained.

        Args:
            graph: has the features and classes of the run.
            split: as in a run; None: the graph's own split if it has one, else the run's.
            seed: the seed of the split.
            epochs: that it trains what it is given; None: as the run says.
        """
        if epochs is not None:
            return self._with_epochs(epochs).admit_graph(graph, split, seed)
        self._check_fits(graph)
        if self.normalise_features:
            graph = replace(graph, x=normalise(graph.x))
        chosen = split or (GIVEN if graph.masks is not None else self.split)
        grouped = with_copies(graph, self.keep_copies)
        split_of_nodes = self.method.task.draw_split(parse_split(chosen), grouped, seed)
        client = self.method.task.client(self.method.context.clients, graph, split_of_nodes, seed)
        preparation = self.preparation or Preparation.of(client.graph.x, self.prepare)
        admission = self.admit(prepared_clients([client], [preparation]))
        return Admitted(
            model={name: tensor[0] for name, tensor in admission.models.items()},
            predictions=admission.predictions[0].numpy(),
            metric=self.method.context.metric,
            val=admission.val[0],
            test=admission.test[0],
            val_untrained=admission.val_untrained[0],
            test_untrained=admission.test_untrained[0],
            val_alone=admission.val_alone[0],
            test_alone=admission.test_alone[0],
            epochs=admission.epochs,
            upload_bytes=sum(admission.bytes_up.values()),
            download_bytes=sum(admission.bytes_down.values()),
            preparation=preparation,
        )

    def _with_epochs(self, epochs: int) -> FrozenServer:
        """The same server, whose newcomers train for so many epochs."""
        if epochs < 1:
            raise FedquiltError(f"A newcomer cannot train for epochs={epochs}; give at least 1.")
        method = self.method
        context = replace(method.context, newcomer_epochs=epochs)
        return replace(self, method=type(method)(method.settings, context, method.averaging))

    def _check_fits(self, graph: Graph) -> None:
        context = self.method.context
        if graph.features != context.features:
            raise FedquiltError(
                f"{graph.name} has {graph.features} features and the run was trained on {context.features}; "
                "give a graph with the same features in the same order."
            )
        self.method.task.check_same(graph, context.outputs, self.class_names)

    def facts(self) -> dict[str, Any]:
        """Return everything but the tensors and the device, to be stored in the run folder; `restored` reads it."""
        return {
            "method": self.method.name,
            "settings": as_dict(self.method.settings),
            "task": self.method.context.to_dict(),
            "split": self.split,
            "normalise_features": self.normalise_features,
            "class_names": self.class_names,
            "keep_copies": self.keep_copies,
            "prepare": self.prepare,
            "preparation": None if self.preparation is None else self.preparation.facts(),
            "aggregation": list(self.aggregation),
        }

    @classmethod
    def restored(cls, lasting: State, facts: Mapping[str, Any], device: torch.device) -> FrozenServer:
        """Restore a server from the result of `facts` and the tensors that were saved with it."""
        method, context, names = find_method(facts["method"]), RunContext.from_dict(facts["task"]), facts["class_names"]
        shared, aggregation = facts.get("preparation"), tuple(facts.get("aggregation", ("mean",)))
        return cls(
            method=method(build_settings(method, context, facts["settings"]), context, averaging_rule(*aggregation)),
            lasting=lasting,
            device=device,
            split=facts["split"],
            normalise_features=facts["normalise_features"],
            class_names=None if names is None else tuple(names),
            # Not in folders from before there were these options.
            keep_copies=facts.get("keep_copies"),
            prepare=facts.get("prepare", "none"),
            preparation=Preparation.restored(shared, context.features) if shared else None,
            aggregation=aggregation,
        )


def _evaluated_untrained(method: Method, engine: Engine, down: Message) -> Evaluation:
    """Evaluate clients with the weights that they were sent, before they train them; their states stay as they were."""
    kept = {name: tensor.clone() for name, tensor in engine.state().items()}
    given = {name: tensor.clone() for name, tensor in kept.items()}
    if isinstance(method, AdamMethod):  # other methods have nothing that a download replaces
        method.newcomer_receive(given, down)
    engine.restore(given)
    evaluation = engine.evaluate()
    engine.restore(kept)
    return evaluation


def trained_alone(
    method: Method, clients: Sequence[Client], epochs: int, factory: EngineFactory, options: EngineOptions
) -> Evaluation:
    """Evaluate clients that train alone from the common start: by `local`, with the method's own network and learning rate.

    Where the method's network is none that `local` has, it is the usual one of the same width.
    """
    local, context = find_method("local"), method.context
    settings = build_settings(
        local, replace(context, epochs=epochs), _settings_alone(method, local) | {"epochs": epochs}
    )
    kept = [replace(one, settings={n: v for n, v in one.settings.items() if n != "epochs"}) for one in clients]
    engine = factory(local(settings, context), kept, options)
    numbers = torch.tensor([client.id for client in clients])
    evaluation = engine.round(0, numbers, {}, evaluate=True)[1]
    assert evaluation is not None
    return evaluation


def _settings_alone(method: Method, local: type[Method]) -> dict[str, Any]:
    """What a method's settings say about training, and about the network where `local` can have it."""
    own = as_dict(method.settings)
    taken = ["dropout", "weight_decay", "clip", "hidden"]
    if own.get("optimiser", "adam") == "adam":
        taken.append("lr")
    if isinstance(method, BackboneMethod) and isinstance(method.model, (Model, ModuleNetwork, MixedNetwork)):
        taken += ["model", "layers", "networks"]
    known = {field.name for field in fields(local.Settings)}
    return {name: own[name] for name in taken if name in own and name in known}


def check_admits(method: type[Method]) -> None:
    """Raise an error if the method cannot admit clients after training."""
    if method.admits:
        return
    others = [name for name, other in methods().items() if other.admits and not other.baseline]
    what = f"choose one that can, such as {', '.join(others[:3])}" if others else "none of the methods here can"
    why = f" {method.newcomers}" if method.newcomers else ""
    raise FedquiltError(f"Method '{method.name}' cannot admit clients after training; {what}.{why}")
