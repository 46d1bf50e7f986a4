"""Workers on Ray: the clients of one federation in several processes, on one machine or on a cluster of them.

A worker is a Ray actor that holds some of the clients in an in-process engine. All workers train at once; this process
is the server: it cuts downloads, joins uploads, and keeps what it needs to replace a worker that is lost. A client's
randomness belongs to the client, so results do not depend on the number of workers.

Importing this module needs Ray: pip install 'fedquilt[ray]'.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.devices.device import Precision
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, Sparse, Value, declared, dense
from fedquilt.methods.base import Method, RunContext, State
from fedquilt.training.engines.base import Evaluation
from fedquilt.training.engines.in_process import InProcess, join_messages, slice_message

# Ray prints what it has to say about lost workers to stdout, where results go; here it is said on stderr, in a sentence.
# Read when Ray is imported; whoever set it, or imported Ray before, sees Ray's own lines.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")
try:
    import ray
    from ray import exceptions as gone
except ImportError:
    raise FedquiltError("Workers need the package ray; install it with: pip install 'fedquilt[ray]'.") from None

SNAPSHOT_ROUNDS = 10  # rounds after which the workers' states are fetched anew
REPLACEMENTS = 3  # of one worker at one piece of work
START_SECONDS = 300.0  # how long to wait for room on the cluster
STORE_BYTES = 2**30  # shared memory for messages of a Ray that is started here; what does not fit goes to disk
LOST = (
    gone.RayActorError,
    gone.WorkerCrashedError,
    gone.OutOfMemoryError,
    gone.NodeDiedError,
    gone.ObjectLostError,
)

# A message or a state as Ray carries it: each tensor as an array, and whether it is sent as `Sparse`.
Packed = dict[str, tuple[np.ndarray, bool]]
Figures = dict[str, np.ndarray]

_AT_START = "see that every machine has the same versions of fedquilt and Ray"
_LATER = "if it ran out of memory, use more workers or a smaller --cohort-size"
_log = logging.getLogger(__name__)


class RayWorker:
    """Some of the clients in a process of their own: an in-process engine whose messages come and go as arrays."""

    engine: InProcess

    def hello(self) -> None:
        """Answers as soon as the process runs."""

    def open(
        self,
        method: type[Method],
        settings: Any,
        context: RunContext,
        clients: Sequence[Client],
        device: str,
        cohort_size: int | None,
        precision: Precision,
        threads: int,
    ) -> None:
        """Take clients in; before anything else."""
        keep_freed_memory()
        torch.set_num_threads(threads)
        self.engine = InProcess(method(settings, context), clients, device, cohort_size, precision)

    def round(
        self, round: int, participants: list[int], evaluate: bool, own: Packed, shared: Packed
    ) -> tuple[Packed, Figures | None]:
        """A round of those of its clients that take part: their uploads and, with `evaluate`, all its clients' figures."""
        down = self._down(own, shared)
        uploads, report = self.engine.round(round, torch.tensor(participants), down, evaluate)
        return pack(uploads), None if report is None else _figures(report)

    def settle(self, own: Packed, shared: Packed) -> Figures:
        """The last step of clients that were admitted after training."""
        return _figures(self.engine.settle(self._down(own, shared)))

    def evaluate(self) -> Figures:
        """How its clients stand with the models they have now."""
        return _figures(self.engine.evaluate())

    def figures(self) -> Figures:
        """How its clients stood when last looked at; nothing is computed."""
        kept, prefix = self.engine.state(), "figures."
        return {n.removeprefix(prefix): t.cpu().numpy() for n, t in kept.items() if n.startswith(prefix)}

    def predictions(self) -> list[np.ndarray]:
        """The predictions of each of its clients' models at its nodes: [n_m, C] each."""
        return [each.numpy() for each in self.engine.predictions()]

    def personal(self) -> Packed:
        """Its clients' personal models now."""
        return pack(self.engine.personal())

    def forget(self) -> None:
        """Forget what is held of the personal models."""
        self.engine.forget()

    def state(self) -> Packed:
        """All that is needed to go on in another process."""
        return pack(self.engine.state())

    def restore(self, state: Packed) -> None:
        """Go on from what `state` gave."""
        self.engine.restore({name: dense(value) for name, value in unpack(state, self.engine.device).items()})

    def _down(self, own: Packed, shared: Packed) -> Message:
        return unpack(own, self.engine.device) | unpack(shared, self.engine.device)


class RayWorkers:
    """An engine whose clients are in `workers` processes on Ray, in rising order, with near-equal numbers of nodes each.

    Nothing is lost when a worker is: every SNAPSHOT_ROUNDS rounds its state is fetched, and what it was asked since is
    remembered. A new worker goes on from that state, does the same again with the same results, and then what was asked.

    Memory: this process holds its clients' graphs, all clients' states at the last snapshot and one round's uploads; the
    downloads since the snapshot are in Ray's object store, a shared tensor once.
    """

    records = False  # a round leaves this process, so there is no recording it
    answered: Tensor | None = None
    private = False
    told: dict[str, float] = {}  # noqa: RUF012 (never changed)

    def __init__(
        self,
        method: Method,
        clients: Sequence[Client],
        workers: int,
        device: torch.device | str = "cpu",
        cohort_size: int | None = None,
        precision: Precision = "float32",
    ) -> None:
        check_workers(workers, len(clients))
        self.method = method
        self.phases: dict[str, float] = {}  # workers work side by side, so nobody can tell
        self.device = torch.device(device)  # the server's; a worker has one of its own
        self.cohort_size, self.precision = cohort_size, precision
        self.chunks = [
            clients[part.start : part.stop] for part in near_equal([c.graph.nodes for c in clients], workers)
        ]
        self.ids = [torch.tensor([client.id for client in chunk]) for chunk in self.chunks]
        self.figures = {name: np.full(len(clients), np.nan, np.float32) for name in Evaluation.__dataclass_fields__}
        self._everyone = range(workers)
        self._stale = set(self._everyone)  # workers whose figures changed without being reported
        self._snapshots: list[State | None] = [None] * workers  # None: as they started
        self._since: list[list[tuple[str, tuple[Any, ...]]]] = [[] for _ in self._everyone]  # asked since the snapshot
        self._rounds = 0  # since the snapshots
        self._gpu = _on_gpus(workers, self.device)
        self._threads = _threads(workers)
        self._running: dict[int, Any] = {}
        self._opened: dict[int, Any] = {}
        self._actors = {w: self._start(w) for w in self._everyone}
        self._wait()

    # -- what the round loop asks ------------------------------------------------------------------------------------

    def evaluate(self) -> Evaluation:
        """How all clients stand with the models they have now."""
        return self._report(dict(zip(self._everyone, self._ask("evaluate", changes=True), strict=True)))

    def round(
        self, round: int, participants: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """One round for the participants, all workers at once."""
        here = [ids[torch.isin(ids, participants)].tolist() for ids in self.ids]
        asked = {
            w: (round, here[w], evaluate, *messages)
            for w, messages in self._cut(down, [len(some) for some in here]).items()
        }
        answers = dict(zip(asked, self._ask("round", asked, changes=True), strict=True))
        uploads = join_messages([unpack(upload, self.device) for upload, _ in answers.values()])
        self._stale |= set(asked)
        report = self._report({w: figures for w, (_, figures) in answers.items()}) if evaluate else None
        self._rounds += 1
        if self._rounds >= SNAPSHOT_ROUNDS:
            self._snapshot()
        return uploads, report

    def settle(self, down: Message) -> Evaluation:
        """The last step of clients that were admitted after training, and how they stand after it; nothing is sent."""
        asked = self._cut(down, [len(ids) for ids in self.ids])
        return self._report(dict(zip(asked, self._ask("settle", asked, changes=True), strict=True)))

    def predictions(self) -> list[Tensor]:
        """The predictions of each client's personal model at its nodes: a tensor [n_m, C] a client, on the CPU."""
        return [torch.tensor(each) for answer in self._ask("predictions") for each in answer]

    def personal(self) -> State:
        """All clients' personal models now."""
        return self._joined([unpack(answer, self.device) for answer in self._ask("personal")])

    def forget(self) -> None:
        """Forget what workers hold of the personal models."""
        self._ask("forget")

    def state(self) -> State:
        """The clients' states and figures."""
        return {name: tensor.to(self.device) for name, tensor in self._joined(self._snapshot()).items()}

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, with this or another number of workers, or in process."""
        first = 0
        for w, chunk in enumerate(self.chunks):
            self._keep(w, {n: t[first : first + len(chunk)].detach().cpu().clone() for n, t in state.items()})
            first += len(chunk)
        self._rounds = 0
        self._stale = set(self._everyone)
        self._ask("restore", {w: (pack(kept or {}),) for w, kept in enumerate(self._snapshots)})

    # -- messages ----------------------------------------------------------------------------------------------------

    def _cut(self, down: Message, counts: Sequence[int]) -> dict[int, tuple[Any, Any]]:
        """What each worker with participants is sent: its part, and what all of them share, which is stored once."""

        def is_shared(name: str) -> bool:
            spec = declared(self.method.downloads, name)
            return spec is not None and spec.shared

        shared = ray.put(pack({name: value for name, value in down.items() if is_shared(name)}))
        own = {name: value for name, value in down.items() if not is_shared(name)}
        out, first = {}, 0
        for w, count in enumerate(counts):
            if count:
                mine = slice_message(own, self.method.downloads, first, first + count)
                out[w] = (ray.put(pack(mine)), shared)
                first += count
        return out

    def _report(self, fresh: Mapping[int, Figures | None]) -> Evaluation:
        """All clients' figures, with those that workers sent just now; the other workers' where they changed unseen."""
        unseen = sorted(self._stale - set(fresh))
        behind = dict(zip(unseen, self._ask("figures", dict.fromkeys(unseen, ())), strict=True))
        firsts = np.cumsum([0, *map(len, self.chunks)])
        for w, figures in {**fresh, **behind}.items():
            for name, values in (figures or {}).items():
                self.figures[name][firsts[w] : firsts[w + 1]] = values
        self._stale.clear()
        return Evaluation(**{name: torch.tensor(values, device=self.device) for name, values in self.figures.items()})

    @staticmethod
    def _joined(states: Sequence[Mapping[str, Value]]) -> State:
        return {name: torch.cat([dense(state[name]) for state in states]) for name in states[0]}

    # -- workers -----------------------------------------------------------------------------------------------------

    def _ask(self, what: str, asked: Mapping[int, tuple[Any, ...]] | None = None, changes: bool = False) -> list[Any]:
        """Have workers (all, unless told) do something at once; their answers, in rising order.

        A worker that is lost is replaced. What `changes` a worker is remembered, so that its successor does it too. An error
        that a worker raised is raised here when all have answered, and nothing is tried again.
        """
        asked = dict.fromkeys(self._everyone, ()) if asked is None else asked
        sent = {w: getattr(self._actors[w], what).remote(*arguments) for w, arguments in asked.items()}
        answers: list[Any] = []
        wrong: gone.RayTaskError | None = None
        for w, arguments in asked.items():
            try:
                answers.append(self._answer(w, sent[w], what, arguments))
            except gone.RayTaskError as error:
                wrong = wrong or error
            if changes:
                self._since[w].append((what, arguments))
        if wrong is not None:
            raise wrong.cause from wrong
        return answers

    def _answer(self, w: int, answer: Any, what: str, arguments: tuple[Any, ...]) -> Any:
        """A worker's answer; where it is lost, its successor's."""
        for attempt in range(REPLACEMENTS + 1):
            try:
                return ray.get([self._opened[w], answer])[1]
            except LOST as error:
                if attempt == REPLACEMENTS:
                    hint = _AT_START if what == "hello" else _LATER
                    raise FedquiltError(
                        f"Worker {w} was lost {attempt + 1} times at the same work ({what}), so this stops here; {hint}."
                    ) from error
                _log.warning("Worker %d was lost; a new one takes its clients and goes on.", w)
                ray.kill(self._actors[w])  # it may only be out of reach
                self._actors[w] = self._start(w)
                answer = getattr(self._actors[w], what).remote(*arguments)
        raise AssertionError

    def _actor(self) -> Any:
        """A worker that holds nobody yet. It reserves no cores, so that it starts wherever there is room for it."""
        return ray.remote(RayWorker).options(num_cpus=0, num_gpus=int(self._gpu), scheduling_strategy="SPREAD").remote()

    def _start(self, w: int) -> Any:
        """A worker that will hold the clients of number `w` as they stand now: what leads there is asked of it first."""
        actor, method, device = self._actor(), self.method, "cuda" if self._gpu else "cpu"
        self._running[w] = actor.hello.remote()
        self._opened[w] = actor.open.remote(
            type(method),
            method.settings,
            method.context,
            self.chunks[w],
            device,
            self.cohort_size,
            self.precision,
            self._threads,
        )
        kept = self._snapshots[w]
        if kept is not None:
            actor.restore.remote(pack(kept))
        for what, arguments in self._since[w]:
            getattr(actor, what).remote(*arguments)
        return actor

    def _wait(self) -> None:
        """Until all workers run and have taken their clients in."""
        running = list(self._running.values())
        _, late = ray.wait(running, num_returns=len(running), timeout=START_SECONDS, fetch_local=False)
        if late:
            raise FedquiltError(
                f"Ray found no room for {len(late)} of {len(running)} workers in {START_SECONDS:.0f} seconds; "
                "see what is in use with 'ray status', or use fewer workers."
            )
        self._ask("hello")

    def _snapshot(self) -> list[State]:
        """All workers' states now, on the CPU; those that were not asked anything since the last time are not asked."""
        changed = {w: () for w in self._everyone if self._since[w] or self._snapshots[w] is None}
        for w, state in zip(changed, self._ask("state", changed), strict=True):
            self._keep(w, {name: dense(value) for name, value in unpack(state, torch.device("cpu")).items()})
        self._rounds = 0
        return [kept for kept in self._snapshots if kept is not None]

    def _keep(self, w: int, state: State) -> None:
        self._snapshots[w] = state
        self._since[w] = []


@contextmanager
def cluster() -> Iterator[None]:
    """Ray for the time of the block, left as it was found.

    That is what this process has joined already, else the cluster at RAY_ADDRESS, else the one that `ray start` started on
    this machine, else a small one that is started here, and ended whatever happens.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS", "")
    _check_answers(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        try:
            try:
                ray.init(object_store_memory=STORE_BYTES, **quiet)
            except ValueError:  # its memory is not ours to choose: there is a cluster to join
                ray.init(**quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            why = str(error).strip().split("\n")[0].rstrip(".")
            raise FedquiltError(
                f"Ray cannot be joined or started ({why}); set RAY_ADDRESS to a cluster's host:port, "
                "or to 'local' to start one here."
            ) from error
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuse an address where nobody listens: Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address or not port.isdigit():
        return  # "", "local", "auto" and addresses of other kinds are for Ray to understand
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError:
        raise FedquiltError(
            f"No Ray cluster answers at {address}; start one with 'ray start --head', or correct RAY_ADDRESS."
        ) from None


def check_workers(workers: int, clients: int) -> None:
    """Refuse more workers than clients."""
    if workers > clients:
        raise FedquiltError(f"{workers} workers cannot share {clients} clients; use --workers {clients} or fewer.")


def near_equal(sizes: Sequence[int], parts: int) -> list[range]:
    """Cut a row of sizes into `parts` runs with sums as equal as can be without looking back; none is empty."""
    ends = np.cumsum([0, *sizes])
    out, first = [], 0
    for left in range(parts - 1, -1, -1):
        # An equal share of what is left, and something for everyone who comes after.
        share = ends[first] + (ends[-1] - ends[first]) / (left + 1)
        last = first + 1 + int(np.abs(ends[first + 1 : len(sizes) - left + 1] - share).argmin())
        out.append(range(first, last if left else len(sizes)))
        first = last
    return out


def cores_each(cores: Sequence[int], workers: int) -> int:
    """The most cores a worker can have on machines with so many; 1 where there are more workers than cores."""
    return next((k for k in range(max(cores), 0, -1) if sum(c // k for c in cores) >= workers), 1)


def _on_gpus(workers: int, device: torch.device) -> bool:
    """Whether each worker has a GPU of its own: where the run is on one and Ray has some."""
    gpus = int(ray.cluster_resources().get("GPU", 0)) if device.type == "cuda" else 0
    if 0 < gpus < workers:
        raise FedquiltError(
            f"Each of {workers} workers needs a GPU and Ray has {gpus}; use --workers {gpus} or --device cpu."
        )
    return gpus > 0


def _threads(workers: int) -> int:
    """How many threads a worker computes with: OMP_NUM_THREADS, else its share of the cores."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    return int(said) if said.isdigit() else cores_each(cores, workers)


def pack(message: Mapping[str, Value]) -> Packed:
    """A message or a state for Ray to carry; arrays, because Ray stores them without taking them apart."""
    return {name: (dense(v).detach().cpu().numpy(), isinstance(v, Sparse)) for name, v in message.items()}


def unpack(packed: Packed, device: torch.device) -> Message:
    """What was packed, in memory of its own: what Ray hands over can only be read."""
    tensors = {name: torch.tensor(array, device=device) for name, (array, _) in packed.items()}
    return {name: Sparse(t) if packed[name][1] else t for name, t in tensors.items()}


def _figures(report: Evaluation) -> Figures:
    return {name: getattr(report, name).cpu().numpy() for name in Evaluation.__dataclass_fields__}
