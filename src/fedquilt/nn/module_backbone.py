"""Backbones of a user's own: any `torch.nn.Module` with forward(x, edge_index), such as one of PyTorch Geometric's layers.

A cohort cannot be computed as one, as it can with the networks of `fedquilt.nn.models`: the module is called client by client,
with each client's weights in place of its own (`torch.func.functional_call`). That takes longer; the numbers are the same.

    @register_backbone("net")
    class Net(torch.nn.Module):
        def __init__(self, features, classes, settings): ...
        def forward(self, x, edge_index): ...  # [n, features], [2, E] -> [n, classes]
"""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.common.machine_limits import find_limit
from fedquilt.common.random_streams import derive
from fedquilt.common.registry import NameTakenError, Registry
from fedquilt.errors import FedquiltError
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Model, Output, Shapes

Factory = Callable[[int, int, Any], torch.nn.Module]
"""(features, classes, the method's settings) -> the module: a function, or the module's class."""
_F = TypeVar("_F", bound=Factory)
BACKBONES: Registry[Factory] = Registry("backbone")
_OWN = ("filter",)  # names of networks that are not in `Model.kinds`
_WEIGHT = "edge_weight"


def register_backbone(name: str) -> Callable[[_F], _F]:
    """Make a backbone known by `name`: what it decorates makes a module from features, classes and the method's settings."""

    def decorate(factory: _F) -> _F:
        if name in Model.kinds or name in _OWN:
            raise NameTakenError(f"the backbone '{name}' is built in already; choose another name")
        BACKBONES.add(name, factory)
        return factory

    return decorate


def name_backbone(given: str | Factory) -> str:
    """The name of a backbone that is given by name, or as what makes it: that is registered under its own name."""
    if isinstance(given, str):
        return given
    name = getattr(given, "__name__", "")
    if not callable(given) or not name.isidentifier():
        raise FedquiltError(
            "backbone takes a name, a torch.nn.Module class or a function with a name; see `fedquilt docs plugins`."
        )
    if name not in BACKBONES or BACKBONES.find(name) is not given:
        try:
            register_backbone(name)(given)
        except NameTakenError as error:
            raise FedquiltError(f"{str(error)[0].upper()}{str(error)[1:]}.") from None
    return name


def check_backbone(name: str, others: tuple[str, ...] = ()) -> str:
    """The name of a backbone, or one of the others; ValueError where there is none of that name."""
    if name not in others and name not in Model.kinds and name not in BACKBONES:
        known = ", ".join([*others, *Model.kinds, *BACKBONES.all()])
        raise ValueError(
            f"there is no backbone '{name}'; choose one of: {known}; or load the plug-in that registers it"
        )
    return name


class ModuleNetwork:
    """A user's module as a network over a cohort (`fedquilt.nn.models.Network`).

    Its parameters are the weights, by their names in the module. It is made and tried on a small graph at once, so that what
    is wrong with it stops a run before anything is trained.
    """

    def __init__(self, name: str, features: int, outputs: int, settings: Any, seed: int) -> None:
        self.name, self.features, self.outputs = name, features, outputs
        with _seeded(derive(seed, "model"), torch.device("cpu")), self._explained():
            module = BACKBONES.find(name)(features, outputs, settings)
            if not isinstance(module, torch.nn.Module):
                raise FedquiltError(f"The backbone '{name}' makes a {type(module).__name__}, not a torch.nn.Module.")
            self._takes_weights = _WEIGHT in inspect.signature(module.forward).parameters
            self._try(module)
        self._start = {name: w.detach().clone() for name, w in module.named_parameters() if w.requires_grad}
        if not self._start:
            raise FedquiltError(f"The backbone '{name}' has no parameters, so there is nothing to train.")
        self._modules = {torch.device("cpu"): module}

    @property
    def ignores_edge_weights(self) -> str:
        """Why weights of edges change nothing, as the end of a sentence; empty where the module takes them."""
        return "" if self._takes_weights else f"the forward of '{self.name}' has no argument {_WEIGHT}"

    def shapes(self) -> Shapes:
        """The shapes of the module's parameters."""
        return {name: tuple(w.shape) for name, w in self._start.items()}

    def start(self, clients: int, device: torch.device) -> Weights:
        """The parameters as the module initialised them, the same for every client: [M, ...]."""
        return {n: w.unsqueeze(0).repeat(clients, *[1] * w.dim()).to(device) for n, w in self._start.items()}

    def __call__(self, cohort: Cohort, weights: Weights) -> Output:
        """Compute the outputs of every row, in evaluation mode."""
        return self._outputs(cohort, weights, None)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes, in training mode. Random numbers depend on the client and the step."""
        low, high = (words.cpu().long() for words in dropout.draws.keyed(0))
        seeds = ((low & 0xFFFFFFFF) | ((high & 0x7FFFFFFF) << 32)).tolist()
        output = self._outputs(cohort, weights, seeds)
        return Output(output.logits[cohort.training.index], output.embedding[cohort.training.index])

    def _outputs(self, cohort: Cohort, weights: Weights, seeds: list[int] | None) -> Output:
        module = self._module(cohort.device).train(seeds is not None)
        inputs: list[tuple[Tensor, ...]] = cohort.once("inputs of a module", _inputs)
        # Unbound, so that the backward pass stacks the clients' gradients once.
        each = {name: w.unbind(0) for name, w in weights.items()}
        parts = []
        for m, (x, edges, edge_weights) in enumerate(inputs):
            own = {name: slices[m] for name, slices in each.items()}
            with self._explained(), _seeded(None if seeds is None else seeds[m], cohort.device):
                parts.append(self._checked(self._call(module, own, x, edges, edge_weights), len(x)))
        logits = cohort.laid(parts, 0.0)
        return Output(logits, logits)

    def _call(self, module: torch.nn.Module, weights: Weights, x: Tensor, edges: Tensor, edge_weights: Tensor) -> Any:
        named = {_WEIGHT: edge_weights} if self._takes_weights and edge_weights.numel() else {}
        return functional_call(module, weights, (x, edges), named)

    def _checked(self, out: Any, nodes: int) -> Tensor:
        if not isinstance(out, Tensor) or out.shape != (nodes, self.outputs):
            got = f"a tensor {list(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
            raise FedquiltError(
                f"The backbone '{self.name}' returns {got} for {nodes} nodes, and has to return a row of {self.outputs} "
                f"outputs for each node: [{nodes}, {self.outputs}]."
            )
        return out

    def _module(self, device: torch.device) -> torch.nn.Module:
        if device not in self._modules:
            self._modules[device] = copy.deepcopy(self._modules[torch.device("cpu")]).to(device)
        return self._modules[device]

    def _try(self, module: torch.nn.Module) -> None:
        """Call the module on four nodes in a row, in both modes; refuse one that changes what is no parameter."""
        edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        module.eval()
        x = torch.arange(4.0).unsqueeze(1).repeat(1, self.features)
        self._checked(module(x, edges), 4)  # also gives lazy layers their shapes
        before = {name: buffer.clone() for name, buffer in module.named_buffers()}
        self._checked(module.train()(x, edges), 4)
        changed = [name for name, buffer in module.named_buffers() if not torch.equal(before[name], buffer)]
        if changed:
            raise FedquiltError(
                f"The backbone '{self.name}' learns numbers that are no parameters ({changed[0]}), which no method averages; "
                "use LayerNorm, or BatchNorm with track_running_stats=False."
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn an error inside the user's module into a sentence with its line; a limit of the machine stays one."""
        try:
            yield
        except FedquiltError:
            raise
        except Exception as error:
            if find_limit(error) is not None:
                raise
            source = inspect.getsourcefile(inspect.unwrap(BACKBONES.find(self.name))) or ""
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == source]
            where = f" in line {lines[-1]} of {source}" if lines else ""
            why = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
            raise FedquiltError(f"The backbone '{self.name}' failed{where}: {why}.") from error


def _inputs(cohort: Cohort) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For each client x [n, F] dense, edge_index [2, 2 E] with both directions, and edge weights [2 E] (`Client.edge_weights`).

    The weights are empty where edges have none.
    """
    return [_input(client, cohort.device) for client in cohort.members]


def _input(client: Client, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    graph = client.graph
    x = graph.x if isinstance(graph.x, np.ndarray) else graph.x.toarray()
    edges = np.concatenate([graph.edges, graph.edges[::-1]], axis=1)
    given = client.edge_weights
    weights = np.zeros(0, np.float32) if given is None else np.concatenate([given, given])
    parts = (np.asarray(x, np.float32), edges.astype(np.int64), weights.astype(np.float32))
    first, second, third = (torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts)
    return first, second, third


@contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Let PyTorch's own random numbers start from `seed` in a `with` block, and go on as before after it; None: do nothing."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
