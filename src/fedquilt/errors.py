"""What we tell a user who gave us something we cannot use: one sentence that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


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
    """Training gave numbers that are not finite.

    Attributes:
        what: what was found, as a clause.
        clients: whose numbers they are; empty where that is not known.
    """

    def __init__(
        self, what: str, clients: Sequence[int] = (), advice: str = "use a smaller learning rate (--set lr=...)"
    ) -> None:
        super().__init__(f"Training diverged: {what}; {advice}.")
        self.what, self.clients, self.advice = what, tuple(clients), advice

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is made, for one that comes from another process."""
        return type(self), (self.what, self.clients, self.advice)


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


class ProblemsError(FedquiltError):
    """Several problems of one file or folder: a headline, and a line for each of them.

    Attributes:
        headline: one sentence that says how many there are.
        details: one sentence each; the command line prints each on a line of its own.
    """

    def __init__(self, headline: str, details: Iterable[str]) -> None:
        self.headline, self.details = headline, tuple(details)
        super().__init__("\n".join([headline, *self.details]))
