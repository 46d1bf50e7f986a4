"""A hostile coordinator asks a site: nothing unpermitted leaves, the budget holds, and whatever it asks, it gets an answer."""

from __future__ import annotations

import json
import logging
import random
import shutil
from pathlib import Path
from typing import Any

from fuzz.attempts import Attempt
from fuzz.judge import Failed
from fuzz.odd_values import odd_number, odd_text, odd_value
from fuzz.processes import forked

ABOUT = "requests to a site: odd, replayed, out of order, of other runs, over the budget, for more than is permitted"
_SITES: dict[str, dict[str, Any]] = {
    "all permitted": {"permits": "all"},
    "some permitted": {"permits": ["model.conv*", "train_nodes"]},
    "documented permits": {"permits": ["model.conv", "train_nodes", "figures"]},
    "budget": {"permits": "all", "dp": {"clip": 1.0, "noise": 4.0, "delta": 1e-5, "epsilon": 5.0}},
    "budget and permits": {"permits": ["model.conv", "train_nodes"], "dp": {"clip": 1.0, "noise": 4.0, "epsilon": 5.0}},
}
_METHODS = (
    "fedavg",
    "fedper",
    "fedprox",
    "fedpub",
    "fedssa",
    "fediih",
    "fedhero",
    "fedsheafhn",
    "quilt",
    "local",
    "majority",
)
_NUMBERS = 50_000_000
_FILES_LIMIT = 40 * 2**20  # bytes that a dozen requests may put on a site's disk


def prepare(folder: Path) -> dict[str, Path]:
    """A fresh site of each sort."""

    def write() -> int:
        from fedquilt.federation.site.config import SiteConfig
        from fedquilt.federation.site.examples import write_sites
        from support.federations import ragged_clients

        # By default a site gives a coordinator models of a billion numbers, more than an attempt has memory for.
        quota = {"quota": {"numbers": _NUMBERS}} if "quota" in SiteConfig.model_fields else {}
        for name, fields in _SITES.items():
            write_sites(folder / name, ragged_clients((14,)), **fields, **quota)
        return 0

    ended = forked(write, folder)
    if ended.status:
        raise RuntimeError(f"no sites could be written: {ended.said}")
    return {name: folder / name / "site-0" for name in _SITES}


def attempt(case: Attempt) -> None:
    """Ask a site a dozen things."""
    name = case.rng.choice(sorted(case.material))
    case.note(f"site: {name}")
    shutil.copytree(case.material[name], case.folder / "site")
    seed = case.rng.randrange(2**31)
    ended = forked(
        lambda: _ask_all(case.folder, _SITES[name], seed),
        case.folder,
        ["(requests)"],
        cpu_seconds=60.0,
        memory_mb=4096.0,
    )
    case.notes += [json.dumps(line)[:500] for line in (ended.value or {}).get("asked", [])]
    if ended.over:
        raise Failed(
            f"too much {ended.over}",
            f"killed after {ended.cpu:.0f} s of CPU, {ended.peak_mb:.0f} MB; {ended.err[-600:]}",
        )
    if ended.status or ended.value is None:
        raise Failed("traceback", ended.err[-1500:])
    found = ended.value["found"]
    if found:
        raise Failed(*found)
    size = sum(path.stat().st_size for path in case.folder.rglob("*") if path.is_file())
    if size > _FILES_LIMIT:
        raise Failed("disk", f"a dozen requests left {size / 2**20:.0f} MB on the site's disk")


def _ask_all(folder: Path, fields: dict[str, Any], seed: int) -> dict[str, Any]:
    """In a process of its own: a sequence of requests, and the first thing that is wrong with a reply."""
    from fedquilt.federation.site.request_handler import RequestHandler

    logging.getLogger("fedquilt.site").setLevel(logging.CRITICAL)
    rng = random.Random(seed)
    handler, site = RequestHandler(), str(folder / "site" / "site.yaml")
    asked: list[Any] = []
    watcher = _Watcher(folder / "site", fields)
    plans = _Plans(rng)
    found: tuple[str, str] | None = None
    for _ in range(rng.randint(4, 14)):
        header, body = plans.next()
        try:
            text = json.dumps(header)
            asked.append({"header": json.loads(text) if len(text) < 2000 else text[:200], "body": len(body)})
        except (ValueError, RecursionError):
            asked.append("a header that is no JSON")
            continue
        if len(text) > 2**16:
            continue  # `unpack` refuses it before a handler sees it
        before = watcher.paid()
        reply = handler.reply(site, json.loads(text), body)
        found = watcher.wrong(header, reply, before)
        if found is not None:
            break
    return {"asked": asked, "found": found}


class _Plans:
    """Requests that continue each other, or do not."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.run, self.round, self.method = f"{rng.randrange(16**12):012x}", 0, rng.choice(_METHODS)
        self.last: tuple[dict[str, Any], bytes] | None = None

    def next(self) -> tuple[dict[str, Any], bytes]:
        rng = self.rng
        sort = rng.random()
        if sort < 0.1 and self.last is not None:
            return self.last  # a replay
        if sort < 0.2:
            self.method = rng.choice(_METHODS)
        if sort < 0.3:
            self.run = f"{rng.randrange(16**12):012x}"
        header: dict[str, Any] = self.good()
        if sort > 0.45:
            header = self.odd(header)
        elif sort > 0.4:
            header = {"kind": "hello", "version": 1}
        else:
            self.round += 1
        body = self.body()
        self.last = header, body
        return header, body

    def good(self) -> dict[str, Any]:
        """A round that an honest coordinator asks for."""
        kind = self.rng.choice(("round", "round", "round", "round", "evaluate", "finish"))
        context = {
            **{"dataset": "ragged", "partition": "disjoint", "metric": "accuracy", "task": "node-classification"},
            **{"features": 10, "outputs": 3, "clients": 3, "epochs": 1, "seed": 3},
        }
        settings = {} if self.method == "majority" else {"hidden": 8}
        return {
            **{"version": 1, "kind": kind, "run": self.run, "coordinator": 0, "round": self.round, "best": -1},
            **{
                "client": 0,
                "rounds": 6,
                "method": self.method,
                "settings": settings,
                "task": context,
                "evaluate": True,
            },
        }

    def odd(self, header: dict[str, Any]) -> dict[str, Any]:
        """The same with something odd in it."""
        rng = self.rng
        sort = rng.randrange(6)
        if sort == 0:
            header[rng.choice(sorted(header))] = odd_value(rng)
        elif sort == 1:
            task = dict(header["task"])
            task[rng.choice(sorted(task))] = rng.choice((odd_number(rng), odd_text(rng), 20_000, 3))
            header["task"] = task
        elif sort == 2:
            name = rng.choice(("hidden", "lr", "epochs", "dropout", "weight_decay", "layers", "order", "factors", "x"))
            size = rng.choice((10**4, 10**5, 10**6, 10**9, odd_number(rng), odd_text(rng), 0, -3))
            header["settings"] = {**header["settings"], name: size}
        elif sort == 3:
            header["round"] = rng.choice((-1, 0, 10**6, self.round + 3, max(0, self.round - 2)))
            header["coordinator"] = rng.choice((0, 1, -1, 2**60))
        elif sort == 4:
            header["best"] = rng.choice((-1, 0, 5, 10**6))
            header["rounds"] = rng.choice((1, 6, 10**7, 10**6))
            header["evaluate"] = odd_value(rng)
        else:
            header["run"] = rng.choice(("../../x", "", "a" * 400, "AB" * 6, "0" * 64, odd_text(rng)))
        return header

    def body(self) -> bytes:
        """A download: mostly none, as in a first round, or a bad one."""
        import torch

        from fedquilt.messages.wire import encode

        rng = self.rng
        sort = rng.randrange(10)
        if sort < 6:
            return b""
        if sort == 6:
            return rng.randbytes(rng.choice((1, 8, 5000)))
        shape = rng.choice(((1, 10, 8), (1, 8, 3), (10, 8), (1, 0), (1, 3000, 3000), (1,)))
        value = rng.choice((0.0, 1.0, float("nan"), 3e38, -1e30))
        name = rng.choice(("model.conv1.weight", "model.classifier.bias", "secret", "x" * 500, "filter", "model."))
        try:
            return encode({name: torch.full(shape, value)})
        except (ValueError, RuntimeError):
            return b"\x00" * 40


class _Watcher:
    """What may leave a site, judged without the site's own code where that is possible."""

    def __init__(self, site: Path, fields: dict[str, Any]) -> None:
        self.site, self.permits, self.dp = site, fields["permits"], fields.get("dp")
        self.left: set[bytes] = set()

    def paid(self) -> int:
        """How many uploads the site has paid for."""
        from fedquilt.federation.site.site import open_site

        budget = open_site(self.site / "site.yaml").budget
        return 0 if budget is None else budget.uploads

    def wrong(self, header: dict[str, Any], reply: Any, before: int) -> tuple[str, str] | None:
        """What is wrong with a reply: a word to count by, and a sentence."""
        from fedquilt.messages.wire import decode

        said, body = reply
        text = json.dumps(said)
        if len(text) > 2**15:
            return "long reply", f"the reply's header has {len(text)} characters"
        if str(self.site) in text or "Traceback" in text:
            return "place told", f"the reply tells where the site's files are: {text[:300]}"
        if "refused" in said and body:
            return "leak", "a refusal came with a body"
        if body:
            if header.get("kind") != "round":
                return "leak", f"the reply to {header.get('kind')!r} has a body"
            unpermitted = [name for name in decode(body) if not self._permitted(name)]
            if unpermitted:
                return "leak", f"{unpermitted[0]} left, which is not permitted"
        if said.get("figures") is not None and (not self._permitted("figures") or self.dp is not None):
            return "leak", "metrics left, which is not permitted"
        if self.dp is None:
            return None
        fresh = 0
        if body and decode(body) and body not in self.left:  # a method that sends nothing has a body without tensors
            self.left.add(body)
            fresh = 1
        return self._paid_wrongly(said, before, fresh)

    def _paid_wrongly(self, said: dict[str, Any], before: int, fresh: int) -> tuple[str, str] | None:
        from fedquilt.privacy.accountant import spent_epsilon

        assert self.dp is not None
        after = self.paid()
        if after - before != fresh:
            return "budget", f"{after - before} uploads were paid for, {fresh} left (it said {json.dumps(said)[:200]})"
        # T uploads of noise s cost as much as one of s / sqrt(T).
        spent = spent_epsilon(self.dp["noise"] / after**0.5, 1, self.dp.get("delta", 1e-5)) if after else 0.0
        if spent > self.dp["epsilon"] * (1 + 1e-6):
            return "budget", f"{after} uploads left: epsilon {spent:.3f} of {self.dp['epsilon']}"
        return None

    def _permitted(self, name: str) -> bool:
        return self.permits == "all" or any(name.startswith(permit.rstrip("*")) for permit in self.permits)
