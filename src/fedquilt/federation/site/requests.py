"""What a site does with a request: it trains, it evaluates, it keeps what is private on its own disk, and it answers.

Flower starts a new process for every message, so a site begins each round with what it saved after the one before. It keeps
the last two rounds and the last answer: asked again for a round it did (the coordinator was restarted), it gives the same
answer and trains nothing twice. A request that is older than one it has answered is refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.export.personal import model_facts
from fedquilt.federation.message_checks import BadMessageError, Expected, received
from fedquilt.federation.site.config import SiteConfig
from fedquilt.federation.site.permits import FIGURES_SPEC, check_leaving, check_permits
from fedquilt.federation.site.site import Site
from fedquilt.messages.message import Message, dense, moved
from fedquilt.messages.wire import encode
from fedquilt.methods.base import Method, RunContext, State, find_method
from fedquilt.methods.settings import build_settings
from fedquilt.tasks.metric import Metric
from fedquilt.training.engines.base import EVALUATION_FIELDS, Evaluation
from fedquilt.training.engines.in_process import InProcess

HELLO, ROUND, EVALUATE, FINISH = "hello", "round", "evaluate", "finish"
VERSION = 1  # of the requests
_ANSWER = "answer"
# What a request may ask for at most: a site's work has an end.
MOST_CLIENTS, MOST_EPOCHS, MOST_ROUNDS = 10_000, 10_000, 10**7
_log = logging.getLogger("fedquilt.site")


class RefusedError(FedquiltError):
    """A request that the site does not fulfil; the sentence goes to the coordinator."""


@dataclass(frozen=True)
class Request:
    """What every request of a run says.

    Attributes:
        run: the run's name for itself: what a site keeps is kept for this run.
        coordinator: how many times the coordinator has been started: a site heeds no earlier one.
        round: the round to do, or with which the training ended.
        best: the best round so far, -1: none; the model of that round is the one that a site keeps.
        client: this site's number.
        rounds: how many rounds are planned.
    """

    kind: str
    run: str
    coordinator: int
    round: int
    best: int
    client: int
    rounds: int
    method: str
    settings: dict[str, Any]
    task: dict[str, Any]
    evaluate: bool = True

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> Request:
        """From a message's header; RefusedError on anything else."""
        values = {name: header.get(name) for name in cls.__dataclass_fields__}
        whole = all(type(values[name]) is int for name in ("coordinator", "round", "best", "client", "rounds"))
        tables = all(isinstance(values[name], dict) for name in ("settings", "task"))
        texts = all(isinstance(values[name], str) for name in ("kind", "method", "run"))
        whole = whole and 0 < values["rounds"] <= MOST_ROUNDS and 0 <= values["client"] < MOST_CLIENTS  # type: ignore[operator]
        whole = whole and -1 <= values["round"] <= MOST_ROUNDS  # type: ignore[operator]
        if not (whole and tables and texts and re.fullmatch(r"[0-9a-f]{8,64}", str(values["run"]))):
            raise RefusedError("The request cannot be read; the coordinator and the site need the same fedquilt.")
        return cls(**values)  # type: ignore[arg-type]

    def trained(self) -> Method:
        """The method with the settings and the task of the run."""
        method = find_method(self.method)
        try:
            context = RunContext.from_dict(self.task)
            sizes = all(
                type(n) is int
                for n in (context.features, context.outputs, context.clients, context.epochs, context.seed)
            )
            possible = sizes and self.client < context.clients <= MOST_CLIENTS and 0 < context.epochs <= MOST_EPOCHS
        except TypeError:
            possible = False
        if not possible:
            raise RefusedError("The task cannot be read; the coordinator and the site need the same fedquilt.")
        settings = build_settings(method, context, self.settings)
        if getattr(settings, "epochs", 1) > MOST_EPOCHS:
            raise RefusedError(f"The run asks for more than {MOST_EPOCHS:,} epochs a round.")
        return method(settings, context)


class Desk:
    """Where a site's requests are answered; the cohort of the last one is kept for the next of the same run."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._engine: InProcess | None = None
        self._expected: Expected | None = None
        self._for: Any = None

    def answer(self, header: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """What the site replies to a request: a header and a blob."""
        kind = header.get("kind")
        if header.get("version") != VERSION:
            raise RefusedError("The coordinator has another version of fedquilt than this site; install the same.")
        if kind == HELLO:
            return introduction(self.site), b""
        request = Request.read(header)
        if kind == ROUND:
            return Worker(self, request).round(body)
        if kind == EVALUATE:
            return Worker(self, request).evaluate(), b""
        if kind == FINISH:
            return Worker(self, request).finish(), b""
        raise RefusedError(f"There is no request called '{kind}'; the coordinator and the site need the same fedquilt.")

    def engine(self, request: Request, state: State | None) -> InProcess:
        """The site as an engine with a single client, at this state; None: as it starts."""
        self._turn_to(request)
        if self._engine is None or state is None:
            self._engine = None  # so that there are not two at a time
            self._engine = InProcess(request.trained(), [self.site.client(request.client)], self.site.device)
        if state is not None:
            self._engine.restore(state)
        return self._engine

    def expected(self, request: Request) -> Expected:
        """What the run's messages look like."""
        self._turn_to(request)
        if self._expected is None:
            self._expected = Expected(request.trained())
        return self._expected

    def _turn_to(self, request: Request) -> None:
        """Forget what was made for another run."""
        what = (request.run, request.method, request.settings, request.task, request.client)
        if self._for != what:
            self._engine, self._expected, self._for = None, None, what


def introduction(site: Site | SiteConfig) -> dict[str, Any]:
    """What a site says of itself when it is greeted."""
    site = Site(site) if isinstance(site, SiteConfig) else site
    graph = site.graph
    return {
        "name": site.config.name,
        "features": graph.features,
        "classes": graph.classes,
        "feature_names": _hashed(graph.feature_names),
        "class_names": _hashed(graph.class_names),
        "permits": site.config.permits,
        "protected": site.config.dp is not None,
    }


def _hashed(names: tuple[str, ...] | None) -> str | None:
    """What tells whether two sites have the same names, and nothing else."""
    return None if names is None else hashlib.sha256(json.dumps(names).encode()).hexdigest()


class Worker:
    """A site for the time of one request: its client, and what it kept of the run."""

    def __init__(self, desk: Desk, request: Request) -> None:
        self.desk, self.site, self.request = desk, desk.site, request
        site, self.method = desk.site, request.trained()
        context, graph = self.method.context, site.graph
        if (graph.features, graph.classes) != (context.features, context.outputs):
            raise RefusedError(f"Site '{site.config.name}' has other features or classes than the run.")
        try:
            check_permits(site.config, self.method)
        except FedquiltError as error:
            raise RefusedError(str(error)) from error
        self.memory = site.memory(request.run)
        self.reports = site.reports(request.rounds)  # before this request spends anything

    def round(self, body: bytes) -> tuple[dict[str, Any], bytes]:
        """Do a round from what was kept of the one before, keep what comes of it, and give the upload."""
        began = time.perf_counter()
        request = self.request
        asked = hashlib.sha256(body).hexdigest()
        newest = self.memory.load()
        if newest is not None:
            last, tensors, facts = newest
            seen = facts["coordinator"]
            if request.coordinator < seen or (request.coordinator == seen and request.round < last):
                raise RefusedError(f"Round {request.round} was asked for by a coordinator that has gone on since.")
            if (last, facts["asked"], facts["terms"]) == (request.round, asked, self._terms()):
                self._keep_best(*self._before())  # the same again: the same answer
                return facts["answer"], tensors[_ANSWER].numpy().tobytes()
        before, state = self._before()
        self._keep_best(before, state)
        down = self._received(body)
        ready = time.perf_counter()
        train = self._trained if self.site.config.dp is None else self._protected
        engine, uploads, report = train(state, down)
        trained = time.perf_counter()
        check_leaving(self.site.config, uploads)
        sent = encode(uploads)
        reply = {
            "figures": None if report is None else self._figures(report),
            "epsilon": None if self.site.budget is None else self.site.budget.spent(),
            "seconds": {"prepare": ready - began, "train": trained - ready},
        }
        self._note(uploads, report)
        facts = {"before": before, "coordinator": request.coordinator, "asked": asked, "answer": reply}
        facts["terms"] = self._terms()
        self.memory.save(request.round, engine.state() | {_ANSWER: _as_bytes(sent)}, facts)
        return reply, sent

    def _trained(self, state: State | None, down: Message) -> tuple[InProcess, Message, Evaluation | None]:
        """Train from a state; the engine after it, the uploads and the report."""
        request, engine = self.request, self.desk.engine(self.request, state)
        uploads, report = engine.round(request.round, torch.tensor([request.client]), down, request.evaluate)
        _check_finite(request.round, engine.state())
        return engine, moved(uploads, torch.device("cpu")), report

    def _protected(self, state: State | None, down: Message) -> tuple[InProcess, Message, Evaluation | None]:
        """The same with uploads as differential privacy has them.

        It is paid for before anything looks at the data, and whatever happens then, an upload of the same form leaves: a
        refusal that depends on the data would tell of it, exactly and for nothing. Where training fails, or gives no finite
        numbers, that counts as no change.
        """
        privatiser = self.site.privatiser(self.method, self.request.rounds)
        form: Message = {}
        if privatiser is not None and self.site.budget is not None:
            form = self.desk.expected(self.request).upload(self.request.round, down)
            self.site.budget.take(privatiser.noise)
        try:
            engine, uploads, report = self._trained(state, down)
        except Exception:
            _log.exception("Training in round %d failed; what leaves is noise.", self.request.round)
            engine, report = self.desk.engine(self.request, state), None
            uploads = {name: torch.full(dense(value).shape, torch.nan) for name, value in form.items()}
        if privatiser is not None:
            known = self.method.public_start() | down
            uploads = privatiser.applied(uploads, self.method.uploads, self.request.round, known=known)
        return engine, uploads, report

    def _terms(self) -> str:
        """A hash of what an answer was given to and under: another method, permits or protection ask for another answer."""
        request, config = self.request, self.site.config
        asked = [request.method, request.settings, request.task, request.client, request.rounds, request.evaluate]
        dp = None if config.dp is None else config.dp.model_dump()
        return hashlib.sha256(json.dumps([*asked, dp, config.permits], sort_keys=True).encode()).hexdigest()

    def evaluate(self) -> dict[str, Any]:
        """How the site stands with what it kept, or as it starts."""
        _, state = self._before()
        report = self.desk.engine(self.request, state).evaluate()
        self._note({}, report)
        return {"figures": self._figures(report)}

    def finish(self) -> dict[str, Any]:
        """The training is over: settle on the model of the best round."""
        newest = self.memory.load()
        if newest is not None and self.request.coordinator < newest[2]["coordinator"]:
            raise RefusedError("The training was ended by a coordinator that has been restarted since.")
        before, state = self._before()
        self._keep_best(before, state, over=True)
        return {"model": self.request.best}

    def _before(self) -> tuple[int, State | None]:
        """The newest state from before the round that is asked for, and of which round it is; -1 and None: none yet."""
        kept = self.memory.load(before=self.request.round)
        if kept is not None:
            round, tensors, _ = kept
            return round, {name: tensor for name, tensor in tensors.items() if name != _ANSWER}
        later = self.memory.load()
        oldest = self.memory.oldest()
        if later is not None and oldest is not None and oldest[2]["before"] >= 0:
            raise RefusedError(
                f"Round {self.request.round} cannot be done again: this site has gone on to round {later[0]}."
            )
        return -1, None

    def _keep_best(self, before: int, state: State | None, over: bool = False) -> None:
        """Keep the model of the best round so far, if the site still has to: it has stood at `before` since.

        The best round is at least `before`, or the site was told of it when it last trained.
        """
        request, kept = self.request, self.memory.load_model()
        round = None if kept is None else kept[1]["round"]
        if kept is not None and round == request.best and (kept[1]["finished"] or not over):
            return
        tensors: State
        if request.best >= max(0, before):
            personal = self.desk.engine(request, state).personal()
            tensors = {name: tensor[0].detach().cpu().clone() for name, tensor in personal.items()}
        elif kept is not None and round == request.best:
            tensors = kept[0]
        else:
            return
        facts = {"round": request.best, "finished": over, "trained": state is not None, "run": request.run}
        self.memory.save_model(tensors, facts | model_facts(self.method, self.site.client(request.client)))

    def _figures(self, report: Evaluation) -> list[float] | None:
        """The site's losses and metrics, in the order of a report, where it permits them to be known."""
        return report.stacked()[:, 0].tolist() if self.reports else None

    def _received(self, body: bytes) -> Message:
        """What the coordinator sent, where it can be so."""
        try:
            return received(body, self.desk.expected(self.request).downloads, self.method.downloads)
        except BadMessageError as error:
            raise RefusedError(f"The download {error}.") from None

    def _note(self, uploads: Message, report: Evaluation | None) -> None:
        """A line in the ledger for every tensor that leaves."""
        specs = (*self.method.uploads, FIGURES_SPEC)
        figures: Message = {}
        if report is not None and self._figures(report) is not None:
            figures = {FIGURES_SPEC.name: report.stacked().T}
        self.site.ledger(self.request.run).note(self.request.round, uploads | figures, specs)


def _check_finite(round: int, state: State) -> None:
    """Refuse to go on from numbers that are none: whatever was received, the site still has what it had."""
    kept = (tensor for name, tensor in state.items() if not name.startswith("figures."))
    if not all(bool(torch.isfinite(tensor).all()) for tensor in kept):
        raise RefusedError(
            f"Training in round {round} gave no finite numbers; the site keeps what it had. Use a smaller lr, or see what the "
            "other sites send."
        )


def _as_bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def read_figures(values: Any, metric: Metric) -> list[float] | None:
    """Losses and metrics that a site reports, if they are possible; NaN where it has nothing to evaluate."""
    if not isinstance(values, list) or len(values) != len(EVALUATION_FIELDS):
        return None
    numbers = [float(v) if type(v) is float or (type(v) is int and abs(v) < 2**53) else math.inf for v in values]
    train_loss, val_loss, val, test, sound = numbers
    possible = all(math.isnan(value) or metric.possible(value) for value in (val, test))
    finite = all(math.isnan(loss) or math.isfinite(loss) for loss in (train_loss, val_loss))
    return numbers if possible and finite and sound == 1 else None
