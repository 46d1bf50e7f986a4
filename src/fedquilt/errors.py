"""What we tell a user who gave us something we cannot use: one sentence that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedquiltError(Exception):
    """Bad input. Its message is one clear sentence; the command line prints it and exits with status 2."""


class MachineLimitError(FedquiltError):
    """The machine has too little of something, such as memory or disk space. The command line exits with status 3.

    Attributes:
        lasting: whether the same again would meet it again, so that there is no use in resuming.
    """

    def __init__(self, sentence: str, lasting: bool = False) -> None:
        super().__init__(sentence)
        self.lasting = lasting


class DivergedError(FedquiltError):
    """Training gives no finite numbers any more."""


class UnfitMethodError(FedquiltError):
    """A method needs what the task, the graph or the scenario of a run does not have; another method may do without."""


class RefusedError(FedquiltError):
    """A run or a comparison is not what it was when it began, so that it is not resumed."""


def unknown(kind: str, name: str, known: Iterable[str]) -> FedquiltError:
    """The error for a name that does not exist: `unknown("method", "fedpup", methods)` names the nearest right one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"choose one of: {', '.join(names)}."
    return FedquiltError(f"There is no {kind} '{name}'; {hint}")
