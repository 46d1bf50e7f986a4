"""A site as one client of one run: it trains a cohort of one, saves its state on its own disk, and answers requests.

The site saves the states after the last two rounds and its last answer. Asked again for a round that it trained (the
coordinator was restarted), it gives the same answer and trains nothing twice. It refuses requests that are older than one it
has answered.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedquilt.cohort.client import Client, prepared_clients
from fedquilt.common.lock import HeldError
from fedquilt.errors import DivergedError, FedquiltError
from fedquilt.federation.message_checks import BadMessageError, ExpectedMessages, read_download
from fedquilt.federation.protocol import EVALUATE, FINISH, ROUND, RefusedError, Reply, Request
from fedquilt.federation.site.ledger import Payment
from fedquilt.federation.site.permits import METRICS_SPEC, check_permits, check_upload_names
from fedquilt.federation.site.secure_uploads import SecureUploads, check_secure, ledger_specs
from fedquilt.federation.site.site import Site
from fedquilt.graphs.fingerprint import array_digest, fingerprints
from fedquilt.graphs.preparation import Preparation
from fedquilt.messages.message import Message, dense, message_bytes, moved
from fedquilt.messages.wire import encode
from fedquilt.methods.base import State
from fedquilt.methods.personal_model import model_facts
from fedquilt.methods.settings import check_client_settings
from fedquilt.runs.divergence import explained
from fedquilt.runs.ground import preparation_digest
from fedquilt.training.edge_notice import unused_weights
from fedquilt.training.engines.base import Evaluation
from fedquilt.training.engines.in_process import InProcess

LOCK_SECONDS = 60.0  # how long a request waits for another process of the site that works on the same run
_ANSWER = "answer"  # the name of the last answer's bytes among a saved state's tensors
_log = logging.getLogger("fedquilt.site")
# What a round of training gives: the engine after it, the uploads, the evaluation where one was asked for, and what was paid.
Trained = tuple[InProcess, Message, Evaluation | None, Payment | None]


class RunClient:
    """The site's client of a run. It is kept between requests, so that the cohort is prepared once.

    Raises RefusedError where the run does not fit the site's graph, is too large for it, or sends what the site does not
    permit. None of that looks at the site's data, spends anything or makes a folder.
    """

    def __init__(self, site: Site, request: Request) -> None:
        self.site, self.number = site, request.client
        self.method, self._prepare = request.build_method(), request.prepare
        self.state = site.state(request.run)
        self._identity = _identity(request)
        self._engine: InProcess | None = None
        context, graph = self.method.context, site.graph
        try:
            outputs = self.method.task.outputs(graph)
        except FedquiltError as error:  # its sentence is about the site's labels, and stays here
            _log.error("%s", error)
            outputs = None
        if (graph.features, outputs) != (context.features, context.outputs):
            raise RefusedError(f"Site '{site.config.name}' has other features or classes than the run.")
        with _refused():
            own = check_client_settings(self.method, site.config.settings, f"site '{site.config.name}'")
        self.method = self.method.as_client(own)
        site.quota.check_size(self.method)
        with _refused():
            check_permits(site.config.name, site.config.permits, self.method, self.expected.upload_names)

    def serves(self, request: Request) -> bool:
        """Whether a request is of the run, the method and the client that this was made for."""
        return self._identity == _identity(request)

    def answer(self, request: Request, body: bytes) -> Reply:
        """The reply to a request of this run. Only one process of the site works on a run at a time."""
        with self._locked():
            check_secure(self.site.config, self.method, request)
            reports = self.site.reports_metrics(request.rounds)  # decided before this request spends anything
            if request.secure is not None:
                secure = SecureUploads(self.site.config, self.state.folder, self.method, request)
                reply = secure.answer(body, lambda download: self._train_round(request, download, reports))
            elif request.kind == ROUND:
                reply = self._train_round(request, body, reports)
            elif request.kind == EVALUATE:
                reply = self._evaluate(request, reports), b""
            else:
                reply = self._finish(request), b""
            self._note_request(request)
            return reply

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the run's folder; RefusedError where another process of the site does not let go of it."""
        with ExitStack() as held:
            try:
                held.enter_context(self.state.lock(LOCK_SECONDS))
            except HeldError as error:
                _log.error("%s", error)
                raise RefusedError("Another process of this site is working on a request of this run.") from None
            yield

    # -- requests -----------------------------------------------------------------------------------------------------

    def _train_round(self, request: Request, body: bytes, reports: bool) -> Reply:
        """Train a round from the state saved before it, save what comes of it, and reply with the upload."""
        began = time.perf_counter()
        download_hash, terms = hashlib.sha256(body).hexdigest(), self._terms_hash(request)
        newest = self.state.load()
        if newest is not None:
            last, tensors, facts = newest
            self._check_ground(facts)
            seen = facts["coordinator"]
            if request.coordinator < seen or (request.coordinator == seen and request.round < last):
                raise RefusedError(f"Round {request.round} was asked for by a coordinator that has gone on since.")
            if (last, facts["asked"], facts["terms"]) == (request.round, download_hash, terms):
                self._save_best_model(request, *self._state_before(request.round))
                return facts["answer"], tensors[_ANSWER].numpy().tobytes()
        before, state = self._state_before(request.round)
        self._save_best_model(request, before, state)
        down = self._read_download(body)
        ready = time.perf_counter()
        train = self._train if self.site.config.dp is None else self._train_with_noise
        engine, uploads, evaluation, payment = train(request, state, down)
        trained = time.perf_counter()
        self._check_upload_names(uploads)
        upload = encode(uploads)
        metrics = evaluation if reports else None
        answer = {
            "figures": _metrics_list(metrics),
            "epsilon": None if self.site.budget is None else self.site.budget.spent(),
            "seconds": {"prepare": ready - began, "train": trained - ready},
        }
        self._write_ledger(request, uploads, metrics, payment)
        facts = {
            "before": before,
            "coordinator": request.coordinator,
            "asked": download_hash,
            "answer": answer,
            "terms": terms,
            "ground": self.ground,
        }
        self.state.save(request.round, engine.state() | {_ANSWER: _byte_tensor(upload)}, facts)
        return answer, upload

    def _evaluate(self, request: Request, reports: bool) -> dict[str, Any]:
        """Evaluate the saved model, or the one that training starts from."""
        _, state = self._state_before(request.round)
        evaluation = self._engine_at(state).evaluate()
        metrics = evaluation if reports else None
        self._write_ledger(request, {}, metrics)
        return {"figures": _metrics_list(metrics)}

    def _finish(self, request: Request) -> dict[str, Any]:
        """End the training: keep the model of the best round."""
        newest = self.state.load()
        if newest is not None and request.coordinator < newest[2]["coordinator"]:
            raise RefusedError("The training was ended by a coordinator that has been restarted since.")
        self._save_best_model(request, *self._state_before(request.round), finished=True)
        return {"model": request.best}

    # -- training -----------------------------------------------------------------------------------------------------

    def _train(self, request: Request, state: State | None, down: Message) -> Trained:
        """Train a round from a state; RefusedError where it gives numbers that are not finite."""
        engine = self._engine_at(state)
        uploads, evaluation = engine.round(request.round, torch.tensor([self.number]), down, request.evaluate)
        self._check_finite(request.round, engine.state())
        return engine, moved(uploads, torch.device("cpu")), evaluation, None

    def _train_with_noise(self, request: Request, state: State | None, down: Message) -> Trained:
        """Train a round under differential privacy: uploads are clipped and noised.

        What may not leave is refused first, by the names in an upload of a dummy client: that costs nothing, since it does not
        depend on the data. Then the site pays, before anything looks at its data, and always sends an upload of that form: a
        refusal that depends on the data would reveal it, exactly and unpaid. Training that fails, gives numbers that are not
        finite, or an upload of another form counts as no change.
        """
        privatiser = self.site.privatiser(self.method, request.rounds)
        form: Message = {}
        payment: Payment | None = None
        if privatiser is not None and self.site.budget is not None:
            form = self.expected.upload_form(request.round, down)
            self._check_upload_names(form)
            if form:  # some methods send nothing without a download
                payment = self.site.budget.spend(privatiser.noise)
        try:
            engine, uploads, evaluation, _ = self._train(request, state, down)
            if _shapes(uploads) != _shapes(form):
                raise ValueError("the upload has not the form that was expected")
        except Exception:
            _log.exception("Training in round %d failed; what leaves is noise.", request.round)
            engine, evaluation = self._engine_at(state), None
            uploads = {name: torch.full(dense(value).shape, torch.nan) for name, value in form.items()}
        if privatiser is not None:
            known = self.method.public_start() | down
            uploads = privatiser.applied(uploads, self.method.uploads, request.round, known=known)
        return engine, uploads, evaluation, payment

    def _check_finite(self, round: int, state: State) -> None:
        """Refuse a round that led to numbers that are not finite; the state saved before it stays.

        Where a feature is in raw units, the site's own log says which.
        """
        kept = (tensor for name, tensor in state.items() if not name.startswith("figures."))
        if all(bool(torch.isfinite(tensor).all()) for tensor in kept):
            return
        found = DivergedError(f"the weights after round {round} are not finite", [self.number])
        _log.error("%s", explained(found, [self.client]))
        raise RefusedError(
            f"Training in round {round} gave no finite numbers; the site keeps what it had. Let sites prepare their features "
            "(prepare in the run config), use a smaller lr, or see what the other sites send."
        )

    def _engine_at(self, state: State | None) -> InProcess:
        """The engine with this site as its only client, at a saved state; None: at the start of training."""
        if self._engine is None or state is None:
            self._engine = None  # frees its memory before another is made
            if unused := unused_weights(self.method, self.site.graph):
                self.site.log.note(unused)
            self._engine = InProcess(self.method, [self.client], self.site.device)
        if state is not None:
            self._engine.restore(state)
        return self._engine

    @cached_property
    def expected(self) -> ExpectedMessages:
        """The form of the run's messages."""
        return ExpectedMessages(self.method)

    @cached_property
    def preparation(self) -> Preparation:
        """How the site prepares its features in this run, by its own statistics. It stays at the site."""
        return Preparation.of(self._raw_client.graph.x, self._prepare)

    @cached_property
    def client(self) -> Client:
        """The site as the run's client, with its features prepared."""
        return prepared_clients([self._raw_client], [self.preparation])[0]

    @property
    def _raw_client(self) -> Client:
        return self.site.client(self.number, self.method)

    @cached_property
    def ground(self) -> dict[str, str]:
        """Fingerprints of the graph, the split and the preparation that the site trains with. They stay at the site."""
        client = self._raw_client
        found = fingerprints(client.graph) | {"split": array_digest([client.split])}
        return found if self._prepare == "none" else found | {"preparation": preparation_digest([self.preparation])}

    def _check_ground(self, facts: dict[str, Any]) -> None:
        """Refuse to go on with a run on another graph or split than the site's last round: test nodes may have been trained on.

        The coordinator learns that something changed, the site's log what.
        """
        before = facts.get("ground")  # earlier versions wrote none
        changed = [name for name in self.ground if before is not None and before.get(name) != self.ground[name]]
        if changed:
            _log.error("The site's graph changed since it last trained in this run: %s.", ", ".join(changed))
            raise RefusedError(
                "The graph or the split of this site is not the one with which it trained in this run; put it back, or begin "
                "another run."
            )

    def _read_download(self, body: bytes) -> Message:
        """The coordinator's message; RefusedError where the method's server cannot have sent it."""
        try:
            return read_download(body, self.expected.downloads, self.method.downloads)
        except BadMessageError as error:
            raise RefusedError(f"The download {error}.") from None

    # -- what is on the disk ------------------------------------------------------------------------------------------

    def _state_before(self, round: int) -> tuple[int, State | None]:
        """The newest saved state from before a round, and its round; -1 and None where nothing was trained yet."""
        saved = self.state.load(before=round)
        if saved is not None:
            last, tensors, _ = saved
            return last, {name: tensor for name, tensor in tensors.items() if name != _ANSWER}
        newest, oldest = self.state.load(), self.state.oldest()
        if newest is not None and oldest is not None and oldest[2]["before"] >= 0:
            raise RefusedError(f"Round {round} cannot be done again: this site has gone on to round {newest[0]}.")
        return -1, None

    def _save_best_model(self, request: Request, before: int, state: State | None, finished: bool = False) -> None:
        """Save the personal model of the best round, unless it is saved already.

        `state` is that of round `before`, the last that this site trained. Where the best round is not earlier than that, the
        site's model in the best round was the one at `state`. Where it is earlier, the coordinator named it when the site was
        asked for a round before, and the model was saved then.
        """
        saved = self.state.load_model()
        saved_round = None if saved is None else saved[1]["round"]
        if saved is not None and saved_round == request.best and (saved[1]["finished"] or not finished):
            return
        tensors: State
        if request.best >= max(0, before):
            personal = self._engine_at(state).personal()
            tensors = {name: tensor[0].detach().cpu().clone() for name, tensor in personal.items()}
        elif saved is not None and saved_round == request.best:
            tensors = saved[0]
        else:
            return
        facts = {"round": request.best, "finished": finished, "trained": state is not None, "run": request.run}
        self.state.save_model(tensors, facts | model_facts(self.method, self.client, preparation=self.preparation))

    def _check_upload_names(self, names: Iterable[str]) -> None:
        """Refuse a message with a name that may not leave."""
        with _refused():
            check_upload_names(self.site.config.name, self.site.config.permits, names, self.method.uploads)

    def _write_ledger(
        self, request: Request, uploads: Message, metrics: Evaluation | None, payment: Payment | None = None
    ) -> None:
        """Write a line for every tensor that is about to leave, metrics included; `payment` is for the uploads."""
        ledger, (uploads, declared) = self.site.ledger(request.run), ledger_specs(self.method, request, uploads)
        specs = (*declared, METRICS_SPEC)
        ledger.write(request.round, uploads, specs, payment)
        figures: Message = {} if metrics is None else {METRICS_SPEC.name: metrics.stacked().T}
        ledger.write(request.round, figures, specs)
        leaving = uploads | figures
        if leaving:
            size = sum(message_bytes(leaving, specs, 1).values())
            spent = "" if payment is None else f"; epsilon is {payment.epsilon:.3g} now"
            self.site.log.note(
                f"Round {request.round} of run {request.run} ({request.method}): {len(leaving)} tensors leave, {size:,} bytes"
                f"{spent}: {', '.join(leaving)}"
            )

    def _note_request(self, request: Request) -> None:
        """Note what the run is and when it was last asked for, for `fedquilt site status` and the quota."""
        now, before = datetime.now(UTC), self.state.facts()
        at, trained = now.isoformat(timespec="seconds"), before.get("trained")
        trained = trained if type(trained) is int else 0
        facts: dict[str, Any] = {"method": request.method, "rounds": request.rounds, "first": before.get("first", at)}
        if request.kind == ROUND:
            facts |= {"round": request.round, "trained": trained + (before.get("round") != request.round)}
        finished = request.kind == FINISH or (request.kind == EVALUATE and before.get("finished") is True)
        self.state.note(**facts, last=at, last_seconds=now.timestamp(), finished=finished)
        if request.kind == FINISH:
            self.site.log.note(f"Run {request.run} ({request.method}) is finished; its best round is {request.best}.")

    def _terms_hash(self, request: Request) -> str:
        """A hash of the request and of the site's rules: an answer is repeated only where both are the same."""
        config = self.site.config
        asked = [request.method, request.settings, request.task, request.client, request.rounds, request.evaluate]
        dp = None if config.dp is None else config.dp.model_dump()
        terms = [*asked, dp, config.permits, request.prepare]
        return hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()


@contextmanager
def _refused() -> Iterator[None]:
    """Turn what is wrong inside the block into a refusal, whose sentence the coordinator is sent."""
    try:
        yield
    except FedquiltError as error:
        raise RefusedError(str(error)) from error


def _shapes(message: Message) -> dict[str, tuple[int, ...]]:
    return {name: tuple(dense(value).shape) for name, value in message.items()}


def _identity(request: Request) -> str:
    """What a client is made for. As JSON, which tells 1 from 1.0 and from true."""
    made_for = [request.run, request.method, request.settings, request.task, request.client, request.prepare]
    return json.dumps(made_for, sort_keys=True)


def _metrics_list(evaluation: Evaluation | None) -> list[float] | None:
    """The site's losses and metrics in the order of EVALUATION_FIELDS."""
    return None if evaluation is None else evaluation.stacked()[:, 0].tolist()


def _byte_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
