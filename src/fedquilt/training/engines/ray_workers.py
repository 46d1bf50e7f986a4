"""The Ray engine: the clients in several worker processes, on one machine or on a cluster.

A worker (`ray_worker`) holds some of the clients in an in-process engine. All workers train at once. This process is
the server: it cuts downloads, joins uploads, and stores what it needs to replace a lost worker. A client's random
numbers belong to the client, so results do not depend on the number of workers.

Importing this module needs Ray: pip install 'fedquilt[ray]'.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.common.registry import loaded_plugins
from fedquilt.devices.device import Precision
from fedquilt.errors import FedquiltError, MachineLimitError
from fedquilt.messages.message import Message, Value, declared, dense
from fedquilt.messages.slicing import join_messages, slice_message
from fedquilt.methods.base import Method, State
from fedquilt.training.engines.base import EVALUATION_FIELDS, Evaluation
from fedquilt.training.engines.ray_cluster import gpu_each, ray, ray_errors, threads_each
from fedquilt.training.engines.ray_worker import Metrics, RayWorker, pack, unpack
from fedquilt.training.engines.registry import RAY_WORKERS, EngineOptions, register_engine

SNAPSHOT_ROUNDS = 10  # rounds between two snapshots of the workers' states
REPLACEMENTS = 3  # how often a worker is replaced for the same request
START_SECONDS = 300.0  # how long to wait until the cluster has room
LOST = (
    ray_errors.RayActorError,
    ray_errors.WorkerCrashedError,
    ray_errors.OutOfMemoryError,
    ray_errors.NodeDiedError,
    ray_errors.ObjectLostError,
)

_AT_START = "see that every machine has the same versions of fedquilt and Ray"
_LATER = "if it ran out of memory, use more workers or a smaller --cohort-size"
_log = logging.getLogger(__name__)


@register_engine(RAY_WORKERS)
def make_ray_workers(method: Method, clients: Sequence[Client], options: EngineOptions) -> RayWorkers:
    """The engine that a run's options ask for."""
    assert options.workers is not None
    return RayWorkers(
        method, clients, options.workers, options.device, options.cohort_size, options.precision, options.threads
    )


class RayWorkers:
    """Runs the clients in `workers` processes on Ray, in rising order, with near-equal numbers of nodes each.

    A lost worker is replaced without a change of results: its state is fetched every SNAPSHOT_ROUNDS rounds, and later
    calls are remembered. The replacement restores the state and repeats the calls.

    Memory: this process holds all graphs, all clients' states at the last snapshot, and the uploads of one round. The downloads
    since the snapshot are in Ray's object store, a shared tensor once.
    """

    supports_cuda_graphs = False  # a round runs in other processes
    senders: Tensor | None = None
    clients_are_private = False
    efforts: Mapping[int, float] = {}
    reported: dict[str, float] = {}  # noqa: RUF012 (never changed)

    def __init__(
        self,
        method: Method,
        clients: Sequence[Client],
        workers: int,
        device: torch.device | str = "cpu",
        cohort_size: int | None = None,
        precision: Precision = "float32",
        threads: int | None = None,
    ) -> None:
        check_workers(workers, len(clients))
        self.method = method
        self.timings: dict[str, float] = {}  # not measured: workers run at the same time
        self.device = torch.device(device)  # the server's; workers may have GPUs of their own
        self.cohort_size, self.precision = cohort_size, precision
        self.chunks = [
            clients[part.start : part.stop] for part in near_equal([c.graph.nodes for c in clients], workers)
        ]
        self.ids = [torch.tensor([client.id for client in chunk]) for chunk in self.chunks]
        self.metrics = {name: np.full(len(clients), np.nan, np.float32) for name in EVALUATION_FIELDS}
        self._everyone = range(workers)
        self._stale = set(self._everyone)  # workers whose metrics changed without being sent
        self._snapshots: list[State | None] = [None] * workers  # None: the initial state
        self._since: list[list[tuple[str, tuple[Any, ...]]]] = [[] for _ in self._everyone]  # calls since the snapshot
        self._rounds = 0  # since the snapshot
        self._gpu = gpu_each(workers, self.device)
        self._threads = threads or threads_each(workers)
        self._running: dict[int, Any] = {}
        self._opened: dict[int, Any] = {}
        self._actors = {w: self._start(w) for w in self._everyone}
        self._wait()

    # -- the engine interface ----------------------------------------------------------------------------------------

    def evaluate(self) -> Evaluation:
        """Evaluate the current models of all clients."""
        return self._evaluation(dict(zip(self._everyone, self._ask("evaluate", changes=True), strict=True)))

    def round(
        self, round: int, participants: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """Train the participants, all workers at once."""
        here = [ids[torch.isin(ids, participants)].tolist() for ids in self.ids]
        asked = {
            w: (round, here[w], evaluate, *messages, {m: self.efforts[m] for m in here[w] if m in self.efforts})
            for w, messages in self._cut(down, [len(some) for some in here]).items()
        }
        answers = dict(zip(asked, self._ask("round", asked, changes=True), strict=True))
        uploads = join_messages([unpack(upload, self.device) for upload, _ in answers.values()])
        self._stale |= set(asked)
        evaluation = self._evaluation({w: metrics for w, (_, metrics) in answers.items()}) if evaluate else None
        self._rounds += 1
        if self._rounds >= SNAPSHOT_ROUNDS:
            self._snapshot()
        return uploads, evaluation

    def settle(self, down: Message) -> Evaluation:
        """Let clients that were admitted after training take their last step, and evaluate them."""
        asked = self._cut(down, [len(ids) for ids in self.ids])
        return self._evaluation(dict(zip(asked, self._ask("settle", asked, changes=True), strict=True)))

    def predictions(self) -> list[Tensor]:
        """The current predictions at all nodes: a tensor [n_m, C] for each client, on the CPU."""
        return [torch.tensor(each) for answer in self._ask("predictions") for each in answer]

    def personal(self) -> State:
        """The current personal models of all clients."""
        return self._joined([unpack(answer, self.device) for answer in self._ask("personal")])

    def forget(self) -> None:
        """Drop the personal models that workers remember."""
        self._ask("forget")

    def state(self) -> State:
        """The clients' states and metrics."""
        return {name: tensor.to(self.device) for name, tensor in self._joined(self._snapshot()).items()}

    def restore(self, state: State) -> None:
        """Set the state to one that `state` returned, here, with another number of workers, or in process."""
        first = 0
        for w, chunk in enumerate(self.chunks):
            self._set_snapshot(w, {n: t[first : first + len(chunk)].detach().cpu().clone() for n, t in state.items()})
            first += len(chunk)
        self._rounds = 0
        self._stale = set(self._everyone)
        self._ask("restore", {w: (pack(kept or {}),) for w, kept in enumerate(self._snapshots)})

    # -- messages ----------------------------------------------------------------------------------------------------

    def _cut(self, down: Message, counts: Sequence[int]) -> dict[int, tuple[Any, Any]]:
        """The download of each worker with participants: its own part, and the shared part, which is stored once."""

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

    def _evaluation(self, fresh: Mapping[int, Metrics | None]) -> Evaluation:
        """All clients' metrics: `fresh` by worker, and those of workers whose metrics changed without being sent."""
        unseen = sorted(self._stale - set(fresh))
        behind = dict(zip(unseen, self._ask("metrics", dict.fromkeys(unseen, ())), strict=True))
        firsts = np.cumsum([0, *map(len, self.chunks)])
        for w, metrics in {**fresh, **behind}.items():
            for name, values in (metrics or {}).items():
                self.metrics[name][firsts[w] : firsts[w + 1]] = values
        self._stale.clear()
        return Evaluation(**{name: torch.tensor(values, device=self.device) for name, values in self.metrics.items()})

    @staticmethod
    def _joined(states: Sequence[Mapping[str, Value]]) -> State:
        return {name: torch.cat([dense(state[name]) for state in states]) for name in states[0]}

    # -- workers -----------------------------------------------------------------------------------------------------

    def _ask(self, what: str, asked: Mapping[int, tuple[Any, ...]] | None = None, changes: bool = False) -> list[Any]:
        """Call the method `what` of workers with these arguments, all at once; their answers, in rising order.

        A lost worker is replaced. A call that `changes` a worker is remembered, so that its replacement repeats it. An error
        that a worker raised is raised here when all have answered; the call is not repeated.
        """
        asked = dict.fromkeys(self._everyone, ()) if asked is None else asked
        sent = {w: getattr(self._actors[w], what).remote(*arguments) for w, arguments in asked.items()}
        answers: list[Any] = []
        wrong: ray_errors.RayTaskError | None = None
        for w, arguments in asked.items():
            try:
                answers.append(self._answer(w, sent[w], what, arguments))
            except ray_errors.RayTaskError as error:
                wrong = wrong or error
            if changes:
                self._since[w].append((what, arguments))
        if wrong is not None:
            raise wrong.cause from wrong
        return answers

    def _answer(self, w: int, answer: Any, what: str, arguments: tuple[Any, ...]) -> Any:
        """A worker's answer; if the worker is lost, that of its replacement."""
        for attempt in range(REPLACEMENTS + 1):
            try:
                return ray.get([self._opened[w], answer])[1]
            except LOST as error:
                if attempt == REPLACEMENTS:
                    kind, hint = (FedquiltError, _AT_START) if what == "hello" else (MachineLimitError, _LATER)
                    raise kind(
                        f"Worker {w} was lost {attempt + 1} times at the same work ({what}), so this stops here; {hint}."
                    ) from error
                _log.warning("Worker %d was lost; a new one takes its clients and goes on.", w)
                ray.kill(self._actors[w])  # it may be alive but unreachable
                self._actors[w] = self._start(w)
                answer = getattr(self._actors[w], what).remote(*arguments)
        raise AssertionError

    def _actor(self) -> Any:
        """A new worker without clients. It reserves no cores, so that it starts on any machine."""
        return ray.remote(RayWorker).options(num_cpus=0, num_gpus=int(self._gpu), scheduling_strategy="SPREAD").remote()

    def _start(self, w: int) -> Any:
        """Start worker `w`: restore its last snapshot and repeat the calls since then."""
        actor, method, device = self._actor(), self.method, "cuda" if self._gpu else "cpu"
        self._running[w] = actor.hello.remote()
        if plugins := loaded_plugins():
            actor.load.remote(plugins)
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
        """Wait until all workers run and have built their engines."""
        running = list(self._running.values())
        _, late = ray.wait(running, num_returns=len(running), timeout=START_SECONDS, fetch_local=False)
        if late:
            raise FedquiltError(
                f"Ray found no room for {len(late)} of {len(running)} workers in {START_SECONDS:.0f} seconds; "
                "see what is in use with 'ray status', or use fewer workers."
            )
        self._ask("hello")

    def _snapshot(self) -> list[State]:
        """The states of all workers, on the CPU; only workers that changed since their last snapshot are asked."""
        changed = {w: () for w in self._everyone if self._since[w] or self._snapshots[w] is None}
        for w, state in zip(changed, self._ask("state", changed), strict=True):
            self._set_snapshot(w, {name: dense(value) for name, value in unpack(state, torch.device("cpu")).items()})
        self._rounds = 0
        return [kept for kept in self._snapshots if kept is not None]

    def _set_snapshot(self, w: int, state: State) -> None:
        self._snapshots[w] = state
        self._since[w] = []


def check_workers(workers: int, clients: int) -> None:
    """Raise where there are more workers than clients."""
    if workers > clients:
        raise FedquiltError(f"{workers} workers cannot share {clients} clients; use --workers {clients} or fewer.")


def near_equal(sizes: Sequence[int], parts: int) -> list[range]:
    """Cut a list of sizes into `parts` ranges with near-equal sums, greedily from the left; none is empty."""
    ends = np.cumsum([0, *sizes])
    out, first = [], 0
    for left in range(parts - 1, -1, -1):
        # An equal share of what is left; at least one size stays for every later range.
        share = ends[first] + (ends[-1] - ends[first]) / (left + 1)
        last = first + 1 + int(np.abs(ends[first + 1 : len(sizes) - left + 1] - share).argmin())
        out.append(range(first, last if left else len(sizes)))
        first = last
    return out
