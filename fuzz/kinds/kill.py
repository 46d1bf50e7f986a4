"""Kill a command at an operation on a file, once or again while it recovers; then it has to come to the same result."""

from __future__ import annotations

from pathlib import Path

from fuzz.attempts import Attempt
from fuzz.hooks import killed_after, power_cut_after
from fuzz.judge import FINE, Failed, no_leftovers
from fuzz.materials import OUT, Work, prepare_works
from fuzz.outcomes import differences, outcome

ABOUT = "run, compare, tune, study killed (or the power cut) at the k-th operation on a file, then resumed"
_AGAIN = 0.3  # the chance that the recovery is killed as well
_POWER = 0.3  # the chance that unsynced data is lost with the kill


def prepare(folder: Path) -> dict[str, Work]:
    """The commands undisturbed."""
    return prepare_works(folder)


def attempt(case: Attempt) -> None:
    """Kill, recover, compare."""
    rng, works = case.rng, case.material
    work: Work = works[rng.choice(sorted(works))]
    arguments = work.arguments
    for times in range(3):
        if times and (times == 2 or rng.random() > _AGAIN):
            break
        after, lossy = rng.randrange(work.operations), rng.random() < _POWER
        case.note(f"{'power cut' if lossy else 'kill'} after {after} operations of {work.operations} on files")
        hook = power_cut_after(after, case.folder, rng.randrange(2**31)) if lossy else killed_after(after, case.folder)
        ended = case.unjudged(*arguments, before=hook)
        if ended.status >= 0:
            break  # it ended before the kill, or was refused; what follows judges that
        arguments = work.again if (case.folder / OUT).exists() else work.arguments
    recover(case, work)


def recover(case: Attempt, work: Work) -> None:
    """Go on with a command that was stopped: the result has to be that of one that was not, and nothing may be left over."""
    out = case.folder / OUT
    tried = []
    for arguments in ([work.again] if out.exists() else []) + [work.arguments]:
        ended = case.run(*arguments)
        if ended.status == FINE:
            break
        tried.append(ended.err.strip())
    else:
        raise Failed("dead end", "; then ".join(tried))
    different = differences(work.outcome, outcome(out))
    if different:
        raise Failed("other result", f"differs from the undisturbed one in {', '.join(different[:5])}")
    no_leftovers(case.folder)
