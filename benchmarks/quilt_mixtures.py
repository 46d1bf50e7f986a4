"""`python -m benchmarks.quilt_mixtures`: what other rules of mixing Quilt's views would have given.

Views are trained each by its own loss, whatever the mixture is. So one training in which no view is dropped tells what every
rule would have predicted in every round: the rule that Quilt has, each view alone, all views alike, flatter weights, slower
votes, more views left. For each rule the round is chosen by its own validation metric, as ever, and its test metric is there to
judge by. The first row is Quilt as it is; the others are differences from it, in points.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor

import fedquilt
from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message, dense
from fedquilt.methods import base_votes
from fedquilt.methods.base import State
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.base_votes import AVERAGE_VOTES, DROPS, LEFT, STEADY, VOTE_POINTS
from fedquilt.methods.quilt import Quilt
from fedquilt.methods.quilt_settings import QuiltSettings
from fedquilt.nn.views import mixture_weights, votes_of
from fedquilt.training.round_result import mean

Found = Mapping[str, tuple[float, float]]  # the validation and test metric of every rule
AS_IT_IS = "as it is"
VIEWS = QuiltSettings.views.split(",")
PARTS: Final = ("val", "test")
GRAPHS = (
    "cora:disjoint:10",
    "citeseer:disjoint:10",
    "chameleon:disjoint:10",
    "actor:disjoint:10",
    "minesweeper:disjoint:10",
)


@dataclass(frozen=True)
class Rule:
    """A rule of mixing views; the defaults are Quilt's.

    Attributes:
        sharpness, own_votes: as Quilt's settings of these names.
        steady: how far everyone's votes move the average votes in a round; with `steady` below Quilt's, the mean of all rounds
            so far counts as long as there are few.
        left: how many views are left after the last drop; 0: as many as are not clearly worse; None: no view is ever dropped.
        level: views that are at most so many points below the best count alike.
        only: this view alone; empty: a mixture.
    """

    sharpness: float = QuiltSettings.sharpness
    own_votes: float = QuiltSettings.own_votes
    steady: float = STEADY
    left: int | None = LEFT
    level: float = 0.0
    only: str = ""


RULES: dict[str, Rule] = {
    AS_IT_IS: Rule(),
    **{f"{view} alone": Rule(only=view, left=None) for view in VIEWS},
    "all views alike": Rule(sharpness=0.0, own_votes=float("inf"), left=None),
    "no view dropped": Rule(left=None),
    "three views left": Rule(left=3),
    "a third as sharp": Rule(sharpness=1 / 3),
    "everyone's votes only": Rule(own_votes=float("inf")),
    "votes of ten rounds": Rule(steady=0.1),
    "votes of ten rounds, three views left": Rule(steady=0.1, left=3),
    "within three points alike, votes of ten rounds": Rule(steady=0.1, left=0, level=3.0),
}


class Outcome:
    """What a rule gives, round by round: its average votes, the views that it has not dropped, and its best round.

    Attributes:
        average: [V] everyone's votes; below zero of a view that was dropped.
        val, test: the mean metrics at the round with the best validation metric.
    """

    def __init__(self, rule: Rule, views: int) -> None:
        self.rule, self.average, self.rounds = rule, torch.ones(views), 0
        self.val, self.test = float("-inf"), float("nan")

    def weights(self, method: Quilt, points: Tensor, checked: Tensor, nodes: Tensor) -> Tensor:
        """The mixture [M, V] of this round; everyone's votes then move the average.

        Args:
            points: [M, V] the validation metric with each view. checked, nodes: [M] validation and training nodes.
        """
        rule = self.rule
        if rule.left is not None and self.rounds in DROPS:
            self.average = without_worse(method, self.average, self.rounds == DROPS[-1], rule.left)
        alive = self.average >= 0
        own = votes_of(points, alive.expand_as(points), VOTE_POINTS)
        trust = checked / (checked + rule.own_votes)
        mixture = mixture_weights(own, self.average.expand_as(own), trust, rule.sharpness * VOTE_POINTS)
        if rule.level:
            logs = mixture.log()
            gap = (logs.amax(1, keepdim=True) - logs - rule.level * rule.sharpness).clamp_min(0.0)
            mixture = (-gap).softmax(1)
        if rule.only:
            mixture = torch.tensor([float(name == rule.only) for name in method.names]).expand_as(own)
        self.rounds += 1
        step = rule.steady if rule.steady == STEADY else max(rule.steady, 1.0 / self.rounds)
        everyone = (own * nodes.unsqueeze(1)).sum(0) / nodes.sum()
        self.average = torch.where(alive, self.average + step * (everyone - self.average), self.average)
        return mixture

    def judge(self, val: float, test: float) -> None:
        """Keep the metrics of a round whose validation metric is the best so far."""
        if val > self.val:
            self.val, self.test = val, test


def without_worse(method: Quilt, average: Tensor, last: bool, left: int) -> Tensor:
    """The average votes [V] after views were dropped as Quilt drops them; in the end all but the best `left` (0: none)."""
    live = [prefix for prefix, vote in zip(method.networks, average.tolist(), strict=True) if vote >= 0]
    down: Message = {AVERAGE_VOTES: average, **{f"{MODEL}{prefix}weight": torch.zeros(1) for prefix in live}}
    with mock.patch.object(base_votes, "LEFT", left or LEFT):
        return dense(method.without_worse(down, last and bool(left))[AVERAGE_VOTES])


def ask(
    outcomes: Iterable[Outcome], method: Quilt, cohort: Cohort, points: Tensor, shared: Mapping[int, Tensor]
) -> None:
    """What every rule predicts, and how well: `points` [M, V] are the views' validation metrics, `shared` their logits."""
    metric, checked = method.task.metric(method.context.metric), method.task.counts(cohort, "val")
    for outcome in outcomes:
        logits = method.mixed_views(cohort, shared, outcome.weights(method, points, checked, cohort.train_count))
        val, test = (float(mean(metric.function(cohort, logits, part))) * metric.scale for part in PARTS)
        outcome.judge(val, test)


def outcomes_of(dataset: Any, seed: int, **options: Any) -> Found:
    """Train once, dropping no view, and return the validation and test metric of every rule."""
    vote, asked = Quilt.vote, dict[str, Outcome]()
    trained: list[Quilt] = []  # a method for each training: all but the last measure how much memory is needed

    def asking(self: Quilt, state: State, cohort: Cohort, down: Message, shared: Mapping[int, Tensor]) -> None:
        if not trained or trained[-1] is not self:
            trained.append(self)
            asked.update({name: Outcome(rule, len(VIEWS)) for name, rule in RULES.items()})
        ask(asked.values(), self, cohort, self.compare(state, cohort, down, shared), shared)
        vote(self, state, cohort, down, shared)

    with mock.patch.object(Quilt, "vote", asking):
        fedquilt.run("quilt", dataset, seeds=[seed], settings={"drop": False}, device="cpu", progress=False, **options)
    return {name: (found.val, found.test) for name, found in asked.items()}


def table(found: Mapping[str, Sequence[Found]]) -> str:
    """The table in Markdown, of the outcomes of each graph's seeds: validation / test, below the first row as differences."""

    def cell(each: Sequence[Found], name: str) -> str:
        less = (0.0, 0.0) if name == AS_IT_IS else None
        pairs = [(one[name], less or one[AS_IT_IS]) for one in each]
        val, test = (fmean(own[k] - base[k] for own, base in pairs) for k in (0, 1))
        return f"{val:.1f} / {test:.1f}" if less else f"{val:+.1f} / {test:+.1f}"

    lines = ["| rule | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    return "\n".join(
        lines + [f"| {name} | " + " | ".join(cell(each, name) for each in found.values()) + " |" for name in RULES]
    )


def main() -> None:
    """Train on each graph and seed, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "graphs", nargs="*", default=GRAPHS, help="such as cora:disjoint:10, or a file's path in place of cora"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="by default the graph's own")
    options = parser.parse_args()
    found: dict[str, list[Found]] = {}
    for graph in options.graphs:
        dataset, partition, clients = graph.rsplit(":", 2)
        more = {} if options.rounds is None else {"rounds": options.rounds}
        found[graph] = [
            outcomes_of(dataset, seed, partition=partition, clients=int(clients), **more)
            for seed in range(options.seeds)
        ]
    print(table(found))


if __name__ == "__main__":
    main()
