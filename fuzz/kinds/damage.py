"""Damage one file of what a command wrote; whoever reads it gives the same result, or a sentence that names the file."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.attempts import Attempt
from fuzz.damage_bytes import copied, damage
from fuzz.hooks import killed_after
from fuzz.judge import FINE, Failed, judge, named, no_leftovers, numbers
from fuzz.materials import OUT, SMALL, Work, prepare_works
from fuzz.outcomes import differences, outcome, steady
from fuzz.processes import Ended, forked
from fuzz.sites import ask_first_round, export_logits, trained_site

ABOUT = "a file of a run, comparison, search, study, partition, site or exported model damaged, then read"
_IGNORED = (".png", ".html", ".md", ".tex", ".svg", ".lock", ".csv")


@dataclass(frozen=True)
class Reader:
    """A command that reads what was damaged, and what it gives undisturbed.

    Attributes:
        seen: what of its result has to be the same.
        subset: its text may lack some of the numbers, where what was lost may never have been there.
    """

    name: str
    read: Callable[[Attempt, Path], Ended]
    seen: Callable[[Path, Ended], Any]
    subset: bool = False


@dataclass(frozen=True)
class Source:
    """A folder or a file to damage, with its readers and what they give undisturbed."""

    path: Path
    readers: dict[str, Reader]
    before: dict[str, Any]

    @property
    def name(self) -> str:
        """What it is called where it is damaged."""
        return OUT if self.path.is_dir() else self.path.name


def prepare(folder: Path) -> dict[str, Source]:
    """All sources, read once undisturbed."""
    works = prepare_works(folder, ("run", "run-quilt", "compare", "tune", "study"))
    graph = folder / "graph.npz"
    show, report = _command("show", ("show", OUT)), _command("report", ("report", OUT))
    resume = Reader("resume", _call(("resume", OUT, "-q", "--json")), _folder_and_json)
    export = Reader("load_run", _load_run, lambda place, ended: ended.value)
    sources: dict[str, Source] = {}

    def add(name: str, path: Path, *readers: Reader) -> None:
        sources[name] = Source(path, {reader.name: reader for reader in readers}, {})

    for name in ("run", "run-quilt"):
        add(name, works[name].folder, show, report, resume, export)
    add("compare", works["compare"].folder, show, report, _compared(works["compare"].again))
    add("tune", works["tune"].folder, _compared(works["tune"].again))
    study = works["study"].arguments
    add("study", works["study"].folder, _command("study report", ("study", "report", *study[2:5])), _compared(study))
    add("interrupted", _interrupted(folder, works["run"]), resume, show, report)
    add("partition", _partition(folder, graph), _with_partition(graph))
    site = trained_site(folder / "site")
    predict = Reader("predict", _call(("predict", f"{OUT}/site.yaml", "--out", "p.csv")), _csv)
    add("site", site, predict, _command("site check", ("site", "check", f"{OUT}/site.yaml")))
    budget = {"clip": 1.0, "noise": 8.0, "delta": 1e-5, "epsilon": 50.0}
    add(
        "budget",
        trained_site(folder / "budget", permits="all", dp=budget),
        Reader("request", _request, lambda _, e: e.value),
    )
    add(
        "export",
        _exported(folder, works["run"].folder),
        Reader("load_module", _load_module, lambda _, e: {"logits": e.value}),
    )
    for name, source in sources.items():
        for reader in source.readers.values():
            place = folder / "undisturbed" / name / reader.name.replace(" ", "-")
            copied(source.path, place / source.name)
            case = Attempt("damage", 0, 0, place, None)
            ended = judge(reader.read(case, place))
            if ended.status != FINE:
                raise RuntimeError(f"{name} cannot be read undisturbed by {reader.name}: {ended.said}")
            source.before[reader.name] = reader.seen(place, ended)
    return sources


def attempt(case: Attempt) -> None:
    """Damage a file, read, compare."""
    rng, sources = case.rng, case.material
    name = rng.choice(sorted(sources))
    source: Source = sources[name]
    place = copied(source.path, case.folder / source.name)
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if _counts(path))
    chosen = rng.choice(files)
    case.note(f"{name}: {damage(chosen, rng)} ({chosen.relative_to(case.folder)})")
    reader = source.readers[rng.choice(sorted(source.readers))]
    ended = judge(reader.read(case, case.folder))
    if ended.status != FINE:
        if ended.status == 1:
            return  # `study run` with a cell that failed and was reported
        # A folder without the configuration of a search is none, and one with another configuration holds another.
        other_search = chosen.name == "tune.json" and ("another search" in ended.err or "no search" in ended.err)
        if not named(chosen, ended) and not other_search:
            raise Failed("not named", f"{case.notes}: {ended.err.strip()}")
        return
    if not reader.subset:  # a command that only shows may leave what is there
        no_leftovers(case.folder)
    if "Warning: " in ended.out and chosen.name in ended.out:
        return  # another result, and it says why
    found = reader.seen(case.folder, ended)
    before = source.before[reader.name]
    if reader.subset:
        new = numbers(found) - numbers(before)
        if new:
            raise Failed("believed", f"{reader.name} after {case.notes} shows {', '.join(sorted(new)[:5])}")
        return
    # The damaged file may lie as it is where its content was not needed.
    own = chosen.relative_to(place).as_posix() if place.is_dir() else ""
    where = [name for name in differences(before, found) if name != own]
    if where:
        raise Failed("believed", f"{reader.name} after {case.notes} gives another result: {', '.join(where[:5])}")


def _counts(path: Path) -> bool:
    return path.is_file() and path.suffix not in _IGNORED and path.name != ".lock" and "figures" not in path.parts


def _call(arguments: tuple[str, ...]) -> Callable[[Attempt, Path], Ended]:
    return lambda case, place: case.unjudged(*arguments)


def _command(name: str, arguments: tuple[str, ...]) -> Reader:
    """A command that shows numbers."""
    return Reader(name, _call(arguments), lambda place, ended: ended.out.replace(str(place), ""), subset=True)


def _compared(arguments: tuple[str, ...]) -> Reader:
    """A command that goes on with a folder."""
    return Reader("again", _call(arguments), lambda place, ended: outcome(place / OUT))


def _folder_and_json(place: Path, ended: Ended) -> Any:
    return outcome(place / OUT) | _json(place, ended)


def _json(place: Path, ended: Ended) -> Any:
    return {"said": steady(json.loads(ended.out), str(place.resolve()))}


def _csv(place: Path, ended: Ended) -> Any:
    return {"predictions": (place / "p.csv").read_text()}


def _interrupted(folder: Path, work: Work) -> Path:
    """The folder of a run that was killed in its second seed."""
    place = folder / "interrupted"
    place.mkdir()
    case = Attempt("damage", 0, 0, place, None)
    for share in (0.63, 0.7, 0.75, 0.8, 0.85, 0.9, 0.55):  # the first that leaves a seed done and another begun
        ended = case.unjudged(*work.arguments, before=killed_after(round(share * work.operations), place))
        begun = place / OUT / "seed-1" / "checkpoints"
        if ended.status < 0 and begun.is_dir() and any(begun.glob("*.json")):
            return place / OUT
        shutil.rmtree(place / OUT, ignore_errors=True)
    raise RuntimeError("no kill leaves a run in its second seed")


def _partition(folder: Path, graph: Path) -> Path:
    cut = folder / "cut.npz"
    case = Attempt("damage", 0, 0, folder, None)
    case.run("partition", str(graph), "--kind", "disjoint", "--clients", "3", "--out", str(cut))
    return cut


def _with_partition(graph: Path) -> Reader:
    arguments = ("run", "-m", "fedavg", "-d", str(graph), "-p", "./cut.npz", *SMALL[2:], "-q", "--json", "--out", "new")
    return Reader("run", _call(arguments), _json)


def _load_run(case: Attempt, place: Path) -> Ended:
    """Use a run from Python: its result, its records and its models."""

    def use() -> Any:
        import fedquilt
        from fedquilt.errors import FedquiltError

        try:
            run = fedquilt.load_run(OUT)
        except FedquiltError as error:
            return _told(error)
        models = {
            f"{seed}/{name}": hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
            for seed, named_ in run.models.items()
            for name, tensor in named_.items()
        }
        return {"result": steady(run.result), "records": steady({str(s): r for s, r in run.records.items()})} | models

    case.note("fedquilt.load_run")
    return forked(use, place, ["(python) load_run"])


def _request(case: Attempt, place: Path) -> Ended:
    """Ask a site for another round; what it has paid for may not be forgotten."""
    case.note("(python) a request for the first round of a new run")
    return forked(lambda: ask_first_round(place / OUT / "site.yaml"), place, ["(request)"])


def _exported(folder: Path, run: Path) -> Path:
    def export() -> int:
        from fedquilt.export import module_of, save_module

        save_module(module_of(run, client=1), folder / "exported")
        return 0

    judge(forked(export, folder, ["(python) save_module"]))
    return folder / "exported"


def _load_module(case: Attempt, place: Path) -> Ended:
    def use() -> Any:
        from fedquilt.errors import FedquiltError

        try:
            return export_logits(Path(OUT))
        except FedquiltError as error:
            return _told(error)

    case.note("fedquilt.export.load_module")
    return forked(use, place, ["(python) load_module"])


def _told(error: Exception) -> int:
    """What the command line does with an error of ours."""
    print(f"fedquilt: {error}", file=sys.stderr)
    return 2
