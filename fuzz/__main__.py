"""`python -m fuzz`: attack fedquilt, print what was tried and what was found, and keep each finding with its replay."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from fuzz import ROOT
from fuzz.attempts import Campaign, Failure, find_kind, kind_names
from fuzz.processes import import_everything


def main() -> int:
    """Return 1 where something was found."""
    asked = _arguments()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    import_everything()
    kinds = asked.only.split(",") if asked.only else kind_names()
    seed = int(time.time()) if asked.seed is None else asked.seed
    with Campaign(kinds, seed, asked.out) as campaign:
        if asked.number is not None:
            for name in kinds:
                campaign.attempt(name, asked.number)
        else:
            campaign.run(asked.attempts, asked.seconds)
        _print_table(campaign)
        found = [failure for tally in campaign.tallies.values() for failure in tally.failures]
        _print_failures(found, asked.out, asked.number is not None)
        if asked.number is None:
            _write_summary(campaign, asked.out)
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    kinds = "; ".join(f"{name}: {find_kind(name).ABOUT}" for name in kind_names())
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__, epilog=f"The kinds are {kinds}.")
    parser.add_argument("--only", metavar="KIND,...", help="some kinds; by default all")
    parser.add_argument("--attempts", type=int, help="so many of each kind; by default as many as there is time for")
    parser.add_argument("--seconds", type=float, help="so long in all; by default 60 unless --attempts is given")
    parser.add_argument("--seed", type=int, help="decides all attempts; by default the time of day, which is printed")
    parser.add_argument("--number", type=int, help="one attempt only, by its number: what the replay of a failure does")
    parser.add_argument("--out", type=Path, default=ROOT / ".fuzz", help="where failures are kept; by default .fuzz")
    asked = parser.parse_args()
    unknown = set(asked.only.split(",") if asked.only else []) - set(kind_names())
    if unknown:
        parser.error(f"there is no kind {sorted(unknown)[0]}; there are {', '.join(kind_names())}")
    if asked.seconds is None and asked.attempts is None:
        asked.seconds = 60.0
    return asked


def _print_table(campaign: Campaign) -> None:
    print(f"seed {campaign.seed}, commit {_commit()}\n")
    print("| kind | attempts | failures | seconds | what was found |")
    print("|---|---|---|---|---|")
    for name, tally in campaign.tallies.items():
        sorts = ", ".join(f"{what} {count}" for what, count in tally.by_what.most_common()) or "nothing"
        print(f"| {name} | {tally.attempts} | {len(tally.failures)} | {tally.seconds:.0f} | {sorts} |")
    attempts = sum(tally.attempts for tally in campaign.tallies.values())
    failures = sum(len(tally.failures) for tally in campaign.tallies.values())
    print(f"| all | {attempts} | {failures} | {sum(t.seconds for t in campaign.tallies.values()):.0f} | |\n")


def _print_failures(found: list[Failure], out: Path, fully: bool) -> None:
    for failure in found:
        text = printable(" ".join(failure.text.split()))
        print(f"{failure.what}: {text if fully else text[:300]}")
        if fully:
            print("\n".join(f"    {printable(note)}" for note in failure.notes))
        print(f"    {failure.replay}")
    if found:
        print(f"\nThe files of each are in {out}.")


def printable(text: str) -> str:
    """A text whose control characters, of which findings are full, are escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _write_summary(campaign: Campaign, out: Path) -> None:
    """Append what was tried to the folder's record, seeds included."""
    out.mkdir(parents=True, exist_ok=True)
    kinds = {
        name: {
            "attempts": tally.attempts,
            "failures": len(tally.failures),
            "found": dict(tally.by_what),
            "numbers": {failure.number: failure.what for failure in tally.failures},
        }
        for name, tally in campaign.tallies.items()
    }
    with open(out / "campaigns.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"commit": _commit(), "seed": campaign.seed, "kinds": kinds}) + "\n")


def _commit() -> str:
    asked = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
