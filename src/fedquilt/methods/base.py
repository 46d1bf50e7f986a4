"""What a method is: six verbs, declared messages, typed settings. A method is one file; nothing else is edited.

    start(cohort)                                     -> what each client keeps: weights, masks, optimiser state
    local_update(state, cohort, down, round)          -> trains where the data is; the upload and the personal models
    personal(state)                                   -> the personal models as they are used
    logits(personal, cohort)                          -> their outputs at every node
    server_start()                                    -> what the server keeps, and what it sends before round 0
    aggregate(server, uploads, senders, receivers)    -> what the server sends next, computed from the uploads

The first four are abstract. The last two do nothing unless a method overrides them.

State is a dict of named tensors with the client as leading axis; `local_update` changes it in place. Downloads and uploads are
the only things that cross between a client and the server (see `fedquilt.messages.message`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.common.registry import Registry
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, declared
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.tasks import NODE_CLASSIFICATION
from fedquilt.tasks.base import find_task
from fedquilt.tasks.class_weights import NONE as NO_WEIGHTS

State = dict[str, Tensor]
# The upload by which a server tells clients apart has this name in every method; attacks replace it.
EMBEDDING = "embedding"
# In what `Method.newcomer_state` is given: what the server sent last to everyone alike, and what each client would send now.
LAST_SENT, STANDING = "last.", "standing."


@dataclass(frozen=True)
class RunContext:
    """What a method may know of a run before it starts: names and sizes, nothing of the data itself.

    Attributes:
        dataset: the graph's name; partition: how it was cut; metric: the name of the task's metric.
        features, outputs: widths of the input and the output (in node classification, the number of classes).
        clients: M.
        epochs: local epochs a round. While defaults are computed: those that the user gave, else the dataset's.
        seed: the seed of this training.
        task: the name of what is learned (`fedquilt.tasks`).
        class_weights: of the training loss: "none", "balanced", or a number for each class, such as "1,1,3.5".
        rounds: the rounds that the run asks for.
        newcomer_epochs: epochs that a newcomer trains what it was given; None: as many as the method chooses.
        batch_nodes: about how many nodes of a client are in a training step (`fedquilt.cohort.batches`); 0: all of them.
        fan_out: how many neighbours are drawn at each distance from a step's training nodes; none: a step reads clusters.
        batch_sums: whether the gradients of an epoch's batches are added up to one step; else each batch is a step.
        task_settings: the settings of the task that are not its defaults (`Task.Settings`).
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
    class_weights: str = NO_WEIGHTS
    rounds: int = 100
    newcomer_epochs: int | None = None
    batch_nodes: int = 0
    batch_sums: bool = False
    fan_out: tuple[int, ...] = ()
    task_settings: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The dict that run folders and messages to sites hold: `classes` is the outputs, and what is usual is left out."""
        out = asdict(self)
        out["classes"] = out.pop("outputs")
        if self.task == NODE_CLASSIFICATION:
            del out["task"]
        if self.class_weights == NO_WEIGHTS:
            del out["class_weights"]
        if self.newcomer_epochs is None:
            del out["newcomer_epochs"]
        if not self.batch_nodes:
            del out["batch_nodes"]
        if not self.batch_sums:
            del out["batch_sums"]
        out["fan_out"] = list(self.fan_out)
        if not self.fan_out:
            del out["fan_out"]
        if not self.task_settings:
            del out["task_settings"]
        return out

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunContext:
        """The context of a dict that `to_dict` gave; TypeError where a name is missing or unknown."""
        named = dict(values)
        if "classes" in named:
            named["outputs"] = named.pop("classes")
        if "fan_out" in named:
            named["fan_out"] = tuple(named["fan_out"])
        return cls(**named)


@dataclass(frozen=True)
class Phase:
    """Rounds, one after the other, in which a method does one thing, such as training a generator first.

    Attributes:
        name: in records and in the keys of CUDA graphs.
        rounds: how many.
        evaluated: whether its models are evaluated. If not, none of its rounds can be the best one; the last phase always is.
        sends: whether clients upload anything in it. Rounds in which they do not cost no privacy.
    """

    name: str
    rounds: int
    evaluated: bool = True
    sends: bool = True


@dataclass(frozen=True, eq=False)
class Update:
    """The result of a local update.

    Attributes:
        upload: goes to the server.
        personal: the clients' personal models after training, as `Method.personal` gives them; stays where the data is.
        loss: [M] each client's training loss in its last epoch; stays where the data is.
        logits: [R, C] what `Method.logits` gives of the personal models and the cohort as it is seen in validation, where
            training has computed that anyway; None: it has not.
    """

    upload: Message
    personal: State
    loss: Tensor
    logits: Tensor | None = None


@dataclass(frozen=True)
class RoundSizes:
    """What the memory of a server depends on.

    Attributes:
        senders, receivers: how many clients upload in a round, and how many are sent something for the next one.
        upload, download: bytes of one client's; what all share is not counted.
    """

    senders: int
    receivers: int
    upload: int
    download: int


class Method(ABC):
    """A federated method. Subclass it, set the class attributes, write the verbs, and decorate it with `@register`.

    Attributes:
        name: as options and files have it; `@register` sets it. title, paper: as tables show it.
        Settings: a frozen dataclass (`fedquilt.methods.settings`).
        settings_before: what models were trained with before a setting existed, where that is not its default.
        uploads, downloads: every name that crosses, with a sentence about what it reveals.
        single_uploads: why the server has to see each client's upload, as the end of a sentence that begins with "its";
            empty where sums over clients are enough (`summands`, `aggregate_sums`), so that secure aggregation works.
        client_settings: the settings that may differ from client to client (`Client.settings`).
        searched: the settings that `fedquilt tune` searches; names that Settings lacks are skipped.
        single_round: one round is enough, since nothing is learned over rounds.
        uses_validation: a sentence about what is computed from the labels of validation nodes, beside the choice of the best
            round, which a run makes for every method; empty: nothing is.
        compute_version: raise it with every change that gives this method's runs other numbers (`runs.compute_version`).
        baseline: a study has a row for it only where the paper's table has one.
        kind_versions: the same by kind of run, for changes that only such runs notice: "partial", where clients sit out; or the
            name of a task.
        host_server: the server branches on values of tensors. Its state stays on the CPU, and a round is not captured as one
            CUDA graph.
        pools_graphs: it is no federation: everyone's graph is in one place (`fedquilt.cohort.pool`), and in one process.
        averages_newest: where only some clients send, `aggregate` is given the newest upload of everyone who ever sent one, as
            if all of them had sent it now (`fedquilt.training.newest_uploads`). For servers with an average for each client
            whose clients send the same names in every round.
        guarded: a sentence about what the guarded average bounds, of a method whose server does not average.
        admits: a client that did not train can be given a model afterwards, by `newcomer_state`, `newcomer_download` and
            `newcomer_update`.
        newcomers: sentences about what a newcomer is given, and what it sends for that; of a method that does not admit, why.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    Settings: ClassVar[type]
    settings_before: ClassVar[Mapping[str, Any]] = {}
    uploads: ClassVar[tuple[TensorSpec, ...]] = ()
    downloads: ClassVar[tuple[TensorSpec, ...]] = ()
    single_uploads: ClassVar[str] = "server is not written for sums of uploads"
    searched: ClassVar[tuple[str, ...]] = ("lr", "weight_decay", "dropout")
    client_settings: ClassVar[tuple[str, ...]] = ()
    single_round: ClassVar[bool] = False
    uses_validation: ClassVar[str] = ""
    compute_version: ClassVar[int] = 1
    kind_versions: ClassVar[Mapping[str, int]] = {}
    baseline: ClassVar[bool] = False
    host_server: ClassVar[bool] = False
    pools_graphs: ClassVar[bool] = False
    averages_newest: ClassVar[bool] = False
    guarded: ClassVar[str] = ""
    admits: ClassVar[bool] = False
    newcomers: ClassVar[str] = ""

    def __init__(self, settings: Any, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        """`averaging` is the rule by which the server averages, where it does."""
        self.settings = settings
        self.context = context
        self.averaging = averaging
        self.task = find_task(context.task, context.task_settings).weighted(context.class_weights, context.outputs)

    # -- what a run asks before it trains --------------------------------------------------------------------------

    @classmethod
    def defaults(cls, context: RunContext) -> dict[str, Any]:
        """Settings whose default depends on the run, such as a paper's choices for a dataset."""
        return {}

    def settings_with(self, own: Iterable[Mapping[str, Any]]) -> Any:
        """The settings of a run with what the method has to know of those that single clients have of their own."""
        return self.settings

    def as_client(self, own: Mapping[str, Any]) -> Method:
        """The method as a client with settings of its own has it alone, where it is another: with another network."""
        return self

    def client_weights(self, weights: State, own: Mapping[str, Any]) -> State:
        """Of one client's row of the personal models, the weights that `as_client` has, by their names there."""
        return weights

    def sends(self, name: str) -> bool:
        """Whether clients upload something called `name`, with these settings and in some round.

        By default they upload all that is declared. Override it where a setting turns an upload off.
        """
        return declared(self.uploads, name) is not None

    def sent_uploads(self) -> list[TensorSpec]:
        """The declared uploads that are sent with these settings."""
        return [spec for spec in self.uploads if self.sends(spec.name)]

    def needs_classes(self) -> bool:
        """Whether the method, with these settings, can only learn a task whose nodes have classes."""
        return False

    def ignores_edge_weights(self) -> str:
        """Why weights of edges change nothing with these settings, as the end of a sentence; empty where they are used.

        They are used by all that reads `Cohort.gcn`, `mean`, `smoothed` or `mean_x`, by the layers and filters of
        `fedquilt.nn`, and by what multiplies by `Cohort.edge_weights`. A method that reads `Cohort.edges` alone, or no edges,
        overrides this.
        """
        return ""

    def needs_whole_graphs(self) -> str:
        """Why clients cannot train on parts of their graphs with these settings, as the end of a sentence; empty: they can.

        A method that trains one of the usual networks with Adam can (`BackboneMethod`), unless its loss, or what it sends, is
        one of the whole graph.
        """
        return "it is not written for training steps on parts of a graph"

    def averages(self) -> bool:
        """Whether the server averages uploads by `averaging`, so that a robust rule can replace the mean."""
        return False

    def evidence_of(self, name: str) -> tuple[str, int] | None:
        """The upload of counts by which the weight `name` is averaged patch by patch, and the axis of its patches.

        The axis is that of one client's weight. None where a weight is averaged as a whole.
        """
        return None

    def averages_by_evidence(self) -> bool:
        """Whether any weight has an `evidence_of`."""
        return type(self).evidence_of is not Method.evidence_of

    def public_start(self) -> Message:
        """The values of uploads that everyone, the server included, knows before round 0; without a client axis.

        Under differential privacy only the difference from it, later from what was received, has to be protected.
        """
        return {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """The bytes that the server holds at most while it aggregates, beyond the uploads; printed before training starts.

        By default the downloads, those sent last and those that are made. Override it where the server has a state or tables
        whose size grows with the clients, such as one over all pairs. Tests hold it against what is measured.
        """
        sorted_copies = 0 if self.averaging is WEIGHTED_MEAN else 2 * sizes.senders * sizes.upload
        return 2 * sizes.receivers * sizes.download + sorted_copies

    def phases(self, rounds: int) -> tuple[Phase, ...]:
        """What a training consists of, where the run asks for so many rounds; together the phases may have more of them.

        The verbs are the same in every phase: clients ask `phase`, and the server sees which uploads came.
        """
        return (Phase("training", 1 if self.single_round else rounds),)

    def total_rounds(self, rounds: int) -> int:
        """The rounds of all phases, where the run asks for `rounds`."""
        return sum(phase.rounds for phase in self.phases(rounds))

    def phase(self, round: int) -> tuple[Phase, int]:
        """The phase of a round, and the round's number in it; after all phases the last one goes on."""
        *before, last = self.phases(self.context.rounds)
        for phase in before:
            if round < phase.rounds:
                return phase, round
            round -= phase.rounds
        return last, round

    def sends_in(self, round: int) -> bool:
        """Whether clients upload anything in a round."""
        return bool(self.sent_uploads()) and self.phase(round)[0].sends

    def example_rounds(self) -> list[int]:
        """Rounds that show all that a training does: the first of each phase; two of the only one, three of several."""
        phases = self.phases(self.context.rounds)
        shown, first = [], 0
        for phase in phases:
            shown += [first + number for number in range(min(phase.rounds, 2 if len(phases) == 1 else 3))]
            first += phase.rounds
        return shown

    def local_steps(self, round: int) -> int:
        """The training steps of a client in a round, of which a straggler does a part; a step cannot be parted."""
        return 1

    def round_kind(self, round: int) -> Hashable:
        """What tells rounds of a phase apart that do not run the same operations."""
        return None

    def round_key(self, round: int) -> Hashable:
        """Rounds with equal keys run the same operations, so that they share one CUDA graph and one form of messages.

        The first round of a phase has a key of its own.
        """
        phase, number = self.phase(round)
        return number == 0, phase.name, self.round_kind(round)

    # -- the verbs -------------------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, cohort: Cohort) -> State:
        """What each client of the cohort keeps to itself, before round 0."""

    def server_start(self) -> tuple[State, Message]:
        """What the server keeps, and what it sends to the clients of round 0."""
        return {}, {}

    @abstractmethod
    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train at the clients, changing `state` in place."""

    def set_clock(self, state: State, cohort: Cohort, at_work: Tensor, round: int) -> None:  # noqa: B027
        """Set in place what random numbers of a round depend on, of those at work [M] bool, for a CUDA graph to read.

        By default nothing: a method may draw no random numbers.
        """

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """Compute at the server, changing `server` in place, what the clients `receivers` of the next round are sent.

        All tensors are on the uploads' device. With `host_server`, the server's state and the clients' numbers are on the CPU.
        """
        return {}

    def summands(self, uploads: Message) -> State:
        """What the server needs the sum of over clients, by the uploads' names: [M, ...] -> [M, ...] float64.

        Only where `single_uploads` is empty. Each client computes it from its own upload.
        """
        raise NotImplementedError

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """The same as `aggregate` up to rounding, from the sums of `summands` over the senders, [...] float64."""
        raise NotImplementedError

    @abstractmethod
    def personal(self, state: State) -> State:
        """The clients' personal models as they are used: named weights, leading axis the client."""

    @abstractmethod
    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The outputs of personal models at every node of their graphs: [R, C].

        Write it differentiable in the weights where you can: an exported model can then be trained further. Callers that only
        evaluate turn gradients off.
        """

    # -- what a personal model needs away from its training ----------------------------------------------------------

    def constants(self) -> Mapping[str, Callable[[Client], float]]:
        """Numbers of the training graph that `logits` needs, by the name under which `Client.once` has them.

        They are saved with a personal model, with those that the task needs. On another graph `Client.once` then gives the
        saved number.
        """
        return {}

    def saved_constants(self) -> Mapping[str, Callable[[Client], float]]:
        """The numbers that are saved with a personal model: the method's and the task's."""
        return {**self.constants(), **self.task.constants()}

    def personal_shapes(self) -> dict[str, tuple[int, ...]] | None:
        """The shapes of a personal model's weights, without a client axis; None where they are unknown before `start`."""
        return None

    def size(self, nodes: int) -> int:
        """Roughly how many numbers a site with so many nodes holds at once: the model's weights, and its widest layer.

        A site refuses a run that is too large for it (`quota` in its site.yaml). Override it where something else is larger.
        """
        weights = sum(math.prod(shape) for shape in (self.personal_shapes() or {}).values())
        widths = [width for field in fields(self.settings) if type(width := getattr(self.settings, field.name)) is int]
        return weights + nodes * max(widths, default=0)

    # -- clients that come after training ----------------------------------------------------------------------------

    def newcomer_sends(self) -> tuple[str, ...]:
        """The declared uploads, or patterns of them, that a newcomer sends to be given its model; by default none."""
        return ()

    def newcomer_rounds(self) -> tuple[int, ...]:
        """The rounds that a newcomer does before it is given its model. What it sends is of the upload of the last."""
        return (0,) if self.newcomer_sends() else ()

    def newcomer_greeting(self, server: State) -> Message:
        """What newcomers are sent before these rounds, from what `newcomer_state` gave; one for all, without a client axis.

        By default what clients are sent before round 0.
        """
        return self.server_start()[1]

    def keeps_uploads(self) -> bool:
        """Whether `newcomer_state` needs what each client would send now (`standing`)."""
        return False

    def standing(self, state: State, cohort: Cohort, down: Message) -> Message:
        """What clients would send now, without training further, where `keeps_uploads`; `down` is that of `server_start`."""
        raise NotImplementedError

    def newcomer_state(self, server: State) -> State:
        """The part of the server's final state that newcomers need; it is saved with the run as server.safetensors.

        `server` also has, under `LAST_SENT`, what was sent last that is the same for everyone; and where `keeps_uploads`, under
        `STANDING`, what those clients that ever trained would send now, [n, ...]. By default what was sent last.
        """
        return {name: value for name, value in server.items() if name.startswith(LAST_SENT)}

    def newcomer_download(self, server: State, uploads: Message) -> Message:
        """Compute what newcomers are sent from what they uploaded, each whatever the others sent.

        `server` is what `newcomer_state` gave, on the uploads' device; it must not be changed. Newcomers are numbered on from
        the context's clients. Where they send nothing, all are sent the same, without a client axis. By default what was sent
        last.
        """
        return {name.removeprefix(LAST_SENT): value for name, value in server.items() if name.startswith(LAST_SENT)}

    def newcomer_update(self, state: State, cohort: Cohort, down: Message) -> Update:
        """Make newcomers' personal models from what they were sent, changing `state` in place; the upload is not sent."""
        return self.local_update(state, cohort, down, 1)

    def newcomer_steps(self) -> int:
        """How many training steps a newcomer takes in all; 0: unknown, so that it is not compared with training alone."""
        return 0

    # -- what reports show -------------------------------------------------------------------------------------------

    def similarity(self, server: State) -> Tensor | None:
        """Similarity between clients as the server sees it: [M, M], or [K, M, M] with a matrix for each latent factor.

        None where the method has no such thing.
        """
        return None

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """Scalars that show whether the method's mechanism acts, from the server's state after a round's `aggregate`.

        Such as the number of clients that an average effectively takes in (`fedquilt.methods.diagnostics`). They are recorded
        for every round, from round 0 on under the same names. Without `host_server` the host must not read a value.
        """
        return {}

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """Named tensors for the figures of `fedquilt show`, from the final states of the server and of all clients.

        `clients` has the client as leading axis. An engine that has all clients in one process can give it; it never crosses.
        `fedquilt.reports.findings` says which names are drawn.
        """
        return {}


METHODS: Registry[type[Method]] = Registry("method", "fedquilt.methods")
_M = TypeVar("_M", bound=type[Method])


def register(name: str) -> Callable[[_M], _M]:
    """Register a method under `name`, by which commands, studies and engines find it."""

    def decorate(cls: _M) -> _M:
        METHODS.add(name, cls)
        cls.name = name
        return cls

    return decorate


def methods() -> dict[str, type[Method]]:
    """All methods by name: those of this folder (a new file is all a new method needs) and any registered elsewhere."""
    return dict(sorted(METHODS.all().items()))


def federated_methods() -> dict[str, type[Method]]:
    """Those of all methods by which owners can train who keep their graphs to themselves."""
    return {name: method for name, method in methods().items() if not method.pools_graphs}


def find_method(name: str) -> type[Method]:
    """The method called `name`, or an error with the nearest right one."""
    return METHODS.find(name)


SITES_KEEP_THEIRS = "sites keep theirs to themselves, so choose a method that is a federation, such as fedavg"


def refuse_pooling(method: type[Method], advice: str = SITES_KEEP_THEIRS) -> None:
    """Refuse a method that has everyone's graph in one place where clients keep theirs; `advice` ends the sentence."""
    if method.pools_graphs:
        raise FedquiltError(f"{method.name} has everyone's graph in one place; {advice}.")


def check_classes(method: Method) -> None:
    """Refuse a method that needs classes where its task has none."""
    if method.needs_classes() and not method.task.has_classes:
        raise FedquiltError(
            f"Method '{method.name}' needs classes, which the task {method.task.name} has not; choose another method or task."
        )
