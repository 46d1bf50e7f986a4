"""The plan of a training: how many rounds, with how many clients, and when to evaluate, stop and save."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedquilt.training.attendance import NO_CONDITIONS, Conditions

# Rounds after which the similarity between clients is stored.
SIMILARITY_ROUNDS = (0, 4, 9, 19, 49, 99, 199)
# The key under which the similarity of the best round is stored beside them.
BEST = -1


@dataclass(frozen=True)
class Plan:
    """The plan of a training.

    Attributes:
        rounds: the largest number of communication rounds.
        participation: share of the clients that take part in each round.
        evaluate_every: evaluate after every so many rounds; the last round is always evaluated.
        patience: stop after so many rounds without a better validation metric; None: never.
        checkpoint_seconds: seconds between checkpoints.
        limit: the most rounds of all phases together, as a privacy budget allows; None: as many as the phases have.
        conditions: drop-outs, stragglers, and clients that join late or leave.
    """

    rounds: int
    participation: float = 1.0
    evaluate_every: int = 1
    patience: int | None = None
    checkpoint_seconds: float = 30.0
    limit: int | None = None
    conditions: Conditions = NO_CONDITIONS

    def for_phases(self, rounds: int) -> Plan:
        """The plan of a training whose phases have so many rounds together, within `limit`."""
        return replace(self, rounds=rounds if self.limit is None else min(rounds, self.limit))

    def is_last(self, round: int) -> bool:
        """Whether no round follows."""
        return round == self.rounds - 1

    def evaluates(self, round: int) -> bool:
        """Whether clients are evaluated after this round."""
        return (round + 1) % self.evaluate_every == 0 or self.is_last(round)

    def next_decision(self, first: int, best: int) -> int:
        """The first round after `first` that cannot start before the metrics of earlier rounds are read.

        Metrics are read when patience may be exhausted and when a similarity has to be stored.

        Args:
            first: the round that comes next.
            best: the best round so far; -1: there is none yet.
        """
        due = [r + 1 for r in SIMILARITY_ROUNDS if r >= first][:1]
        if self.patience is not None:
            first_evaluated = (first // self.evaluate_every + 1) * self.evaluate_every - 1
            due.append((best if best >= 0 else first_evaluated) + self.patience + 1)
        return max(first + 1, min(due, default=self.rounds))

    def patience_exhausted(self, next_round: int, best: int) -> bool:
        """Whether `patience` rounds went by since the best one."""
        return self.patience is not None and best >= 0 and next_round - 1 - best >= self.patience
