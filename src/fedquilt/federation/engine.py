"""The engine that asks sites over Flower's grid. What a site keeps stays there; here are uploads and figures only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from fedquilt.engines.contract import FIGURES, Report
from fedquilt.engines.in_process import join_messages, slice_message
from fedquilt.errors import FedquiltError
from fedquilt.federation.bounds import BadMessageError, Expected, overlong, taken
from fedquilt.federation.roster import POLL, Sites
from fedquilt.federation.site import EVALUATE, FINISH, ROUND, read_figures
from fedquilt.methods.contract import Method, State
from fedquilt.methods.settings import as_dict
from fedquilt.privacy.crossing import Message
from fedquilt.privacy.dp import BudgetSpentError
from fedquilt.privacy.wire import encode

AGAIN = 5.0  # seconds until a site that could not answer is asked again
LOOK = 1.0  # seconds between looks for sites that cannot be reached
_TYPES = {ROUND: "train", EVALUATE: "evaluate", FINISH: "query"}


@dataclass(frozen=True)
class Rules:
    """How long a round waits, and for whom.

    Attributes:
        timeout: seconds that a site has to answer.
        min_sites: a round counts when so many of its sites (or all, where it has fewer) sent something that can be used; 0:
            all sites are waited for, and only those whose uploads cannot be used are done without.
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
        self._spent: set[int] = set()
        self._unreached: set[int] = set()
        self.best: Callable[[], int] = lambda: -1
        self.expected = Expected(method)
        self.figures = torch.full((len(FIGURES), method.task.clients), math.nan)
        self.figures[FIGURES.index("sound")] = 1.0
        self._run = {
            "run": run,
            "coordinator": coordinator,
            "rounds": rounds,
            "method": method.name,
            "settings": as_dict(method.settings),
            "task": asdict(method.task),
        }

    # -- what the round loop asks ------------------------------------------------------------------------------------

    def evaluate(self) -> Report:
        """How all sites stand with the models they have now."""
        replies = self._ask(EVALUATE, -1, dict.fromkeys(range(self.method.task.clients), b""), True)
        for m, (header, _) in replies.items():
            self._measured(m, header)
        return self._report()

    def round(self, round: int, participants: Tensor, down: Message, evaluate: bool) -> tuple[Message, Report | None]:
        """One round for the sites that answer; those whose uploads cannot be used are left out of it, with a reason."""
        here = participants.tolist()
        cut = {m: slice_message(down, self.method.downloads, place, place + 1) for place, m in enumerate(here)}
        like = self.expected.upload(round, cut[here[0]])
        waiting = {m: encode(message) for m, message in cut.items() if m not in self._spent}
        uploads: dict[int, Message] = {}
        needed = min(self.rules.min_sites or len(here), len(here))
        at_sites: list[dict[str, Any]] = []
        began = time.perf_counter()
        for attempt in range(self.rules.tries):
            replies = self._ask(ROUND, round, waiting, evaluate, needed - len(uploads))
            for m, (header, body) in replies.items():
                del waiting[m]
                try:
                    uploads[m] = taken(body, like, self.method.uploads, self.sites.protected(m))
                except BadMessageError as error:
                    self._left_out(round, m, str(error))
                    needed -= not self.rules.min_sites
                    continue
                self._measured(m, header)
                epsilon = header.get("epsilon")
                if isinstance(epsilon, float) and 0 <= epsilon < math.inf:
                    self.told["epsilon"] = max(epsilon, self.told.get("epsilon", 0.0))
                at_sites.append(header.get("seconds", {}))
            waiting = {m: body for m, body in waiting.items() if m not in self._spent}
            if len(uploads) >= needed or not waiting:
                break
            self._incident(round, None, "too few", f"{len(uploads)} of {needed} sites answered in try {attempt + 1}")
        noisy = {m for m in uploads if self.sites.protected(m)}
        for m, why in overlong(uploads, self.method.uploads, noisy, self.rules.norm_limit).items():
            self._left_out(round, m, why)
            needed -= not self.rules.min_sites
            del uploads[m]
        if len(uploads) < needed and len(here) - len(self._spent) < needed:
            raise BudgetSpentError(
                f"Round {round} needs {needed} sites, and {len(self._spent)} have spent their privacy budgets."
            )
        if len(uploads) < max(1, needed):
            raise FedquiltError(
                f"Round {round} got uploads that can be used from {len(uploads)} of {len(here)} sites and needs {needed}; "
                "see incidents.jsonl, and start the run again with the same 'out' to go on."
            )
        for m in waiting:
            why = "cannot be reached" if m in self._unreached else "gave no answer in time"
            self._incident(round, m, "absent", f"it {why}, so the round goes on without it")
        answered = sorted(uploads)
        self.answered = torch.tensor(answered)
        self.phases = _slowest(at_sites)
        self.phases["waiting"] = max(0.0, time.perf_counter() - began - sum(self.phases.values()))
        return join_messages([uploads[m] for m in answered]), self._report() if evaluate else None

    def finish(self, rounds: int) -> list[str]:
        """Tell sites that the training is over; the names of those who confirmed that they have their model."""
        replies = self._ask(FINISH, rounds, dict.fromkeys(range(self.method.task.clients), b""), False)
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
        while True:
            if missing and time.monotonic() >= look:
                for m, node in self.sites.reach(missing).items():
                    post.send(node, {**said, "client": m}, bodies[m])
                    asked[node] = m
                    missing.discard(m)
                look = time.monotonic() + LOOK
            for node, reply in post.collect():
                m = asked[node]
                if isinstance(reply, str):
                    self._incident(round, m, "reply", f"it gave no answer that can be used ({reply})")
                    missing.add(m)  # it may have been restarted: asked again while it is needed
                    look = time.monotonic() + AGAIN
                elif "refused" in reply[0]:
                    self._refused(round, m, reply[0])
                else:
                    out[m] = reply
            if (not post.waiting and (not missing or len(out) >= needed)) or post.over:
                break
            time.sleep(POLL)
        self._unreached = missing
        return out

    def _left_out(self, round: int, m: int, why: str) -> None:
        self._incident(round, m, "upload", f"its upload {why}, so it is left out of the round")

    def _refused(self, round: int, m: int, header: dict[str, Any]) -> None:
        spent = header.get("spent") is True
        if spent:
            self._spent.add(m)
        why = str(header["refused"])[:500].rstrip(".")
        self._incident(round, m, "budget" if spent else "refused", f"it refused: {why}")

    def _measured(self, m: int, header: dict[str, Any]) -> None:
        """Take a site's figures over, if it told any."""
        if header.get("figures") is None:
            return
        figures = read_figures(header["figures"])
        if figures is None:
            self._incident(None, m, "figures", "its figures cannot be right, so they are left out")
            figures = [math.nan] * (len(FIGURES) - 1) + [1.0]
        self.figures[:, m] = torch.tensor(figures)

    def _report(self) -> Report:
        return Report(*self.figures.clone())

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
