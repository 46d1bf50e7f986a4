"""The sentences of a study's report: verdicts, provenance of the numbers, and what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedquilt.studies.cells import Missing
from fedquilt.studies.summary import EXCEEDED, MISSED, REACHED, Summary
from fedquilt.studies.tables import SIGNS, STALE_SIGN


def legend(summary: Summary) -> str:
    """What the entries of the tables show; nothing of published numbers where there are none."""
    bold = "In bold: the best of a column."
    if not summary.has_published:
        return bold
    return (
        f"Below ours: the published number and the difference; {SIGNS[EXCEEDED]} at least as good, "
        f"{SIGNS[REACHED]} within 1.0, {SIGNS[MISSED]} missed. {bold}"
    )


def verdict_sentences(summary: Summary) -> list[str]:
    """How many runs are done, and for each value how many published numbers were exceeded, reached and missed."""
    out = []
    done, planned = summary.done
    if done < planned:
        out.append(f"{done} of {planned} runs are done.")
    if 0 < summary.seeds < summary.study.seeds:
        whose = "the paper" if summary.study.claim else "the study"
        out.append(f"{summary.seeds} seeds; {whose} has {summary.study.seeds}.")
    for value, heading in summary.study.values.items():
        counts = summary.verdicts(value)
        total = sum(counts.values())
        if total:
            statistics = summary.study.better.get(value) == "neither"
            close = "within one percent" if statistics else "within 1.0 below"
            best = "" if statistics else f"{counts[EXCEEDED]} exceeded, "
            out.append(
                f"{heading}: of {total} published numbers {best}{counts[REACHED]} reached {close}, "
                f"{counts[MISSED]} missed, {counts['not run']} not run."
            )
    return out


def provenance(summary: Summary) -> list[str]:
    """The machines and versions that computed the numbers, and whether the installed version did."""
    out = [f"{count} runs on {machine}." for machine, count in summary.machines.items()]
    by = ", ".join(f"{count} by {code}" for code, count in summary.codes.items())
    if summary.stale:
        out.append(
            f"{summary.stale} of {sum(summary.codes.values())} runs are stale ({STALE_SIGN}): another version of the "
            f"computation finished them ({by}); 'fedquilt study run' with --stale runs exactly these again."
        )
    elif summary.codes:
        out.append(f"All runs were computed by the installed code ({', '.join(summary.codes)}).")
    return out


def absences(summary: Summary) -> list[str]:
    """A sentence for each reason why places are left out, and for each cell that failed."""
    failed = [f"Failed: {label}: {why.rstrip('.')}." for label, why in summary.failed.items()]
    return left_out(summary.missing) + failed


def left_out(missing: Sequence[Missing]) -> list[str]:
    """A sentence for each reason why places cannot be run."""
    absent = [one for one in missing if one.method]
    names = ", ".join(dict.fromkeys(one.method for one in absent))
    out = [f"Left out, {len(absent)} places: methods that are not in fedquilt yet ({names})."] if absent else []
    others = Counter(one.why.rstrip(".") for one in missing if not one.method)
    return out + [f"Left out, {count} places: {why}." for why, count in others.items()]
