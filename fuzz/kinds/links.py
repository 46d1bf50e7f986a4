"""Plant symbolic links where a command writes: nothing outside its folder is changed."""

from __future__ import annotations

from pathlib import Path

from fuzz.attempts import Attempt
from fuzz.damage_bytes import copied
from fuzz.judge import Failed
from fuzz.materials import OUT, Work, prepare_works
from fuzz.sites import ask_first_round, trained_site

ABOUT = "symbolic links to other people's files planted in run folders and in a site's state"
PRECIOUS = "precious\n" * 20
# Files that commands write or truncate; * stands for one folder.
_NAMES = (
    ".lock",
    ".lock",
    "config.json",
    "result.json",
    "seed-0/metrics.jsonl",
    "seed-0/summary.json",
    "figures/clients.png",
)
_NAMES_OF_SITES = (".privacy.lock", "privacy.json", "*/.lock", "*/ledger.jsonl")


def prepare(folder: Path) -> dict[str, object]:
    """A run, a search, a study, and a site with a budget."""
    budget = {"clip": 1.0, "noise": 8.0, "delta": 1e-5, "epsilon": 50.0}
    return {
        "works": prepare_works(folder, ("run", "compare", "tune", "study")),
        "site": trained_site(folder / "site", permits="all", dp=budget),
    }


def attempt(case: Attempt) -> None:
    """Plant a link, run, look at what it points to."""
    precious = case.folder / "precious.txt"
    precious.write_text(PRECIOUS)
    before = precious.stat()
    if case.rng.random() < 0.3:
        _at_a_site(case, precious)
    else:
        _in_a_folder(case, precious)
    if not precious.exists() or precious.read_text() != PRECIOUS:
        raise Failed("written through a link", f"{case.notes}: the file is now {precious.read_bytes()[:60]!r}")
    if precious.stat().st_mode != before.st_mode:
        raise Failed("written through a link", f"{case.notes}: the file's permissions changed")


def _in_a_folder(case: Attempt, precious: Path) -> None:
    work: Work = case.material["works"][case.rng.choice(sorted(case.material["works"]))]
    copied(work.folder, case.folder / OUT)
    name = case.rng.choice(_NAMES)
    _plant(case, case.folder / OUT / name, precious)
    commands = [work.again, ("show", OUT), ("report", OUT)]
    if work.name == "study":
        commands = [work.again]
    case.run(*case.rng.choice(commands))


def _at_a_site(case: Attempt, precious: Path) -> None:
    from fuzz.processes import forked

    site = copied(case.material["site"], case.folder / "site")
    name = case.rng.choice(_NAMES_OF_SITES)
    places = sorted((site / "state").glob(name)) or [site / "state" / name.replace("*", "0123456789ab")]
    _plant(case, case.rng.choice(places), precious)
    ended = forked(lambda: ask_first_round(site / "site.yaml"), case.folder, ["(request)"])
    if ended.status not in (0, 2):
        raise Failed("traceback", ended.err[-1000:])


def _plant(case: Attempt, place: Path, precious: Path) -> None:
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(precious)
    case.note(f"{place.relative_to(case.folder)} is a link to {precious.name}")
