"""The method contract: four verbs, declared messages, typed settings. One file a method; nothing else is edited.

    start(cohort)                        what each client keeps to itself (weights, masks, optimiser state)
    server_start()                       what the server keeps, and what it sends before the first round
    local_update(state, cohort, down, r) trains where the data is; returns the upload and the personal models
    aggregate(server, uploads, ...)      runs where the data is not; returns the downloads

State is a dict of named tensors with the client as leading axis; `local_update` changes it in place. `down` and the
upload are the only things that cross (see `fedquilt.messages.message`).
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import unknown
from fedquilt.messages.message import Message, TensorSpec, declared
from fedquilt.tasks import NODE_CLASSIFICATION
from fedquilt.tasks.base import find_task

if TYPE_CHECKING:
    from fedquilt.scenarios.robust_aggregation import RobustAverage

State = dict[str, Tensor]
# What every method calls the upload by which its server tells clients apart; attacks replace it.
EMBEDDING = "embedding"


@dataclass(frozen=True)
class RunContext:
    """What a method may know before it starts: names and sizes, nothing of the data itself.

    Attributes:
        dataset: the graph's name; partition: how it was cut; metric: the name of the task's metric.
        features, outputs: widths of the input and the output (in node classification, the number of classes).
        clients: M.
        epochs: local epochs a round; where a method's defaults are asked for, the dataset's unless the user told the run.
        seed: the seed of this training.
        task: the name of what is learned (`fedquilt.tasks`).
    """

    dataset: str
    partition: str
    metric: str
    features: int
    outputs: int
    clients: int
    epochs: int
    seed: int
    task: str = NODE_CLASSIFICATION

    def to_dict(self) -> dict[str, Any]:
        """As run folders and messages to sites have it: outputs are called classes there, and the usual task is not named."""
        out = asdict(self)
        out["classes"] = out.pop("outputs")
        if self.task == NODE_CLASSIFICATION:
            del out["task"]
        return out

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunContext:
        """From what `to_dict` gave; TypeError where a name is missing or unknown."""
        named = dict(values)
        if "classes" in named:
            named["outputs"] = named.pop("classes")
        return cls(**named)


@dataclass(frozen=True, eq=False)
class Update:
    """What a local update gives.

    Attributes:
        upload: what goes to the server.
        personal: the clients' personal models now, as `Method.personal` would give them; stays where the data is.
        loss: [M] each client's training loss in its last epoch; stays where the data is.
    """

    upload: Message
    personal: State
    loss: Tensor


class Method(ABC):
    """A federated method. Subclass, fill in the class attributes and the verbs, and decorate with `@register`."""

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    Settings: ClassVar[type]
    uploads: ClassVar[tuple[TensorSpec, ...]] = ()
    downloads: ClassVar[tuple[TensorSpec, ...]] = ()
    # A method that learns nothing over rounds needs only one.
    single_round: ClassVar[bool] = False
    # Whether the server decides by looking at numbers: then what it keeps stays on the CPU, and a round is not recorded whole.
    host_server: ClassVar[bool] = False
    # Whether a client that was never seen can be given a model after training: `lasting`, `admit` and `settle`.
    admits: ClassVar[bool] = False
    # How a server that averages does so where the run asks for something more robust than the mean.
    robust: RobustAverage | None = None

    def __init__(self, settings: Any, context: RunContext) -> None:
        self.settings = settings
        self.context = context
        self.task = find_task(context.task)

    @classmethod
    def defaults(cls, context: RunContext) -> dict[str, Any]:
        """Settings whose default depends on the task (a paper's per-dataset choices)."""
        return {}

    def sends(self, name: str) -> bool:
        """Whether clients upload something called `name` with these settings, in some round at least.

        It is what they declare; a method whose settings keep some of it at home says so here.
        """
        return declared(self.uploads, name) is not None

    def needs_classes(self) -> bool:
        """Whether the method, with these settings, can only learn a task whose nodes have classes."""
        return False

    def averages(self) -> bool:
        """Whether the server averages what clients send, by `robust` where there is such a rule."""
        return False

    def public_start(self) -> Message:
        """What of the uploads everyone knows before round 0, the server too: what clients start from, without a client axis.

        Under differential privacy only the difference from it, later from what was received, has to be protected.
        """
        return {}

    def alike(self, round: int) -> Hashable:
        """What kind of round this is: rounds that give equal answers ask for the same work on other numbers.

        An accelerator records one round of each kind and replays it. Round 0 is a kind of its own in any case.
        """
        return None

    @abstractmethod
    def start(self, cohort: Cohort) -> State:
        """What each client of the cohort keeps to itself, before round 0."""

    def server_start(self) -> tuple[State, Message]:
        """What the server keeps, and what it sends to the clients of round 0."""
        return {}, {}

    @abstractmethod
    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train at the clients, changing `state` in place."""

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """At the server, changing `server` in place: what the clients `receivers` of the next round are sent.

        Everything is on the uploads' device; with `host_server`, what the server keeps and the clients' numbers on the CPU.
        """
        return {}

    @abstractmethod
    def personal(self, state: State) -> State:
        """The clients' personal models as they would be used: named weights, leading axis the client."""

    @abstractmethod
    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The outputs of personal models at every node of their graphs: [R, C]."""

    def lasting(self, server: State) -> State:
        """What of the server newcomers need when training is over; nothing where the method does not admit any.

        It is kept with the run, in memory and as server.safetensors.
        """
        return {}

    def admit(self, lasting: State, uploads: Message) -> Message:
        """At the frozen server: what newcomers are sent, given what they sent after `local_update` of round 0.

        `lasting` is what the method of that name gave, on the uploads' device, and is left as it is. Newcomers are not
        among the task's clients: their numbers go on from there. What `server_start` sends goes to them too, so it has
        to be shared.
        """
        raise NotImplementedError

    def settle(self, state: State, cohort: Cohort, down: Message) -> Update:
        """At newcomers, after their only exchange: what they make of what they were sent, changing `state` in place.

        Nothing is sent after it: of the update, the personal models and the loss count.
        """
        return self.local_update(state, cohort, down, 1)

    def similarity(self, server: State) -> Tensor | None:
        """Similarity between clients as the server sees it, where the method has such a thing.

        [M, M], or [K, M, M] with a matrix for each latent factor.
        """
        return None

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """What is worth looking at when a training is over: named tensors for the pictures of `fedquilt show`.

        `clients` is what all clients keep (leading axis the client), as an engine that runs everyone in one process can
        see it; it never crosses. `fedquilt.reports.findings` says which names are drawn.
        """
        return {}


_METHODS: dict[str, type[Method]] = {}
_M = TypeVar("_M", bound=type[Method])


def register(name: str) -> Callable[[_M], _M]:
    """Make a method known by `name`: to the command line, the studies and the engines alike."""

    def decorate(cls: _M) -> _M:
        if name in _METHODS:
            raise ValueError(f"two methods are called '{name}'")
        cls.name = name
        _METHODS[name] = cls
        return cls

    return decorate


def methods() -> dict[str, type[Method]]:
    """All methods by name: those of this folder (a new file is all a new method needs) and any registered elsewhere."""
    _import_all()
    return dict(sorted(_METHODS.items()))


@cache
def _import_all() -> None:
    """Every module in this folder, once."""
    package = importlib.import_module("fedquilt.methods")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"fedquilt.methods.{module.name}")


def find_method(name: str) -> type[Method]:
    """The method called `name`, or an error with the nearest right one."""
    known = methods()
    if name not in known:
        raise unknown("method", name, known)
    return known[name]
