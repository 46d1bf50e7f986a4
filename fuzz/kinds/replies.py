"""A hostile site replies to a coordinator: the training of the others goes on, with numbers that are finite."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

from fuzz.attempts import Attempt
from fuzz.judge import Failed
from fuzz.odd_values import odd_value
from fuzz.processes import forked

ABOUT = (
    "replies of one site of four: other names, shapes, types, numbers, headers, replays, weights and counts too large"
)
_SIZES = (14, 11, 17, 13)
_HOSTILE, _ROUNDS = 1, 3
_METHODS = ("fedavg", "fedper", "fedprox", "fedpub", "fedssa", "fediih", "fedhero", "fedsheafhn", "quilt")


def prepare(folder: Path) -> None:
    """Nothing: a federation is made for each attempt."""


def attempt(case: Attempt) -> None:
    """Train with a hostile site."""
    seed = case.rng.randrange(2**31)
    ended = forked(lambda: _train(case.folder, seed), case.folder, ["(federation)"], cpu_seconds=90.0)
    case.notes += (ended.value or {}).get("done", [])
    if ended.over:
        raise Failed(f"too much {ended.over}", f"killed after {ended.cpu:.0f} s of CPU, {ended.peak_mb:.0f} MB")
    if ended.status or ended.value is None:
        raise Failed("traceback", f"{ended.err[-1500:]}")
    if ended.value["found"]:
        raise Failed(*ended.value["found"])


def _train(folder: Path, seed: int) -> dict[str, Any]:
    """In a process of its own: a federation in memory with one site whose replies are changed on their way."""
    import torch

    from fedquilt.errors import FedquiltError
    from fedquilt.federation.coordinator import dispatch, engine
    from fedquilt.federation.site.examples import write_sites
    from support.federations import ragged_clients
    from support.flower_doubles import MemoryGrid, federation, site_states

    engine.RETRY_SECONDS, engine.REACH_SECONDS, dispatch.POLL_SECONDS = 0.05, 0.01, 0.002
    logging.disable(logging.CRITICAL)
    rng = random.Random(seed)
    clients = ragged_clients(_SIZES)
    grid = MemoryGrid(write_sites(folder, clients, permits="all"))
    hostile = _Hostile(rng, set(rng.sample(range(_ROUNDS), rng.choice((1, 1, 2)))))
    grid.tamper = hostile
    method = rng.choice(_METHODS)
    hostile.done.append(f"method {method}")
    there = federation(folder, clients, grid, method=method, rounds=_ROUNDS, min_sites=2, timeout=1.0, tries=2)
    found: list[str] | None = None
    try:
        there.run()
    except FedquiltError as error:
        found = ["stopped", f"one hostile site of four stopped the run: {error}"]
    records = there.folder.seed(3).records()
    if found is None:
        found = _harm(records, there.incidents.all, hostile)
    for number, state in enumerate(site_states(folder) if found is None else []):
        bad = [n for n, t in state.items() if not n.startswith("figures.") and not bool(torch.isfinite(t).all())]
        if bad and number != _HOSTILE:
            found = ["not finite", f"site {number} has numbers in {bad[0]} that are not finite"]
    return {"done": hostile.done, "found": found}


def _harm(records: list[dict[str, Any]], incidents: list[dict[str, Any]], hostile: _Hostile) -> list[str] | None:
    if len(records) != _ROUNDS:
        return ["stopped", f"the run has {len(records)} rounds, not {_ROUNDS}"]
    for record in records:
        who = range(4) if record["participants"] == "all" else record["participants"]
        honest = set(range(4)) - {_HOSTILE}
        if not honest <= set(who):
            return ["honest site left out", f"round {record['round']} went without {sorted(honest - set(who))}"]
        if record["round"] in hostile.inflated and _HOSTILE in who:
            told = [line for line in incidents if line["site"] == "site-1" and line["round"] == record["round"]]
            if not told:
                return ["inflated upload used", f"round {record['round']} used it without a word: {hostile.done}"]
    if not all(line["reason"].isprintable() for line in incidents):
        return ["raw control character", "incidents have control characters of a site's text"]
    return None


class _Hostile:
    """Changes what site 1 replies in some rounds.

    Attributes:
        inflated: the rounds with weights or counts that no real site has.
    """

    def __init__(self, rng: random.Random, rounds: set[int]) -> None:
        self.rng, self.rounds = rng, rounds
        self.inflated: set[int] = set()
        self.done: list[str] = []
        self.earlier: list[Any] = []
        self.first = rng.random() < 0.08

    def __call__(self, node: int, message: Any, reply: Any) -> Any:
        """The reply that arrives."""
        from fedquilt.federation.flower_messages import pack, unpack

        asked = unpack(message.content)[0]
        if node != 1000 + _HOSTILE or asked.get("kind") != "round" or asked.get("round") not in self.rounds:
            if asked.get("kind") == "round":
                self.earlier.append(unpack(reply.content))
            if node == 1000 + _HOSTILE and asked.get("kind") in ("finish", "evaluate") and self.rng.random() < 0.2:
                header = {**unpack(reply.content)[0], "figures": odd_value(self.rng), "model": odd_value(self.rng)}
                return self._packed(reply, header, b"", "odd figures")
            return reply
        header, body = unpack(reply.content)
        sort = self.rng.choice(sorted(_REPLIES))
        self.done.append(f"round {asked['round']}: {sort}")
        if sort == "no reply":
            return None
        if sort == "an error of Flower":
            return ValueError("garbage")
        if sort == "a replay":
            if self.earlier:
                reply.content = pack(*self.rng.choice(self.earlier))
            return reply
        made = _REPLIES[sort](header, body, self.rng)
        if sort.startswith("inflated") and made[1] != body:  # some methods send no counts
            self.inflated.add(asked["round"])
        return self._packed(reply, made[0], made[1], "")

    def _packed(self, reply: Any, header: Any, body: bytes, note: str) -> Any:
        from flwr.app import ConfigRecord, RecordDict

        from fedquilt.federation.flower_messages import pack

        if note:
            self.done.append(note)
        try:
            reply.content = pack(header, body)
        except (ValueError, TypeError, RecursionError):
            reply.content = RecordDict({"header": ConfigRecord({"json": "[" * 60000})})
        return reply


def _upload(change: Any) -> Any:
    """Change the tensors of an upload; `change` gets them and gives others."""

    def made(header: dict[str, Any], body: bytes, rng: random.Random) -> tuple[Any, bytes]:
        from fedquilt.messages.wire import decode, encode

        tensors = decode(body) if body else {}
        try:
            return header, encode(change(tensors, rng))
        except (ValueError, RuntimeError, TypeError):
            return header, b"\x00"

    return made


def _each(change: Any, counts: bool | None = None) -> Any:
    """Change every tensor, or one of them; only counts, or all but counts, where that is said."""

    def all_of(tensors: dict[str, Any], rng: random.Random) -> dict[str, Any]:
        from fedquilt.messages.message import Sparse, dense

        chosen = [n for n in tensors if counts is None or _is_count(n) == counts]
        if counts is None and chosen and rng.random() < 0.5:
            chosen = [rng.choice(chosen)]
        out = dict(tensors)
        for name in chosen:
            value = change(dense(tensors[name]).clone(), rng)
            out[name] = Sparse(value) if isinstance(tensors[name], Sparse) and value.ndim > 1 else value
        return out

    return _upload(all_of)


def _is_count(name: str) -> bool:
    return name.startswith(("train_nodes", "nodes", "seen.", "class.count"))


def _put(value: float) -> Any:
    def change(tensor: Any, rng: random.Random) -> Any:
        import torch

        tensor = tensor.float() if not tensor.is_floating_point() and value != value else tensor
        if tensor.numel():
            limit = torch.iinfo(tensor.dtype).max if not tensor.is_floating_point() else None
            tensor.view(-1)[rng.randrange(tensor.numel())] = value if limit is None else min(int(value), limit)
        return tensor

    return change


def _odd_header(header: Any, body: bytes, rng: random.Random) -> tuple[Any, bytes]:
    header = dict(header)
    for _ in range(rng.choice((1, 2))):
        header[rng.choice(("figures", "epsilon", "seconds", "refused", "spent", "model", "x"))] = odd_value(rng)
    return header, body


_REPLIES: dict[str, Any] = {
    "no reply": None,
    "an error of Flower": None,
    "a replay": None,
    "NaN": _each(_put(float("nan"))),
    "infinity": _each(_put(float("inf"))),
    "3e38": _each(_put(3e38)),
    "1e9": _each(_put(9.9e8)),
    "negative": _each(lambda t, rng: -t.abs() - 1),
    "zeros": _each(lambda t, rng: t * 0),
    "tiny": _each(lambda t, rng: (t.float() * 0 + 1e-44).to(t.dtype)),
    "another type": _each(lambda t, rng: t.double() if rng.random() < 0.5 else t.long()),
    "another shape": _each(lambda t, rng: t.reshape(-1) if rng.random() < 0.5 else t[..., :-1]),
    "another axis": _each(lambda t, rng: t.unsqueeze(0)),
    "larger": _each(lambda t, rng: t.repeat(50, *([1] * (t.ndim - 1)))),
    "inflated weights": _each(lambda t, rng: t * rng.uniform(300, 900), counts=False),
    "inflated counts": _each(lambda t, rng: t * 0 + rng.choice((1e6, 1e8, 9e8)), counts=True),
    "undeclared": _upload(lambda m, rng: {**m, "secret": _ones()}),
    "renamed": _upload(lambda m, rng: {f"{n}x": v for n, v in m.items()}),
    "one missing": _upload(lambda m, rng: dict(list(m.items())[1:])),
    "no body": lambda header, body, rng: (header, b""),
    "random body": lambda header, body, rng: (header, rng.randbytes(rng.choice((1, 7, 900)))),
    "body cut short": lambda header, body, rng: (header, body[: rng.randrange(max(1, len(body)))]),
    "bits flipped": lambda header, body, rng: (header, _flipped(body, rng)),
    "odd header": _odd_header,
    "odd header too": _odd_header,
    "a header that is no table": lambda header, body, rng: ([header], body),
    "a refusal": lambda header, body, rng: ({"refused": odd_value(rng), "spent": rng.random() < 0.5}, b""),
    "a refusal with a body": lambda header, body, rng: ({**header, "refused": "\x1b[2J no"}, body),
}


def _ones() -> Any:
    import torch

    return torch.ones(1, 2)


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 4)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)
