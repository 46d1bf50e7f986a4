"""The engine that learns only the sum of the sites' uploads, by secure aggregation (`fedquilt.federation.secure`)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.engine import FlowerEngine, slowest
from fedquilt.federation.coordinator.pending_sum import PendingSum
from fedquilt.federation.protocol import CONFIRM, ROUND, SETUP, SHARE, UNMASK, Reply, Request
from fedquilt.federation.secure.fixed_point import FixedPoint, vector_length
from fedquilt.federation.secure.keys import FEWEST, KeyTable, check_site_keys, threshold
from fedquilt.federation.secure.opening import MaskedSum, read_masked, read_sealed, read_shares
from fedquilt.federation.secure.participant import is_survivors_signature, sum_purpose, sum_terms
from fedquilt.federation.secure.tables import join_parts, read_site_keys, write_survivors, write_table
from fedquilt.messages.message import Message
from fedquilt.messages.slicing import slice_message
from fedquilt.messages.wire import encode
from fedquilt.privacy.dp import BudgetSpentError
from fedquilt.training.engines.base import Evaluation

T = TypeVar("T")


class SecureEngine(FlowerEngine):
    """Asks the sites of a round for the stages of secure aggregation.

    Sites that drop out after they sent keys are done without, up to the protocol's bound: `threshold` of them have to stay.

    Args:
        range: the largest size of a number in an upload.
        store: where a masked sum is kept until it is opened.
    """

    def __init__(self, *about: Any, range: float, store: PendingSum) -> None:
        super().__init__(*about)
        self.range, self.store = range, store
        self.fixed = FixedPoint(self.method.context.clients, range)
        self._sum = ""  # the name of the sum under way; empty between rounds

    def round(
        self, round: int, participants: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """One round; the sum of the uploads stands in the place of each sender's.

        Each sender sent as many bytes as the sum has, so that the records count what crossed.
        """
        here, began, self._round = participants.tolist(), time.perf_counter(), round
        downloads = {m: slice_message(down, self.method.downloads, row, row + 1) for row, m in enumerate(here)}
        form = self.method.summands(self._upload_form(round, downloads[here[0]]))
        try:
            masked = self._masked_sum(round, downloads, evaluate, vector_length(form))
            sums, clipped = self.fixed.decode(self._opened(masked), form)
        except ValueError as error:
            raise FedquiltError(
                f"Round {round}: {error}; a site did not keep to the protocol, and secure aggregation hides which. "
                "Start a new run without the sites that you do not trust."
            ) from None
        finally:
            self._sum = ""
        self._report_clipped(round, clipped)
        self.senders = torch.tensor(masked.alive)
        self.timings["waiting"] = max(0.0, time.perf_counter() - began - sum(self.timings.values()))
        uploads: Message = {name: value.expand(len(masked.alive), *value.shape) for name, value in sums.items()}
        return uploads, self._evaluation() if evaluate else None

    def finish(self, rounds: int) -> list[str]:
        """Tell the sites that the training is over; nothing is left to be opened."""
        self.store.delete()
        return super().finish(rounds)

    # -- stages --------------------------------------------------------------------------------------------------------

    def _masked_sum(self, round: int, downloads: dict[int, Message], evaluate: bool, length: int) -> MaskedSum:
        """The round's masked sum: the one that was about to be unmasked before a restart, or a new one."""
        saved = self.store.load(round)
        if saved is not None:
            masked, metrics = saved
            self.metrics.copy_(metrics)
            return masked
        masked = self._collect(round, {m: encode(message) for m, message in downloads.items()}, evaluate, length)
        self.store.save(masked, self.metrics)
        return masked

    def _collect(self, round: int, bodies: dict[int, bytes], evaluate: bool, length: int) -> MaskedSum:
        """The sum of masked uploads; FedquiltError where too few sites get that far in any of the tries."""
        self.timings, refused = {}, set(self._budget_spent)
        needed = max(FEWEST, min(self.rules.min_sites, len(bodies)))
        for attempt in range(self.rules.tries):
            asked = {m: body for m, body in bodies.items() if m not in refused}
            if len(asked) < needed:
                break
            self._sum = secrets.token_hex(16)
            masked = self._try_collect(round, asked, evaluate, length, refused)
            if masked is not None:
                return masked
            self._add_incident(round, None, "too few", f"too few sites for a sum in try {attempt + 1}")
        if len(bodies.keys() - self._budget_spent) < needed:
            raise BudgetSpentError(
                f"Round {round} needs {needed} sites, and {len(self._budget_spent)} have spent their privacy budgets."
            )
        raise FedquiltError(
            f"Round {round} has no sum, since too few of its {len(bodies)} sites stayed to the end; see incidents.jsonl, and "
            "start the run again with the same 'out' to go on."
        )

    def _try_collect(
        self, round: int, asked: dict[int, bytes], evaluate: bool, length: int, refused: set[int]
    ) -> MaskedSum | None:
        """One try with new keys; None where too few sites answered a stage. Sites that refuse are added to `refused`."""
        keys = self._public_keys(round, asked, refused)
        group = list(keys)
        if len(keys) < FEWEST or not (self.rules.min_sites or set(asked) <= refused.union(keys)):
            return None  # without min_sites, a site that gave no answer is waited for
        enough = max(threshold(len(keys)), min(self.rules.min_sites, len(asked)))
        shared = self._stage(SHARE, round, dict.fromkeys(group, write_table(keys)), enough, refused)
        sealed = self._read(shared, lambda m, reply: read_sealed(reply[1], m, group), refused)
        members = sorted(sealed)
        if len(members) < enough:
            return None
        tables = {m: write_table({other: sealed[other][m] for other in members if other != m}) for m in members}
        bodies = {m: join_parts(tables[m], asked[m]) for m in members}
        trained = self._stage(ROUND, round, bodies, enough, refused, evaluate)
        vectors = self._read(trained, lambda m, reply: read_masked(reply[1], length), refused)
        for m in vectors:
            self._take_metrics(m, trained[m][0])
            self._take_epsilon(m, trained[m][0])
        alive = sorted(vectors)
        if len(alive) < enough:
            return None
        for m in sorted(set(asked) - set(alive)):
            self._add_incident(round, m, "absent", "its masked upload did not come, so the round goes on without it")
        self.timings = slowest([trained[m][0].get("seconds", {}) for m in alive])
        total = np.zeros(length, np.uint64)
        for vector in vectors.values():
            total += vector
        return MaskedSum(self._sum, round, keys, members, alive, total)

    def _public_keys(self, round: int, asked: Collection[int], refused: set[int]) -> KeyTable:
        """The sites' public keys, without those that cannot be keys or that another site has too."""
        needed = self.rules.min_sites or len(asked)
        replies = self._stage(SETUP, round, dict.fromkeys(asked, b""), needed, refused)
        keys = self._read(replies, lambda m, reply: read_site_keys(reply[0].get("keys")), refused)
        purpose, taken = sum_purpose(self.run, self._sum, round, self.range), set[Any]()
        for m in sorted(keys):
            try:
                check_site_keys(m, keys[m], purpose, taken)
            except ValueError as error:
                self.note_unused_upload(m, f"has bad keys ({error})")
                refused.add(m)
                del keys[m]
        return keys

    def _opened(self, masked: MaskedSum) -> np.ndarray:
        """The sum without its masks. Sites are asked for signatures and shares as often as for an upload."""
        self._sum = masked.sum_id
        shares: dict[int, dict[int, bytes]] = {}
        for _ in range(self.rules.tries):
            signatures = self._signatures(masked)
            if len(signatures) < masked.needed:
                continue
            waiting = dict.fromkeys((m for m in signatures if m not in shares), write_table(signatures))
            replies = self._stage(UNMASK, masked.round, waiting, masked.needed - len(shares), set())
            shares |= self._read(replies, lambda m, reply: read_shares(reply[1], masked.members), set())
            if len(shares) >= masked.needed:
                return masked.opened(shares)
        raise FedquiltError(
            f"Round {masked.round}: {len(shares)} of {masked.needed} sites that are needed helped to unmask the sum; see "
            "incidents.jsonl, and start the run again with the same 'out' to go on when they are there."
        )

    def _signatures(self, masked: MaskedSum) -> dict[int, str]:
        """The signatures of those who confirm who is in the sum."""
        terms = sum_terms(sum_purpose(self.run, masked.sum_id, masked.round, self.range), masked.keys).hex()

        def read(m: int, reply: Reply) -> str:
            signature = reply[0].get("signature")
            if isinstance(signature, str) and is_survivors_signature(masked.keys[m], signature, terms, masked.alive):
                return signature
            raise ValueError("has no signature of who is in the sum")

        body = write_survivors(masked.alive, masked.dropped)
        replies = self._stage(CONFIRM, masked.round, dict.fromkeys(masked.alive, body), masked.needed, set())
        return self._read(replies, read, set())

    def _stage(
        self,
        kind: str,
        round: int,
        bodies: dict[int, bytes],
        needed: int,
        refused: set[int],
        evaluate: bool = False,
    ) -> dict[int, Reply]:
        """The replies to one stage; sites that refuse on purpose are added to `refused`."""
        replies = self._ask(kind, round, bodies, evaluate, needed)
        refused |= self._refused
        return replies

    def _read(self, replies: dict[int, Reply], read: Callable[[int, Reply], T], refused: set[int]) -> dict[int, T]:
        """What `read` makes of each reply. Those it cannot read are left out, with an incident, and added to `refused`."""
        out = {}
        for m, reply in replies.items():
            try:
                out[m] = read(m, reply)
            except ValueError as error:
                self.note_unused_upload(m, str(error))
                refused.add(m)
        return out

    def _request(self, kind: str, round: int, m: int, evaluate: bool) -> Request:
        request = super()._request(kind, round, m, evaluate)
        return replace(request, secure={"sum": self._sum, "range": self.range}) if self._sum else request

    def _report_clipped(self, round: int, clipped: int) -> None:
        """Tell how many numbers of all uploads together were cut to the range."""
        self.reported["clipped"] = clipped
        if clipped:
            self._add_incident(
                round,
                None,
                "clipped",
                f"{clipped:,} numbers of the sites' uploads were cut to {self.range:g}; a larger secure-range avoids it",
            )
