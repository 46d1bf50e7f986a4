"""One round: download, local training, upload, aggregation. The same for every method and every engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from fedquilt.common.machine_limits import find_limit
from fedquilt.devices.cuda_graph import CudaGraphCache
from fedquilt.errors import FedquiltError, MachineLimitError
from fedquilt.messages.message import Factored, Message, check, each_tensor, message_bytes_on_device, moved
from fedquilt.messages.slicing import take_rows
from fedquilt.methods.base import Method, State
from fedquilt.training.attendance import Attendance, RoundAttendance
from fedquilt.training.buffered_uploads import BufferedUploads
from fedquilt.training.device_attendance import DeviceAttendance
from fedquilt.training.engines.base import ComputesEveryone, Engine, Evaluation, SimulatesStragglers
from fedquilt.training.newest_uploads import NewestUploads
from fedquilt.training.plan import Plan
from fedquilt.training.progress import BestRound
from fedquilt.training.round_result import RoundOutput
from fedquilt.training.upload_transforms import UploadTransform

# As `Method.aggregate`: server state, uploads, senders, receivers -> downloads.
Aggregate = Callable[[State, Message, Tensor, Tensor], Message]


class RoundRunner:
    """Runs one round at a time, and holds what the server has between rounds.

    Attributes:
        server: the server's state, changed in place.
        attendance: who takes part in which round.
        down: the download of the next round.
        aggregate: the server's step.
        newest: keeps each client's newest upload, where the method averages them and some may not send; else None.
        aggregate_seconds: the duration of the last `aggregate`.
        buffer: where uploads wait, if rounds are asynchronous.
        staleness: [k] how many aggregations each upload missed that the last round aggregated; None: it aggregated none.
        client_graphs: CUDA graphs of the clients' part of a round, where only this part is captured; else None.
        fixed_addresses: whether downloads are copied into the memory of the previous download, from which a CUDA graph reads.
        seats: who takes part, on the device, where all clients compute in each round although some sit out; else None.
    """

    def __init__(
        self,
        method: Method,
        engine: Engine,
        plan: Plan,
        upload_transforms: Sequence[UploadTransform] = (),
        wrap_aggregate: Callable[[Aggregate], Aggregate] | None = None,
    ) -> None:
        self.method, self.engine, self.plan = method, engine, plan
        self.upload_transforms = tuple(upload_transforms)
        self.aggregate_seconds = 0.0
        self.client_graphs: CudaGraphCache[tuple[Message, Evaluation | None]] | None = None
        self.fixed_addresses = False
        self.seats: DeviceAttendance | None = None
        self.staleness: Tensor | None = None
        self.server_device = torch.device("cpu") if method.host_server else engine.device
        context = method.context
        self.attendance = Attendance(
            context.seed, context.clients, plan.participation, plan.conditions, method.local_steps
        )
        everyone_sends = self.attendance.complete and not engine.clients_are_private  # a site may not answer
        self.newest = NewestUploads(method) if method.averages_newest and not everyone_sends else None
        step = method.aggregate if self.newest is None else self.newest.aggregate
        self.aggregate: Aggregate = step if wrap_aggregate is None else wrap_aggregate(step)
        if plan.conditions.stragglers and not isinstance(engine, SimulatesStragglers):
            raise FedquiltError("This engine has no stragglers; leave out stragglers, or use another engine.")
        server, down = method.server_start()
        self.buffer = BufferedUploads(method, max(1, plan.conditions.buffer)) if plan.conditions.asynchronous else None
        if self.buffer is not None:
            down = self.buffer.start(server)
        self.server, self.down = moved_state(server, self.server_device), moved(down, engine.device)
        self._all_clients: Tensor | None = None
        self._down_memory: dict[Hashable, Message] = {}  # by shapes

    def capture_clients(self, graphs: CudaGraphCache[tuple[Message, Evaluation | None]]) -> None:
        """From now on capture the clients' part of a round in CUDA graphs."""
        self.client_graphs, self.fixed_addresses = graphs, True

    def compute_everyone(self) -> None:
        """From now on let all clients compute in each round, those for nothing who sit out, so that rounds can be captured."""
        newest = self.newest is not None
        self.seats = DeviceAttendance(self.attendance, self.engine.device, self.server_device, newest)

    def prepare(self, round: int) -> None:
        """Write what differs between rounds with the same CUDA graph to the memory from which it is read."""
        if self.seats is not None:
            assert isinstance(self.engine, ComputesEveryone)
            self.seats.set(round)
            self.engine.set_clocks(round, self.seats.at_work)
        if self.newest is not None:
            self.newest.heard = None if self.seats is None else self.seats.heard

    def run(self, round: int) -> RoundOutput:
        """Run a round, after `prepare`. No value is copied to the host."""
        method, here = self.method, self.attendance.at(round)
        check(self.down, method.downloads, method.name, "download")
        bytes_down = message_bytes_on_device(self.down, method.downloads, len(here.participants))
        if not len(here.arrived) and self.buffer is None:
            self.down = without_uploads(self.down, len(here.participants))  # it will be sent again
        uploads, evaluation = self._train_clients(round, here)
        if uploads and not method.sends_in(round):
            raise RuntimeError(f"{method.name} uploads in a phase that says it sends nothing.")
        senders = here.participants if self.engine.senders is None else self.engine.senders
        down = self.down
        if self.seats is not None:
            uploads, senders = take_rows(uploads, self.seats.arrived), here.arrived
        elif len(here.arrived) < len(here.participants):
            places = torch.nonzero(torch.isin(senders, here.arrived)).ravel()
            uploads, down = take_rows(uploads, places), take_rows(down, places, method.downloads)
            senders = senders[places]
        for transform in self.upload_transforms if len(senders) else ():
            uploads = transform.applied(uploads, method.uploads, round, senders, down)
        bytes_up = message_bytes_on_device(uploads, method.uploads, len(senders)) if len(senders) else {}
        began = time.perf_counter()
        # Also after the last round: what the server then knows of the clients is that round's.
        with self._server_memory(len(senders)):
            if self.buffer is not None:
                self._aggregate_buffer(self.buffer, round, uploads, senders)
            elif len(senders):  # else the server keeps what it has, and sends it again
                self._set_download(self.aggregate(self.server, uploads, *self._senders_and_receivers(round, senders)))
            self.aggregate_seconds = time.perf_counter() - began
            with torch.no_grad():
                diagnostics = self.method.diagnostics(self.server)
        return RoundOutput(round, senders, bytes_up, bytes_down, evaluation, diagnostics, self.down)

    def _aggregate_buffer(self, buffer: BufferedUploads, round: int, uploads: Message, senders: Tensor) -> None:
        """Put uploads on their way, and aggregate those that have come if they are enough."""
        here = self.attendance.at(round)
        assert here.arrives is not None
        if len(senders):
            arrives = here.arrives[torch.isin(here.participants, senders)]
            buffer.add(self.server, uploads, senders, arrives, self.down)
        self.staleness = None
        taken = buffer.take(self.server, round, self.down)
        if taken is not None:
            come, clients, self.staleness = taken
            self._set_download(self.aggregate(self.server, come, *self._senders_and_receivers(round, clients)))

    @contextmanager
    def _server_memory(self, senders: int) -> Iterator[None]:
        """Say that it is the server's part where memory runs out inside the block: smaller cohorts would not help."""
        try:
            yield
        except Exception as error:
            limit = find_limit(error)
            capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
            if limit is None or limit.kind not in ("memory", "accelerator") or capturing:
                raise  # a capture that fails is followed by a round without one
            raise MachineLimitError(
                f"{limit.what} where {self.method.title}'s server combines what {senders} clients sent; use fewer clients, "
                "a lower --participation or a smaller model."
            ) from error

    def keep_best(self, best: BestRound, better: Tensor | None = None) -> None:
        """Copy the personal models and the similarity between clients to `best`; see `BestRound.copy_models`."""
        best.copy_models(self.engine.personal(), self.method.similarity(self.server), better)

    def graph_key(self, round: int) -> Hashable:
        """The key of a round's CUDA graph: rounds with equal keys run the same kernels on the same memory."""
        addresses = tuple(tensor.data_ptr() for value in self.down.values() for tensor in each_tensor(value))
        seats = None if self.seats is None else self.seats.key(round)
        return self.method.round_key(round), self.evaluates(round), seats, tuple(self.down), addresses

    def evaluates(self, round: int) -> bool:
        """Whether clients are evaluated after this round: as the plan says, in phases that are evaluated."""
        return self.plan.evaluates(round) and self.method.phase(round)[0].evaluated

    def _train_clients(self, round: int, here: RoundAttendance) -> tuple[Message, Evaluation | None]:
        """The clients' part of the round: uploads, and all clients' metrics where the round is evaluated."""
        if isinstance(self.engine, SimulatesStragglers):
            self.engine.efforts = here.efforts
        evaluates = self.evaluates(round)
        if self.seats is not None:
            step = partial(self._train_everyone, round, self.seats)
            return step() if self.client_graphs is None else self._replayed(round, step)
        behind = evaluates and self._has_unevaluated(round, here.participants)
        step = partial(self.engine.round, round, here.participants, self.down, evaluates and not behind)
        if self.client_graphs is None:
            nobody = not len(here.participants)
            uploads, evaluation = ({}, None) if nobody else step()
            if behind or (nobody and evaluates):
                evaluation = self.engine.evaluate()
            joined = self.attendance.joined(round)
            return uploads, evaluation if evaluation is None or joined is None else evaluation.of(joined)
        return self._replayed(round, step)

    def _replayed(
        self, round: int, step: Callable[[], tuple[Message, Evaluation | None]]
    ) -> tuple[Message, Evaluation | None]:
        assert self.client_graphs is not None
        out = self.client_graphs(self.graph_key(round), step)
        self.engine.forget()  # a replayed graph changes the states, not the models that the engine remembers
        return out

    def _train_everyone(self, round: int, seats: DeviceAttendance) -> tuple[Message, Evaluation | None]:
        """The same with the shapes of all clients: uploads have a row for each, and everyone is evaluated with what it has."""
        assert isinstance(self.engine, ComputesEveryone)
        down = seats.for_everyone(self.down, self.method.downloads)
        uploads, evaluation = self.engine.round_of_everyone(round, seats.at_work, down, self.evaluates(round))
        if evaluation is not None and self.attendance.joined(round) is not None:
            evaluation = evaluation.of(seats.joined)
        return uploads, evaluation

    def _has_unevaluated(self, round: int, here: Tensor) -> bool:
        """Whether a client that does not take part in this round trained since the last round that was evaluated.

        Sites report metrics with their uploads only.
        """
        if self.attendance.complete or self.engine.clients_are_private:
            return False
        for before in range(round - 1, -1, -1):
            if self.evaluates(before):
                return False
            if not bool(torch.isin(self.attendance.at(before).participants, here).all()):
                return True
        return False

    def _senders_and_receivers(self, round: int, senders: Tensor) -> tuple[Tensor, Tensor]:
        """The senders of this round and the participants of the next, on the server's device.

        Where both are all clients it is the same tensor in every round, so that a CUDA graph may read it.
        """
        if self.seats is not None:
            return self.seats.senders, self.seats.receivers
        context = self.method.context
        receivers = self.attendance.at(round + 1).participants
        if len(senders) == len(receivers) == context.clients:
            if self._all_clients is None:
                self._all_clients = senders.to(self.server_device)
            return self._all_clients, self._all_clients
        return senders.to(self.server_device), receivers.to(self.server_device)

    def _set_download(self, down: Message) -> None:
        """Set the next download; if addresses are fixed, copied into the memory of an earlier one with the same shapes."""
        if not self.fixed_addresses:
            self.down = down
            return
        self.down = self._down_memory.setdefault(_shapes(down), down)
        for name, value in down.items():
            for new, old in zip(each_tensor(value), each_tensor(self.down[name]), strict=True):
                if new is not old:
                    old.copy_(new)


def without_uploads(down: Message, receivers: int) -> Message:
    """A download whose values do not depend on uploads of the round before: the next round may overwrite their memory."""
    return {name: v.rows(0, receivers) if isinstance(v, Factored) else v for name, v in down.items()}


def _shapes(message: Message) -> Hashable:
    """The names of a message and the shapes of all its tensors."""
    return tuple((name, *(tensor.shape for tensor in each_tensor(value))) for name, value in sorted(message.items()))


def moved_state(state: Mapping[str, Tensor], device: torch.device) -> State:
    """The same tensors on a device."""
    return {name: tensor.to(device) for name, tensor in state.items()}
