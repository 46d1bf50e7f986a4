"""`python -m benchmarks.elbo_share`: how large the gradients of FedIIH's ELBO are beside the cross-entropy's.

A term can only act if its gradient is felt. While FedIIH trains, the gradient of each term of its objective at the projection,
with its weight, is divided by the cross-entropy's (norms, client by client), and the mean over clients is printed in percent:

    reconstruction   elbo x the edges' log-likelihood
    priors           elbo x kl x the terms that know the priors: KL(q || prior) and those of alpha-hat
    hierarchy        the part of `priors` that is there because the prior is centred at alpha-hat, not at zero

In a run with `hierarchy=false` the last is missing.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message
from fedquilt.methods.base import State
from fedquilt.methods.base_adam import MODEL, leaves_of
from fedquilt.methods.fediih import ALPHA, FedIIH
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights, linear
from fedquilt.nn.routing import unit
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun

PROJECTION = MODEL + "projection.weight"


def shares(method: FedIIH, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> dict[str, float]:
    """Norms of the terms' gradients at the projection relative to the cross-entropy's, means over clients."""
    leaves = leaves_of(method.trained(state))
    weights = {name.removeprefix(MODEL): w for name, w in leaves.items()}
    projected, routed = method.represent(weights, cohort, dropout)
    rows = cohort.training
    read = method.read(projected, routed).index_select(0, rows.index)
    logits = linear(rows, read, weights["classifier.weight"], weights["classifier.bias"])
    mean = method.infer(unit(routed), cohort)
    draw, priors = method.latent_terms(mean, leaves, cohort, dropout, down)
    scale = method.settings.elbo
    found = {
        "cross-entropy": slope(method.task.training_loss(cohort, logits, dropout.draws)[0], leaves),
        "reconstruction": scale * slope(method.reconstruction(draw, cohort, dropout), leaves),
        "priors": scale * method.settings.kl * slope(priors, leaves),
    }
    if method.hierarchy:
        zero = {ALPHA: torch.zeros_like(leaves[ALPHA])}
        centred = slope(method.latent_terms(mean, leaves | zero, cohort, dropout, {ALPHA: zero[ALPHA][0]})[1], leaves)
        found["hierarchy"] = found["priors"] - scale * method.settings.kl * centred
    norms = {name: each.flatten(1).norm(dim=1) for name, each in found.items()}
    base = norms.pop("cross-entropy").clamp_min(1e-12)
    return {name: float((norm / base).mean()) for name, norm in norms.items()}


def slope(term: Tensor, leaves: Weights) -> Tensor:
    """The gradient of a term at the projection: [M, F, K d]."""
    return torch.autograd.grad(term, leaves[PROJECTION], retain_graph=True)[0]


class Watched(FedIIH):
    """FedIIH that notes the shares at the first training step of some rounds; not registered."""

    rounds: tuple[int, ...] = ()
    at = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.noted: dict[int, dict[str, float]] = {}

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Any:
        """As FedIIH's."""
        self.at = round
        return super().local_update(state, cohort, down, round)

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """As FedIIH's."""
        if self.at + 1 in self.rounds:
            self.noted[self.at + 1] = shares(self, state, cohort, dropout, down)
        return super().gradients(state, cohort, dropout, down)


def measure(config: RunConfig, rounds: tuple[int, ...]) -> dict[int, dict[str, float]]:
    """Train with the configuration's first seed; the shares in each of `rounds`, which count from one."""
    resolved = ResolvedRun(config)
    resolved.method = Watched
    training = resolved.training(config.seeds[0])
    assert isinstance(training.method, Watched)
    training.method.rounds = rounds
    training.run()
    return training.method.noted


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elbo_share", description=__doc__)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--partition", default="disjoint")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at", default="1,10,50,100", help="rounds")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; may be repeated")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rounds = tuple(int(each) for each in given.at.split(","))
    settings = {name: json.loads(value) for name, value in (each.split("=", 1) for each in given.set)}
    config = RunConfig(
        dataset=given.dataset,
        method="fediih",
        partition=given.partition,
        clients=given.clients,
        seeds=[given.seed],
        rounds=max(rounds),
        settings=settings,
        device="cpu",
    )
    for at, found in measure(config, rounds).items():
        print(
            f"round {at:3d}: " + ", ".join(f"{name} {100 * share:.3g} %" for name, share in found.items()), flush=True
        )


if __name__ == "__main__":
    main()
