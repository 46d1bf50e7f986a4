"""Attempts: a kind of attack, its seed and its number; what came of each; the table."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import shlex
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import fuzz.kinds
from fuzz.commands import command
from fuzz.judge import Failed, judge
from fuzz.processes import Ended

_LARGEST_KEPT = 4 * 2**20  # bytes of a failed attempt's folder that are kept with it


class Kind(Protocol):
    """A module of `fuzz.kinds`. `ABOUT` says in a line what is tried."""

    ABOUT: str

    def prepare(self, folder: Path) -> Any:
        """Make what all attempts of this kind start from; they get it as `Attempt.material`, and copy from it."""

    def attempt(self, case: Attempt) -> None:
        """Make one attempt; raise `Failed` where something is found."""


@dataclass
class Attempt:
    """One attempt.

    Attributes:
        rng: decides everything about it.
        folder: an empty folder for it; a kind may set another.
        notes: what was done, in the order in which it was done.
    """

    kind: str
    seed: int
    number: int
    folder: Path
    material: Any
    rng: random.Random = field(init=False)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.kind}/{self.seed}/{self.number}")

    def note(self, text: str) -> None:
        """Write down what was done."""
        self.notes.append(text)

    def run(self, *arguments: str, **options: Any) -> Ended:
        """Run a command in the attempt's folder, judged; `options` are those of `fuzz.commands.command`."""
        return judge(self.unjudged(*arguments, **options))

    def unjudged(self, *arguments: str, **options: Any) -> Ended:
        """Run a command that may be killed."""
        self.note("fedquilt " + shlex.join(arguments))
        return command(arguments, self.folder, **options)


@dataclass
class Failure:
    """What an attempt found."""

    kind: str
    seed: int
    number: int
    what: str
    text: str
    notes: list[str]

    @property
    def replay(self) -> str:
        """The command that makes the attempt again."""
        return f"python -m fuzz --only {self.kind} --seed {self.seed} --number {self.number}"


@dataclass
class Tally:
    """What came of the attempts of one kind."""

    attempts: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    @property
    def by_what(self) -> Counter[str]:
        """How many failures of each sort."""
        return Counter(failure.what for failure in self.failures)


def kind_names() -> list[str]:
    """The kinds there are."""
    return sorted(module.name for module in pkgutil.iter_modules(fuzz.kinds.__path__))


def find_kind(name: str) -> Kind:
    """The module of a kind."""
    return importlib.import_module(f"fuzz.kinds.{name}")


class Campaign:
    """Attempts of some kinds with one seed; failures go to the folder `out` as they are found."""

    def __init__(self, kinds: Sequence[str], seed: int, out: Path) -> None:
        self.seed, self.out = seed, out
        self.kinds = {name: find_kind(name) for name in kinds}
        self.tallies = {name: Tally() for name in kinds}
        self._materials: dict[str, Any] = {}
        self._place = Path(tempfile.mkdtemp(prefix="fedquilt-fuzz-"))
        self._place.chmod(0o755)  # for the attempts as another user

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._place, ignore_errors=True)

    def run(self, attempts: int | None, seconds: float | None) -> None:
        """Make so many attempts of each kind, or as many as there is time for; the kind that took least time comes next."""
        began = time.monotonic()
        while seconds is None or time.monotonic() - began < seconds:
            left = [name for name, tally in self.tallies.items() if attempts is None or tally.attempts < attempts]
            if not left:
                return
            name = min(left, key=lambda kind: self.tallies[kind].seconds)
            self.attempt(name, self.tallies[name].attempts)

    def attempt(self, name: str, number: int) -> None:
        """Make one attempt and write down what it found."""
        began, tally = time.monotonic(), self.tallies[name]
        folder = self._place / name / f"{number}"
        folder.mkdir(parents=True)
        case = Attempt(name, self.seed, number, folder, self._material(name))
        try:
            self.kinds[name].attempt(case)
        except Exception as error:
            # An error of the generator itself counts as well: nobody may take it for an attempt that found nothing.
            what = error.what if isinstance(error, Failed) else "the generator failed"
            text = str(error) if isinstance(error, Failed) else traceback.format_exc()
            failure = Failure(name, self.seed, number, what, text, case.notes)
            tally.failures.append(failure)
            self._keep(failure, case.folder)
        finally:
            _writable(folder)
            shutil.rmtree(folder)
        tally.attempts += 1
        tally.seconds += time.monotonic() - began

    def _material(self, name: str) -> Any:
        if name not in self._materials:
            place = self._place / f"{name}-material"
            place.mkdir()
            self._materials[name] = self.kinds[name].prepare(place)
        return self._materials[name]

    def _keep(self, failure: Failure, folder: Path) -> None:
        """Keep what a failure was found with: the commands, the sentence, and the files where they are small."""
        place = self.out / f"{failure.kind}-{failure.seed}-{failure.number}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        facts = vars(failure) | {"replay": failure.replay}
        (place / "failure.json").write_text(json.dumps(facts, indent=2), encoding="utf-8", errors="surrogateescape")
        _writable(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        if size <= _LARGEST_KEPT:
            shutil.copytree(folder, place / "files", symlinks=True, dirs_exist_ok=True)


def _writable(folder: Path) -> None:
    """Undo what an attempt did to the permissions in its folder."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755)
