"""The engine whose clients are sites, asked over Flower's grid. It holds uploads and metrics; models stay at the sites."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.dispatch import NoReply, RequestBatch
from fedquilt.federation.coordinator.roster import Roster
from fedquilt.federation.message_checks import (
    FEWEST,
    BadMessageError,
    ExpectedMessages,
    overlong_uploads,
    read_upload,
)
from fedquilt.federation.protocol import (
    EVALUATE,
    FINISH,
    ROUND,
    SECURE_STAGES,
    Reply,
    Request,
    read_metrics,
)
from fedquilt.graphs.preparation import PrepareKind
from fedquilt.messages.message import Message
from fedquilt.messages.slicing import join_messages, slice_message
from fedquilt.messages.wire import encode
from fedquilt.methods.base import Method, State
from fedquilt.methods.settings import as_dict
from fedquilt.privacy.dp import BudgetSpentError
from fedquilt.training.engines.base import EVALUATION_FIELDS, Evaluation

RETRY_SECONDS = 5.0  # until a site that could not answer is asked again
REACH_SECONDS = 1.0  # between looks for sites that could not be reached
_FLOWER_TYPES = {ROUND: "train", EVALUATE: "evaluate", FINISH: "query"} | dict.fromkeys(SECURE_STAGES, "query")


@dataclass(frozen=True)
class RoundRules:
    """How long a round waits, and for how many sites.

    Attributes:
        timeout: seconds that a site has to answer.
        min_sites: a round needs usable uploads from so many of its sites (from all, where it has fewer). 0: all sites are
            waited for; the round goes on only without those that refuse or whose uploads cannot be used.
        tries: how often sites that did not answer are asked before the run stops.
        norm_limit: an upload with a tensor of more than so many times the median norm of the others' is not used.
        size_limit: no count that a site sends may be more than so many times the nodes of the median of the other sites.
    """

    timeout: float = 600.0
    min_sites: int = 0
    tries: int = 3
    norm_limit: float = 30.0
    size_limit: float = 100.0


class FlowerEngine:
    """Asks all sites of a round at once, and uses the uploads of those that answer in time.

    Args:
        run: the run's random name.
        rounds: how many rounds are planned.
        restarts: how often the coordinator was restarted.

    Attributes:
        best_round: gives the best round so far; sites keep their models of that round.
        prepare: how sites prepare their features.
        told: the largest epsilon that sites reported, for the records of the rounds.
        metrics: [5, M] the newest losses and metrics of each site.
    """

    supports_cuda_graphs = False
    clients_are_private = True

    def __init__(
        self, method: Method, roster: Roster, rules: RoundRules, run: str, rounds: int, restarts: int = 0
    ) -> None:
        self.method, self.roster, self.rules = method, roster, rules
        self.run, self.rounds, self.restarts = run, rounds, restarts
        self.device = torch.device("cpu")
        self.timings: dict[str, float] = {}
        self.senders: Tensor | None = None
        self.reported: dict[str, float] = {}
        self.best_round: Callable[[], int] = lambda: -1
        self.prepare: PrepareKind = "none"
        self.expected = ExpectedMessages(method)
        self.metrics = torch.full((len(EVALUATION_FIELDS), method.context.clients), math.nan)
        self.metrics[EVALUATION_FIELDS.index("finite")] = 1.0
        self._round = -1  # the round that is under way
        self._form: Message = {}  # of the uploads in the last round
        self._budget_spent: set[int] = set()  # sites that will not send any more
        self._unreachable: set[int] = set()  # sites of the last requests that could not be reached
        self._refused: set[int] = set()  # sites of the last requests that refused, or sent a reply that cannot be read

    # -- the engine protocol -------------------------------------------------------------------------------------------

    def evaluate(self) -> Evaluation:
        """Ask all sites to evaluate the models they have now."""
        replies = self._ask(EVALUATE, -1, dict.fromkeys(range(self.method.context.clients), b""), True)
        for m, (header, _) in replies.items():
            self._take_metrics(m, header)
        return self._evaluation()

    def round(
        self, round: int, participants: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """One round with the sites that answer. An upload that cannot be used is left out, with an incident."""
        here = participants.tolist()
        downloads = {m: slice_message(down, self.method.downloads, row, row + 1) for row, m in enumerate(here)}
        form = self._upload_form(round, downloads[here[0]])
        waiting = {m: encode(message) for m, message in downloads.items() if m not in self._budget_spent}
        uploads: dict[int, Message] = {}
        seconds: list[Any] = []
        began, self._round = time.perf_counter(), round
        for attempt in range(self.rules.tries if waiting else 0):
            replies = self._ask(ROUND, round, waiting, evaluate, self._needed(here, waiting, uploads) - len(uploads))
            for m, (header, body) in replies.items():
                del waiting[m]
                try:
                    most = self.roster.largest_count(m, self.rules.size_limit)
                    uploads[m] = read_upload(body, form, self.method.uploads, self.roster.is_protected(m), most)
                except BadMessageError as error:
                    self.note_unused_upload(m, str(error))
                    continue
                self._take_metrics(m, header)
                self._take_epsilon(m, header)
                seconds.append(header.get("seconds", {}))
            waiting = {m: body for m, body in waiting.items() if m not in self._refused}
            needed = self._needed(here, waiting, uploads)
            if len(uploads) >= needed or not waiting:
                break
            self._add_incident(
                round, None, "too few", f"{len(uploads)} of {needed} sites answered in try {attempt + 1}"
            )
        noisy = {m for m in uploads if self.roster.is_protected(m)}
        start = {} if len(uploads) >= FEWEST else self.method.public_start()
        known = {m: start | downloads[m] for m in uploads}
        for m, why in overlong_uploads(uploads, self.method.uploads, noisy, self.rules.norm_limit, known).items():
            self.note_unused_upload(m, why)
            del uploads[m]
        self._check_enough(round, here, waiting, uploads)
        for m in waiting:
            why = "cannot be reached" if m in self._unreachable else "gave no answer in time"
            self._add_incident(round, m, "absent", f"it {why}, so the round goes on without it")
        answered = sorted(uploads)
        self.senders = torch.tensor(answered)
        self.timings = slowest(seconds)
        self.timings["waiting"] = max(0.0, time.perf_counter() - began - sum(self.timings.values()))
        return join_messages([uploads[m] for m in answered]), self._evaluation() if evaluate else None

    def settle(self, down: Message) -> Evaluation:
        """Not possible: no site is admitted after training."""
        raise FedquiltError("Sites cannot be admitted after training.")

    def predictions(self) -> list[Tensor]:
        """Not possible: sites predict for themselves."""
        raise FedquiltError("Predictions stay at the sites; each makes its own with 'fedquilt predict'.")

    def personal(self) -> State:
        """Nothing: personal models do not leave their sites."""
        return {}

    def forget(self) -> None:
        """Nothing to do: no personal models are held here."""

    def state(self) -> State:
        """The metrics; the clients' states are at their sites."""
        return {"figures": self.metrics.clone()}

    def restore(self, state: State) -> None:
        """Continue with the metrics that `state` returned."""
        self.metrics.copy_(state["figures"])

    # -- beside the protocol -------------------------------------------------------------------------------------------

    def finish(self, rounds: int) -> list[str]:
        """Tell the sites that the training is over; the names of those that confirmed that they have their model."""
        replies = self._ask(FINISH, rounds, dict.fromkeys(range(self.method.context.clients), b""), False)
        return [self.roster.names[m] for m in sorted(replies)]

    def note_unused_upload(self, m: int, why: str) -> None:
        """Add an incident: a site's upload is not used in the round that is under way."""
        self._add_incident(self._round, m, "upload", f"its upload {why}, so it is left out of the round")

    # -- rounds --------------------------------------------------------------------------------------------------------

    def _needed(self, here: Sequence[int], waiting: Collection[int], uploads: Collection[int]) -> int:
        """How many uploads the round needs: `min_sites`, or those of all sites that may still send one."""
        if self.rules.min_sites:
            return min(self.rules.min_sites, len(here))
        return len(uploads) + len(waiting)

    def _check_enough(
        self, round: int, here: Sequence[int], waiting: Collection[int], uploads: Collection[int]
    ) -> None:
        """Stop the run where a round has too few uploads."""
        needed = max(1, self._needed(here, waiting, uploads))
        if len(uploads) >= needed:
            return
        if len(set(here) - self._budget_spent) < needed:
            raise BudgetSpentError(
                f"Round {round} needs {needed} sites, and {len(self._budget_spent)} have spent their privacy budgets."
            )
        raise FedquiltError(
            f"Round {round} got uploads that can be used from {len(uploads)} of {len(here)} sites and needs {needed}; "
            "see incidents.jsonl, and start the run again with the same 'out' to go on."
        )

    def _upload_form(self, round: int, down: Message) -> Message:
        """The form of this round's uploads; that of an earlier round where the dummy client cannot train on the download."""
        try:
            self._form = self.expected.upload_form(round, down)
        except (RuntimeError, ArithmeticError, ValueError):
            if not self._form:
                raise
        return self._form

    # -- requests ------------------------------------------------------------------------------------------------------

    def _ask(
        self, kind: str, round: int, bodies: dict[int, bytes], evaluate: bool, needed: int = 0
    ) -> dict[int, Reply]:
        """Send a request to each site in `bodies`; the replies in time that are no refusals.

        Sites that cannot be reached are looked for again until the deadline, as long as fewer than `needed` replied.
        """
        batch = RequestBatch(self.roster.grid, _FLOWER_TYPES[kind], str(round), self.rules.timeout)
        out: dict[int, Reply] = {}
        unsent, next_look = set(bodies), 0.0
        sites: dict[int, int] = {}  # by their nodes
        self._refused = set()
        while True:
            if unsent and time.monotonic() >= next_look:
                for m, node in self.roster.reachable(unsent, batch.seconds_left).items():
                    batch.send(node, self._request(kind, round, m, evaluate).to_header(), bodies[m])
                    sites[node] = m
                    unsent.discard(m)
                next_look = time.monotonic() + REACH_SECONDS
            for node, reply in batch.collect():
                m = sites[node]
                if isinstance(reply, NoReply):
                    if reply.retry:  # the site may have been restarted
                        self._add_incident(round, m, "reply", f"it gave no answer that can be used ({reply.reason})")
                        unsent.add(m)
                        next_look = time.monotonic() + RETRY_SECONDS
                    else:
                        self._refused.add(m)
                        self._add_incident(
                            round, m, "upload", f"its reply {reply.reason}, so it is left out of the round"
                        )
                elif "refused" in reply[0]:
                    self._take_refusal(round, m, reply[0])
                else:
                    out[m] = reply
            if (not batch.open and (not unsent or len(out) >= needed)) or batch.expired:
                break
            batch.pause()
        self._unreachable = unsent
        return out

    def _request(self, kind: str, round: int, m: int, evaluate: bool) -> Request:
        return Request(
            kind=kind,
            run=self.run,
            coordinator=self.restarts,
            round=round,
            best=self.best_round(),
            client=m,
            rounds=self.rounds,
            method=self.method.name,
            settings=as_dict(self.method.settings),
            task=self.method.context.to_dict(),
            evaluate=evaluate,
            prepare=self.prepare,
        )

    # -- what sites reply ----------------------------------------------------------------------------------------------

    def _take_refusal(self, round: int, m: int, header: dict[str, Any]) -> None:
        # Only a site that protects its uploads has a budget to spend.
        spent = header.get("spent") is True and self.roster.is_protected(m)
        if spent:
            self._budget_spent.add(m)
        self._refused.add(m)
        why = str(header["refused"])[:500].rstrip(".")
        self._add_incident(round, m, "budget" if spent else "refused", f"it refused: {why}")

    def _take_epsilon(self, m: int, header: dict[str, Any]) -> None:
        """Keep the largest epsilon that a site reports to have spent."""
        epsilon = header.get("epsilon")
        if self.roster.is_protected(m) and isinstance(epsilon, float) and 0 <= epsilon < math.inf:
            self.reported["epsilon"] = max(epsilon, self.reported.get("epsilon", 0.0))

    def _take_metrics(self, m: int, header: dict[str, Any]) -> None:
        """Keep a site's losses and metrics, where it reported any."""
        if header.get("figures") is None:
            return
        metrics = read_metrics(header["figures"], self.method.task.metric(self.method.context.metric))
        if metrics is None:
            self._add_incident(None, m, "figures", "its figures cannot be right, so they are left out")
            metrics = [math.nan] * (len(EVALUATION_FIELDS) - 1) + [1.0]
        self.metrics[:, m] = torch.tensor(metrics)

    def _evaluation(self) -> Evaluation:
        return Evaluation(*self.metrics.clone())

    def _add_incident(self, round: int | None, m: int | None, what: str, reason: str) -> None:
        site = None if m is None else self.roster.names[m]
        where = "" if round is None else f"Round {round}: "
        self.roster.incidents.add(round, site, what, f"{where}{'' if site is None else f'site {site}: '}{reason}.")


def slowest(seconds: Sequence[Any]) -> dict[str, float]:
    """The longest time that a site says it spent on each phase."""
    out: dict[str, float] = {}
    for times in seconds:
        for phase in ("prepare", "train"):
            spent = times.get(phase, 0.0) if isinstance(times, dict) else 0.0
            if isinstance(spent, float) and 0 <= spent < 1e6:
                out[phase] = max(out.get(phase, 0.0), spent)
    return out
