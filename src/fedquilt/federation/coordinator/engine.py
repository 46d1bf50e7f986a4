"""The engine that asks sites over Flower's grid. What a site keeps stays there; here are uploads and figures only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.roster import NoReply, Sites
from fedquilt.federation.message_checks import BadMessageError, Expected, overlong, taken
from fedquilt.federation.site.requests import EVALUATE, FINISH, ROUND, read_figures
from fedquilt.messages.message import Message
from fedquilt.messages.wire import encode
from fedquilt.methods.base import Method, State
from fedquilt.methods.settings import as_dict
from fedquilt.privacy.dp import BudgetSpentError
from fedquilt.training.engines.base import EVALUATION_FIELDS, Evaluation
from fedquilt.training.engines.in_process import join_messages, slice_message

AGAIN = 5.0  # seconds until a site that could not answer is asked again
LOOK = 1.0  # seconds between looks for sites that cannot be reached
_TYPES = {ROUND: "train", EVALUATE: "evaluate", FINISH: "query"}


@dataclass(frozen=True)
class Rules:
    """How long a round waits, and for whom.

    Attributes:
        timeout: seconds that a site has to answer.
        min_sites: a round counts when so many of its sites (or all, where it has fewer) sent something that can be used; 0:
            all sites are waited for, and only those that refuse or whose uploads cannot be used are done without.
        tries: how often those who did not answer are asked before the run stops.
        norm_limit: an upload so many times as long as the median one is not used.
    """

    timeout: float = 600.0
    min_sites: int = 0
    tries: int = 3
    norm_limit: float = 1000.0


class FlowerSites:
    """Every client is a site somewhere else; they are asked all at once, and those who answer in time count.

    Attributes:
        best: says which round was the best so far; sites keep the model of that round.
    """

    records = False
    private = True

    def __init__(self, method: Method, sites: Sites, rules: Rules, run: str, rounds: int, coordinator: int = 0) -> None:
        self.method, self.sites, self.rules = method, sites, rules
        self.device = torch.device("cpu")
        self.phases: dict[str, float] = {}
        self.answered: Tensor | None = None
        self.told: dict[str, float] = {}
        self.now = -1  # the round that is under way
        self._form: Message = {}
        self._spent: set[int] = set()
        self._unreached: set[int] = set()
        self._lost: set[int] = set()
        self.best: Callable[[], int] = lambda: -1
        self.expected = Expected(method)
        self.figures = torch.full((len(EVALUATION_FIELDS), method.context.clients), math.nan)
        self.figures[EVALUATION_FIELDS.index("sound")] = 1.0
        self._run = {
            "run": run,
            "coordinator": coordinator,
            "rounds": rounds,
            "method": method.name,
            "settings": as_dict(method.settings),
            "task": method.context.to_dict(),
        }

    # -- what the round loop asks ------------------------------------------------------------------------------------

    def evaluate(self) -> Evaluation:
        """How all sites stand with the models they have now."""
        replies = self._ask(EVALUATE, -1, dict.fromkeys(range(self.method.context.clients), b""), True)
        for m, (header, _) in replies.items():
            self._measured(m, header)
        return self._report()

    def round(
        self, round: int, participants: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """One round for the sites that answer; those whose uploads cannot be used are left out of it, with a reason."""
        here = participants.tolist()
        cut = {m: slice_message(down, self.method.downloads, place, place + 1) for place, m in enumerate(here)}
        like = self._like(round, cut[here[0]])
        waiting = {m: encode(message) for m, message in cut.items() if m not in self._spent}
        uploads: dict[int, Message] = {}
        at_sites: list[dict[str, Any]] = []
        began, self.now = time.perf_counter(), round
        for attempt in range(self.rules.tries if waiting else 0):
            replies = self._ask(ROUND, round, waiting, evaluate, self._needed(here, waiting, uploads) - len(uploads))
            for m, (header, body) in replies.items():
                del waiting[m]
                try:
                    uploads[m] = taken(body, like, self.method.uploads, self.sites.protected(m))
                except BadMessageError as error:
                    self.left_out(m, str(error))
                    continue
                self._measured(m, header)
                self._spending(m, header)
                at_sites.append(header.get("seconds", {}))
            waiting = {m: body for m, body in waiting.items() if m not in self._lost}
            needed = self._needed(here, waiting, uploads)
            if len(uploads) >= needed or not waiting:
                break
            self._incident(round, None, "too few", f"{len(uploads)} of {needed} sites answered in try {attempt + 1}")
        noisy = {m for m in uploads if self.sites.protected(m)}
        for m, why in overlong(uploads, self.method.uploads, noisy, self.rules.norm_limit).items():
            self.left_out(m, why)
            del uploads[m]
        self._check_enough(round, here, waiting, uploads)
        for m in waiting:
            why = "cannot be reached" if m in self._unreached else "gave no answer in time"
            self._incident(round, m, "absent", f"it {why}, so the round goes on without it")
        answered = sorted(uploads)
        self.answered = torch.tensor(answered)
        self.phases = _slowest(at_sites)
        self.phases["waiting"] = max(0.0, time.perf_counter() - began - sum(self.phases.values()))
        return join_messages([uploads[m] for m in answered]), self._report() if evaluate else None

    def _needed(self, here: Sequence[int], waiting: Collection[int], uploads: Collection[int]) -> int:
        """How many uploads the round has to have: as many as the rules say, or those of all who may still send one."""
        if self.rules.min_sites:
            return min(self.rules.min_sites, len(here))
        return len(uploads) + len(waiting)

    def _check_enough(
        self, round: int, here: Sequence[int], waiting: Collection[int], uploads: Collection[int]
    ) -> None:
        needed = max(1, self._needed(here, waiting, uploads))
        if len(uploads) >= needed:
            return
        if len(set(here) - self._spent) < needed:
            raise BudgetSpentError(
                f"Round {round} needs {needed} sites, and {len(self._spent)} have spent their privacy budgets."
            )
        raise FedquiltError(
            f"Round {round} got uploads that can be used from {len(uploads)} of {len(here)} sites and needs {needed}; "
            "see incidents.jsonl, and start the run again with the same 'out' to go on."
        )

    def _like(self, round: int, down: Message) -> Message:
        """What an upload looks like; as in an earlier round where a made-up client cannot do anything with the download."""
        try:
            self._form = self.expected.upload(round, down)
        except (RuntimeError, ArithmeticError, ValueError):
            if not self._form:
                raise
        return self._form

    def finish(self, rounds: int) -> list[str]:
        """Tell sites that the training is over; the names of those who confirmed that they have their model."""
        replies = self._ask(FINISH, rounds, dict.fromkeys(range(self.method.context.clients), b""), False)
        return [self.sites.names[m] for m in sorted(replies)]

    def personal(self) -> State:
        """Nothing: personal models do not leave their sites."""
        return {}

    def forget(self) -> None:
        """There is nothing to forget."""

    def state(self) -> State:
        """The figures; what sites keep is with them."""
        return {"figures": self.figures.clone()}

    def restore(self, state: State) -> None:
        """Go on with the figures that `state` gave."""
        self.figures.copy_(state["figures"])

    # -- asking ------------------------------------------------------------------------------------------------------

    def _ask(
        self, kind: str, round: int, bodies: dict[int, bytes], evaluate: bool, needed: int = 0
    ) -> dict[int, tuple[dict[str, Any], bytes]]:
        """What sites replied in time who did not refuse. Those out of reach are waited for while so many are `needed`."""
        post = self.sites.post(_TYPES[kind], str(round), self.rules.timeout)
        said = {"kind": kind, "round": round, "best": self.best(), "evaluate": evaluate, **self._run}
        out: dict[int, tuple[dict[str, Any], bytes]] = {}
        missing, look = set(bodies), 0.0
        asked: dict[int, int] = {}
        self._lost = set()
        while True:
            if missing and time.monotonic() >= look:
                for m, node in self.sites.reach(missing, post.left).items():
                    post.send(node, {**said, "client": m}, bodies[m])
                    asked[node] = m
                    missing.discard(m)
                look = time.monotonic() + LOOK
            for node, reply in post.collect():
                m = asked[node]
                if isinstance(reply, NoReply):
                    if reply.again:  # it may have been restarted: asked again while it is needed
                        self._incident(round, m, "reply", f"it gave no answer that can be used ({reply.reason})")
                        missing.add(m)
                        look = time.monotonic() + AGAIN
                    else:
                        self._lost.add(m)
                        self._incident(round, m, "upload", f"its reply {reply.reason}, so it is left out of the round")
                elif "refused" in reply[0]:
                    self._refused(round, m, reply[0])
                else:
                    out[m] = reply
            if (not post.waiting and (not missing or len(out) >= needed)) or post.over:
                break
            post.pause()
        self._unreached = missing
        return out

    def left_out(self, m: int, why: str) -> None:
        """Note that a site's upload is not used in the round that is under way."""
        self._incident(self.now, m, "upload", f"its upload {why}, so it is left out of the round")

    def _refused(self, round: int, m: int, header: dict[str, Any]) -> None:
        # Only a site that protects its uploads has a budget to spend.
        spent = header.get("spent") is True and self.sites.protected(m)
        if spent:
            self._spent.add(m)
        self._lost.add(m)
        why = str(header["refused"])[:500].rstrip(".")
        self._incident(round, m, "budget" if spent else "refused", f"it refused: {why}")

    def _spending(self, m: int, header: dict[str, Any]) -> None:
        """Note what a site says it has spent of its privacy."""
        epsilon = header.get("epsilon")
        if self.sites.protected(m) and isinstance(epsilon, float) and 0 <= epsilon < math.inf:
            self.told["epsilon"] = max(epsilon, self.told.get("epsilon", 0.0))

    def _measured(self, m: int, header: dict[str, Any]) -> None:
        """Take a site's figures over, if it told any."""
        if header.get("figures") is None:
            return
        figures = read_figures(header["figures"], self.method.task.metric(self.method.context.metric))
        if figures is None:
            self._incident(None, m, "figures", "its figures cannot be right, so they are left out")
            figures = [math.nan] * (len(EVALUATION_FIELDS) - 1) + [1.0]
        self.figures[:, m] = torch.tensor(figures)

    def _report(self) -> Evaluation:
        return Evaluation(*self.figures.clone())

    def _incident(self, round: int | None, m: int | None, what: str, reason: str) -> None:
        site = None if m is None else self.sites.names[m]
        where = "" if round is None else f"Round {round}: "
        self.sites.incidents.note(round, site, what, f"{where}{'' if site is None else f'site {site}: '}{reason}.")


def _slowest(at_sites: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What the slowest site said it spent on each phase."""
    out: dict[str, float] = {}
    for said in at_sites:
        for phase in ("prepare", "train"):
            seconds = said.get(phase, 0.0) if isinstance(said, dict) else 0.0
            if isinstance(seconds, float) and 0 <= seconds < 1e6:
                out[phase] = max(out.get(phase, 0.0), seconds)
    return out
