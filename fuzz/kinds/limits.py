"""Give a command less than it needs: disk, memory, file sizes, permissions. It says so, and goes on when there is more."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz.attempts import Attempt
from fuzz.damage_bytes import copied
from fuzz.hooks import disk_full_after
from fuzz.judge import WRONG_INPUT, Failed, judge
from fuzz.kinds.kill import recover
from fuzz.materials import OUT, TINY, prepare_works, write_graph
from fuzz.processes import forked
from fuzz.sites import first_round, trained_site

ABOUT = "the disk full at the k-th operation, files cut at a size, little memory, folders read-only or unreadable"
_NOBODY = 65534
_ENOUGH = 16 * 2**20  # bytes with which a library can say that memory ran out


def prepare(folder: Path) -> dict[str, Any]:
    """The commands undisturbed, a larger graph for little memory, and a site."""
    return {
        "works": prepare_works(folder, ("run", "run-quilt", "compare", "tune", "study")),
        "large": write_graph(folder / "large.npz", nodes=3000),
        "site": trained_site(folder / "site"),
    }


def attempt(case: Attempt) -> None:
    """Run a command under a limit, then without."""
    sort = case.rng.choice(sorted(_SORTS))
    case.note(sort)
    _SORTS[sort](case)


def _work(case: Attempt) -> Any:
    return case.material["works"][case.rng.choice(sorted(case.material["works"]))]


def _disk_full(case: Attempt) -> None:
    """The disk is full for good, or for a moment."""
    work = _work(case)
    after, lasting = case.rng.randrange(work.operations), case.rng.random() < 0.7
    case.note(f"disk full after {after} of {work.operations} operations{'' if lasting else ', once'}")
    _then_recover(case, work, disk_full_after(after, case.folder, lasting))


def _file_size(case: Attempt) -> None:
    """No file may grow beyond a size: writes fail half way, as on a full disk."""
    size = case.rng.choice((0, 10, 100, 400, 1000, 2000, 4000, 8000, 20_000))
    case.note(f"no file over {size} bytes")
    _then_recover(case, _work(case), lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))


def _then_recover(case: Attempt, work: Any, before: Callable[[], None]) -> None:
    """Under the limit: the result, or a sentence. Without it: the same result as undisturbed."""
    case.run(*work.arguments, before=before)
    recover(case, work)


def _memory(case: Attempt) -> None:
    """Little address space beyond what the process has already."""
    more = case.rng.choice((0, 1, 4, 16, 64, 128, 200, 300)) * 2**20
    case.note(f"{more // 2**20} MB more than at the start")
    method = case.rng.choice(("fedavg", "quilt", "fedhero", "fedpub"))
    data = ("-d", str(case.material["large"]), *TINY, "--set", "hidden=512", "-q", "--out", OUT)

    def limit() -> None:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + more
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    ended = case.unjudged("run", "-m", method, *data, before=limit)
    if ended.status < 0 and not ended.over and more < _ENOUGH:
        return  # libraries in C crash where a few bytes cannot be had, and nothing in Python can prevent that
    judge(ended)
    if ended.status == WRONG_INPUT and "memory" not in ended.err:
        raise Failed("not named", f"memory was short, and it says: {ended.err.strip()}")


def _as_nobody(*chmods: tuple[str, int]) -> Callable[[Path], Callable[[], None]]:
    """A hook: the process becomes a user who owns nothing, after these changes of permissions."""

    def hook(folder: Path) -> Callable[[], None]:
        def before() -> None:
            for pattern, mode in chmods:
                for path in [folder] if pattern == "." else sorted(folder.glob(pattern)):
                    path.chmod(mode)
            os.setgroups([])
            os.setegid(_NOBODY)
            os.seteuid(_NOBODY)

        return before

    return hook


def _permissions(case: Attempt) -> None:
    """A folder that may not be written to, or files that may not be read."""
    work = case.material["works"][case.rng.choice(("run", "compare", "tune", "study"))]
    copied(work.folder, case.folder / OUT)
    site = copied(case.material["site"], case.folder / "site")
    (case.folder / "mine").mkdir()
    (case.folder / "mine").chmod(0o777)
    chosen = case.rng.choice(sorted(path for path in (case.folder / OUT).rglob("*") if path.name != ".lock"))
    inside = case.rng.choice(sorted(site.rglob("*")))
    hooks = (
        _as_nobody((".", 0o555)),
        _as_nobody((".", 0o755), (f"{OUT}", 0o000)),
        _as_nobody((".", 0o755), (f"{chosen.relative_to(case.folder)}", 0o000)),
        _as_nobody((".", 0o755), (f"{inside.relative_to(case.folder)}", 0o000)),
    )
    number = case.rng.randrange(len(hooks))
    command = case.rng.choice(
        (
            ("resume", OUT, "-q"),
            ("show", OUT),
            ("report", OUT),
            ("report", OUT, "--out", "mine/report.html"),
            ("predict", "site/site.yaml", "--out", "mine/p.csv"),
            ("predict", "site/site.yaml", "--out", "p.csv"),
            ("site", "check", "site/site.yaml"),
            (*work.arguments[:-1], work.arguments[-1]) if work.name in ("tune", "study") else ("resume", OUT, "-q"),
            tuple("deeper/new" if each == OUT else each for each in work.arguments),
            tuple("mine/new" if each == OUT else each for each in work.arguments),
        )
    )
    case.note(f"as another user, closed: {('the folder, to writing', OUT, chosen.name, inside.name)[number]}")
    case.run(*command, before=hooks[number](case.folder))


def _no_room_for_a_site(case: Attempt) -> None:
    """A site's disk is full while it answers: it refuses, and answers when there is room again."""
    place = copied(case.material["site"], case.folder / "site")
    shutil.rmtree(place / "state")
    after = case.rng.randrange(12)
    case.note(f"disk full after {after} operations, then room again")
    hook = disk_full_after(after, case.folder, lasting=True)

    def ask() -> Any:
        from fedquilt.federation.site.request_handler import RequestHandler

        said, body = RequestHandler().reply(str(place / "site.yaml"), first_round("0123456789ab"), b"")
        return {"refused": said.get("refused"), "bytes": len(body)}

    def ask_full() -> Any:
        hook()
        return ask()

    full, then = forked(ask_full, case.folder, ["(request)"]), forked(ask, case.folder, ["(request)"])
    for ended in (full, then):
        if ended.status or ended.value is None:
            raise Failed("traceback", ended.err[-1500:])
    if full.value["refused"] and full.value["bytes"]:
        raise Failed("leak", "a refusal came with a body")
    if then.value["refused"]:
        raise Failed("dead end", f"with room again the site says: {then.value['refused']}")


_SORTS: dict[str, Callable[[Attempt], None]] = {
    "disk full": _disk_full,
    "disk full too": _disk_full,
    "file size": _file_size,
    "memory": _memory,
    "a site without room": _no_room_for_a_site,
}
if os.geteuid() == 0:  # only root can become another user
    _SORTS["permissions"] = _permissions
